"""From lines of text to ids and back, for one language: Moses, case, BPE, vocabulary.

A prepared corpus has one pipeline per language. It is also saved with a model, so that `translate` and `evaluate` read
new text exactly as the training text was read.

Moses tokenization is sacremoses', as in fairseq's preparation scripts, with one rule corrected: current Moses always
splits the period off the last word of a line (`the u.s .`), sacremoses does not after abbreviations. With this
correction all 13,500 lines of IWSLT-14's test set are identical to fairseq's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lidstone.errors import DataError, FileFormatError, InputError, TextError
from lidstone.files import read_object
from lidstone.text.bpe import BPE
from lidstone.text.vocabulary import EOS, UNK, Vocabulary

BOS, PAD = "<bos>", "<pad>"
SPECIALS = (BOS, PAD, EOS, UNK)  # fairseq's four, in its order; the first two are never predicted
Ids = npt.NDArray[np.int32]
_FINAL_PERIOD = re.compile(r"(?<=[^\s.])\.$")
_SPACES = re.compile(r"[ \t\r\n]+")


@dataclass(frozen=True)
class TextPipeline:
    """How lines become ids; `vocab` and `bpe` are made from the training text.

    >>> lines = TextPipeline(vocab=build_vocabulary([["a", "b"]]))
    >>> ids = lines.encode(["b a z"])[0]; ids.tolist(), lines.decode(ids)
    ([5, 4, 3], 'b a <unk>')
    """

    vocab: Vocabulary | None = None
    language: str = "en"
    tokenization: str = "none"
    """none; moses; or done: the text is Moses-tokenized already, and detokenized when decoding."""
    lowercase: bool = False
    normalize: bool = False
    bpe: BPE | None = None
    checkpoint: str | None = None
    """A folder whose Hugging Face tokenizer is used instead of everything else."""

    def words(self, lines: Iterable[str]) -> list[str]:
        """Tokenized lines: words between single spaces; unchanged lines for a checkpoint's tokenizer."""
        if self.checkpoint is not None:
            return [line.lower() if self.lowercase else line for line in lines]
        if self.tokenization == "moses":
            lines = tokenize_lines(lines, self.language, normalize=self.normalize)
        return [single_spaces(line.lower() if self.lowercase else line) for line in lines]

    def word_count(self, line: str) -> int:
        """The words of a tokenized line: between single spaces, or between any for a checkpoint's tokenizer."""
        return len(line.split() if self.checkpoint is not None else line.split(" ")) if line else 0

    def pieces(self, words: Sequence[str]) -> list[list[str]]:
        """Subwords of tokenized lines."""
        lines = [line.split(" ") if line else [] for line in words]
        if self.bpe is None:
            return lines
        types = list({word for line in lines for word in line})  # BPE does not depend on context: split each word once
        split = dict(zip(types, self.bpe.encode_lines(types), strict=True))
        return [[piece for word in line for piece in split[word]] for line in lines]

    def encode(self, lines: Iterable[str]) -> list[Ids]:
        """Ids of each line, without the final eos."""
        return self.encode_words(self.words(lines))

    def encode_words(self, words: Sequence[str]) -> list[Ids]:
        """Ids of tokenized lines."""
        if self.checkpoint is None:
            return [encode_pieces(pieces, self.vocabulary) for pieces in self.pieces(words)]
        encoded = self.tokenizer(words, add_special_tokens=False)["input_ids"] if words else []
        return [self._without_specials(np.array(ids, dtype=np.int32), n) for n, ids in enumerate(encoded, start=1)]

    def _without_specials(self, ids: Ids, number: int) -> Ids:
        reserved = self.vocabulary.boundaries[ids]
        if reserved.any():
            word = self.tokenizer.decode(ids[reserved][:1])
            raise TextError(f"line {number} has {word} as a word", hint="remove it: it is added where needed")
        return ids

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The line of some ids up to the first eos: subwords joined, tokenization undone."""
        known = self.vocabulary
        kept = [int(token) for token in _until(ids, known.eos) if known.events[token]]
        if self.checkpoint is not None:
            return str(self.tokenizer.decode(kept))
        pieces = [known.tokens[token] for token in kept] if known.tokens else []
        return self.join(pieces)

    def join(self, pieces: Sequence[str]) -> str:
        """The line of some pieces."""
        line = self.bpe.decode(pieces) if self.bpe is not None else " ".join(pieces)
        return line if self.tokenization == "none" else self._detokenize(line.split(" "))

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary; only a pipeline that is not finished has none."""
        assert self.vocab is not None, "the pipeline has no vocabulary yet"
        return self.vocab

    @cached_property
    def _detokenize(self) -> Any:
        return detokenizer(self.language)

    @cached_property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer of the checkpoint."""
        from transformers import AutoTokenizer

        hint = "save the tokenizer beside the model with save_pretrained"
        found = self._load(AutoTokenizer, "tokenizer", hint)
        if len(found) <= len(found.all_special_ids):  # what transformers makes of a folder without tokenizer files
            raise DataError(f"the checkpoint {self.checkpoint} has no tokenizer", hint=hint)
        return found

    @property
    def model_size(self) -> int:
        """Number of ids of the checkpoint's model, which may be larger than its tokenizer's."""
        from transformers import AutoConfig

        return int(self._load(AutoConfig, "configuration", "give a folder made by save_pretrained").vocab_size)

    def _load(self, auto: Any, what: str, hint: str) -> Any:
        try:
            return load_pretrained(auto, str(self.checkpoint))
        except (OSError, ValueError) as error:
            raise DataError(f"the checkpoint {self.checkpoint} has no {what} that can be loaded", hint=hint) from error

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the inverse is `from_dict`."""
        values = {name: getattr(self, name) for name in ("language", "tokenization", "lowercase", "normalize")}
        merges = None if self.bpe is None else [list(pair) for pair in self.bpe.merges]
        return {**values, "checkpoint": self.checkpoint, "merges": merges, "vocab": self.vocabulary.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TextPipeline:
        """The inverse of `to_dict`."""
        values = dict(values)
        merges, vocab = values.pop("merges"), Vocabulary.from_dict(values.pop("vocab"))
        bpe = None if merges is None else BPE(tuple((left, right) for left, right in merges))
        return replace(cls(**values), bpe=bpe, vocab=vocab)


def model_folder(path: str | Path) -> Path:
    """The folder with the model of a run, or of a model that `save_pretrained` wrote."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"there is no run or model {path}", hint="pass a folder of runs/, or one with config.json")
    for folder in (path / "model", path, path.parent / "model" if path.is_file() else path):
        if (folder / "config.json").is_file():
            return folder
    unfinished = " yet: the training is not finished" if (path / "checkpoints").is_dir() else ""
    raise InputError(f"{path} has no model{unfinished}", hint="pass a folder of runs/, or one with config.json")


def saved_pipeline(folder: Path, side: str = "target") -> TextPipeline | None:
    """The pipeline in a model folder of lidstone; None in that of another program."""
    path = folder / f"{side}.json"
    if not path.is_file():
        return None
    pipeline = TextPipeline.from_dict(read_object(path, "settings", "train again, or copy the model folder again"))
    return replace(pipeline, checkpoint=str(folder)) if pipeline.checkpoint is not None else pipeline


def load_pretrained(auto: Any, source: str | Path, **options: Any) -> Any:
    """`from_pretrained` of a class of transformers, which never runs code that the folder brings along."""
    try:
        return auto.from_pretrained(source, **{**options, "trust_remote_code": False})
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise FileFormatError(
            f"{source} needs Python code of its own, which lidstone does not run",
            hint="use a model and a tokenizer whose classes are part of transformers",
        ) from error


def tokenize_lines(lines: Iterable[str], language: str, *, normalize: bool = False) -> Iterator[str]:
    """Words and punctuation of each line, separated by single spaces, with `&apos;` for an apostrophe.

    >>> list(tokenize_lines(["It's (almost) over, U.S."], "en"))
    ['It &apos;s ( almost ) over , U.S .']
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    tokenizer = MosesTokenizer(language)
    clean = MosesPunctNormalizer(language, post_remove_control_chars=True).normalize if normalize else str
    for line in lines:
        yield _FINAL_PERIOD.sub(" .", tokenizer.tokenize(clean(line), return_str=True))


def detokenizer(language: str) -> Callable[[Sequence[str]], str]:
    """A function that joins Moses tokens to a line.

    >>> detokenizer("en")(["It", "&apos;s", "over", "."])
    "It's over."
    """
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(language)
    return lambda words: moses.detokenize(list(words), return_str=True)


def single_spaces(line: str) -> str:
    r"""The line with single spaces between words; spaces, tabs and line ends separate, as everywhere in lidstone.

    >>> single_spaces("  a\t b \r\n")
    'a b'
    """
    return _SPACES.sub(" ", line).strip(" ")


def encode_pieces(pieces: Sequence[str], vocab: Vocabulary) -> Ids:
    """The ids of pieces; where a text has a reserved word such as <pad> or </s>, it is an unknown word.

    >>> encode_pieces(["a", "</s>", "<pad>"], build_vocabulary([["a", "b"]])).tolist()
    [4, 3, 3]
    """
    ids = vocab.encode(pieces)
    return ids if vocab.unk is None else np.where(vocab.boundaries[ids], np.int32(vocab.unk), ids)


def build_vocabulary(lines: Iterable[Sequence[str]], *, min_count: int = 1, pad_to_multiple: int = 1) -> Vocabulary:
    """Fairseq's four specials, then tokens by falling frequency (ties by spelling), then padding.

    >>> build_vocabulary([["b", "a", "b"]], pad_to_multiple=4).tokens
    ('<bos>', '<pad>', '</s>', '<unk>', 'b', 'a', '<unused-6>', '<unused-7>')
    """
    counts = Counter(token for line in lines for token in line)
    for special in (BOS, PAD, EOS):
        if special in counts:
            raise TextError(f"the text has {special} as a word", hint="remove it: it is added where needed")
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    kept = [token for token in ranked if counts[token] >= min_count and token != UNK]
    tokens = [*SPECIALS, *kept]
    unused = range(len(tokens), len(tokens) + -len(tokens) % pad_to_multiple)
    tokens += [f"<unused-{number}>" for number in unused]
    return Vocabulary(len(tokens), 2, (0, 1, *unused), 3, tuple(tokens))


def _until(ids: Sequence[int] | Ids, eos: int) -> list[int]:
    listed = [int(token) for token in ids]
    if listed and listed[0] == eos:  # decoders start with eos
        listed = listed[1:]
    return listed[: listed.index(eos)] if eos in listed else listed
