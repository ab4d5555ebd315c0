"""A prepared corpus: ids of every split and the pipelines that made them, saved as a folder.

<cache>/prepared/<hash>/
manifest.json                counts, checksums, settings
train.target.txt ...         the tokens as text, one sample per line
target.json, source.json     the pipelines: vocabulary, merges, tokenization
codes.target.bpe ...         the merges in subword-nmt's format
ids.npz                      the ids
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lidstone.errors import FileFormatError
from lidstone.files import hash_file, parse_json, verify_checksum, with_checksum
from lidstone.lab.corpus.pipeline import Ids, TextPipeline
from lidstone.lab.recipe.sections import Corpus
from lidstone.text.vocabulary import Vocabulary

SPLITS = ("train", "valid", "test")
FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Sentences:
    """Sequences of ids in one array; each ends with eos.

    >>> two = Sentences.pack([np.array([4, 5]), np.array([6])], eos=2)
    >>> two.stream.tolist(), len(two), two[1].tolist()
    ([4, 5, 2, 6, 2], 2, [6])
    """

    stream: Ids
    """All ids, with eos after every sentence: the packed text."""
    ends: npt.NDArray[np.int64]
    """Where each sentence ends in the stream, its eos included."""

    @classmethod
    def pack(cls, sentences: Sequence[Ids], eos: int) -> Sentences:
        """Put sentences, without their eos, one after the other."""
        lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
        ends = np.cumsum(lengths, dtype=np.int64)
        stream = np.full(int(lengths.sum()), eos, dtype=np.int32)
        inside = np.ones(len(stream), dtype=np.bool_)
        inside[ends - 1] = False
        if sentences:
            stream[inside] = np.concatenate([*sentences])
        return cls(stream, ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> Ids:
        """The ids of a sentence without its eos."""
        start = int(self.ends[number - 1]) if number % len(self) else 0
        return self.stream[start : int(self.ends[number]) - 1]

    def __iter__(self) -> Iterator[Ids]:
        return (self[number] for number in range(len(self)))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Ids per sentence, eos included."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class CorpusSplit:
    """Training, validation or test part."""

    target: Sentences
    source: Sentences | None
    words: npt.NDArray[np.int64]
    """Words per target sentence before BPE, without eos: the denominator of word perplexity."""
    sha256: str
    """Checksum of the tokens."""
    references: tuple[str, ...] = ()
    """Target lines with tokenization undone, to score translations against; for validation and test."""

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus: the input of training."""

    name: str
    train: CorpusSplit
    valid: CorpusSplit
    test: CorpusSplit
    target: TextPipeline
    source: TextPipeline | None
    manifest: dict[str, Any]
    folder: Path

    @property
    def key(self) -> str:
        """The hash of the text and of the settings it was prepared with."""
        return str(self.manifest["key"])

    @property
    def vocab(self) -> Vocabulary:
        """The target vocabulary, whose ids are predicted."""
        return self.target.vocabulary

    @property
    def signature(self) -> dict[str, str]:
        """Name and checksum of each split, for run.json."""
        return {"name": self.name, **{split: getattr(self, split).sha256 for split in SPLITS}}


def save(prepared: Prepared, folder: Path) -> None:
    """Write everything into an empty folder; the manifest comes last."""
    arrays: dict[str, Any] = {}
    pipelines = {"target": prepared.target, "source": prepared.source}
    for side, pipeline in pipelines.items():
        if pipeline is None:
            continue
        _write_json(folder / f"{side}.json", pipeline.to_dict())
        if pipeline.bpe is not None:
            pipeline.bpe.save(folder / f"codes.{side}.bpe")
        for split in SPLITS:
            sentences = getattr(getattr(prepared, split), side)
            arrays |= {f"{split}.{side}.stream": sentences.stream, f"{split}.{side}.ends": sentences.ends}
            _write_tokens(folder / f"{split}.{side}.txt", sentences, pipeline.vocabulary)
    for split in SPLITS:
        arrays[f"{split}.words"] = getattr(prepared, split).words
    np.savez(folder / "ids.npz", **arrays)
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    _write_json(folder / MANIFEST, with_checksum({**prepared.manifest, "files": files}))


def load(folder: Path) -> Prepared:
    """Read what `save` wrote; a damaged folder is a `FileFormatError`."""
    try:
        manifest = parse_json((folder / MANIFEST).read_bytes())
        verify_checksum(manifest)
        _verify(folder, manifest)
        pipelines = {
            side: TextPipeline.from_dict(parse_json((folder / f"{side}.json").read_bytes()))
            for side in ("target", "source")
            if (folder / f"{side}.json").exists()
        }
        with np.load(folder / "ids.npz") as arrays:
            splits = {split: _read_split(split, arrays, pipelines, manifest) for split in SPLITS}
        _check_manifest(manifest, pipelines)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, zlib.error) as error:
        hint = "delete the folder; it will be made again"
        reason = str(error).partition("\n")[0]
        raise FileFormatError(f"the prepared corpus {folder} is damaged: {reason}", hint=hint) from error
    target, source = pipelines["target"], pipelines.get("source")
    return Prepared(
        manifest["name"], splits["train"], splits["valid"], splits["test"], target, source, manifest, folder
    )


def _verify(folder: Path, manifest: dict[str, Any]) -> None:
    if manifest["format"] != FORMAT:
        raise ValueError(f"format {manifest['format']}, not {FORMAT}")
    for file in ("ids.npz", "target.json", "source.json"):
        if file in manifest["files"] and hash_file(folder / file) != manifest["files"][file]:
            raise ValueError(f"{file} has changed")


def _check_manifest(manifest: dict[str, Any], pipelines: dict[str, TextPipeline]) -> None:
    """Refuse a manifest without what others read from it: only damage is noticed by its checksum."""
    Corpus.model_validate(manifest["settings"]["corpus"])
    if not all(isinstance(manifest[key], str) for key in ("name", "key")):
        raise ValueError("the name or the key in the manifest is no text")
    if any(manifest["vocabulary"][side] != pipeline.vocabulary.size for side, pipeline in pipelines.items()):
        raise ValueError("the sizes of the vocabularies in the manifest are not theirs")
    facts = [manifest["splits"][split] for split in SPLITS]
    numbers = [fact[key] for fact in facts for key in ("samples", "dropped", "longest")]
    if not all(
        isinstance(number, int) for number in numbers + [fact["tokens"][side] for fact in facts for side in pipelines]
    ):
        raise ValueError("a size in the manifest is no number")


def _read_split(split: str, arrays: Any, pipelines: dict[str, TextPipeline], manifest: dict[str, Any]) -> CorpusSplit:
    sides = {side: Sentences(arrays[f"{split}.{side}.stream"], arrays[f"{split}.{side}.ends"]) for side in pipelines}
    words, facts = arrays[f"{split}.words"], manifest["splits"][split]
    for side, sentences in sides.items():
        _check(sentences, words, pipelines[side].vocabulary.size)
    references = tuple(map(str, manifest["references"].get(split, ())))
    return CorpusSplit(sides["target"], sides.get("source"), words, str(facts["sha256"]), references)


def _check(sentences: Sentences, words: npt.NDArray[Any], size: int) -> None:
    """Refuse ids outside the vocabulary, and sentences that do not fill the stream or do not fit their words."""
    stream, ends = sentences.stream, sentences.ends
    if any(array.ndim != 1 or array.dtype.kind != "i" for array in (stream, ends, words)):
        raise ValueError("an array of ids.npz is not a list of whole numbers")
    if not len(ends) or len(words) != len(ends) or (sentences.lengths < 1).any() or ends[-1] != len(stream):
        raise ValueError("the sentences in ids.npz do not fit their text")
    if stream.min() < 0 or stream.max() >= size:
        raise ValueError("an id in ids.npz is outside the vocabulary")


def tokens_sha256(lines: Sequence[Sequence[str]]) -> str:
    """The checksum of a split: of its tokens as text, one sample per line.

    >>> tokens_sha256([["a"]])[:8]
    '87428fc5'
    """
    digest = hashlib.sha256()
    for line in lines:
        digest.update((" ".join(line) + "\n").encode())
    return digest.hexdigest()


def _write_tokens(path: Path, sentences: Sentences, vocab: Vocabulary) -> None:
    if vocab.tokens is None:
        return
    tokens = np.array(vocab.tokens, dtype=object)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(" ".join(tokens[ids]) + "\n" for ids in sentences)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
