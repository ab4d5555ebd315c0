"""`lidstone data prepare`: from a recipe's corpus to ids, cached by the hash of the text and the settings.

read -> tokenize -> clean -> split -> limit -> learn BPE -> apply -> vocabulary -> save

Only the task, the corpus and the tokenizer enter the hash, so all seeds, strengths and models share the result.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lidstone.errors import DataError, FileFormatError, LidstoneError
from lidstone.files import new_folder
from lidstone.lab.corpus import prepared as storage
from lidstone.lab.corpus.named import RawCorpus, Sample, cache_root, read_corpus
from lidstone.lab.corpus.pipeline import TextPipeline, build_vocabulary, encode_pieces, saved_pipeline
from lidstone.lab.corpus.prepared import SPLITS, CorpusSplit, Prepared, Sentences, tokens_sha256
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.recipe.sections import Corpus
from lidstone.text.bpe import BPE, learn_bpe
from lidstone.text.corpora import split_sentences
from lidstone.text.vocabulary import Vocabulary

log = logging.getLogger("lidstone")
Samples = list[Sample]


def prepare_corpus(recipe: Recipe, output: str | Path | None = None) -> Prepared:
    """Prepare a recipe's corpus, or load it if it is prepared already; `output` is the folder, by default in the cache.

    >>> from lidstone.lab.recipe.recipe import load_recipe
    >>> import tempfile; folder = Path(tempfile.mkdtemp()) / "demo"
    >>> prepare_corpus(load_recipe("demo"), folder).vocab.tokens[:4]
    ('<bos>', '<pad>', '</s>', '<unk>')
    """
    raw = read_corpus(recipe.corpus, recipe.task)
    if raw.edition.startswith("tokenized"):
        _warn_once(f"{recipe.corpus.name}: {raw.edition}")
    key = _key(recipe, raw)
    folder = Path(output) if output is not None else cache_root() / "prepared" / key
    found = _stored(folder, key)
    if found is not None:
        return replace(found, name=_name(recipe))
    if output is not None and folder.is_dir() and any(folder.iterdir()) and not (folder / storage.MANIFEST).exists():
        raise DataError(f"{folder} has files and is not a prepared corpus", hint="choose a new folder")
    return _prepare(recipe, raw, key, folder)


def _name(recipe: Recipe) -> str:
    return recipe.corpus.name or recipe.name


def _stored(folder: Path, key: str) -> Prepared | None:
    """The corpus in the folder if it is whole and has this key."""
    if not (folder / storage.MANIFEST).exists():
        return None
    try:
        found = storage.load(folder)
    except FileFormatError as error:
        log.warning("%s", error.message)
        return None
    return found if found.manifest["key"] == key else None


@cache
def _warn_once(message: str) -> None:
    """Log a warning, once per process."""
    log.warning(message)


def _key(recipe: Recipe, raw: RawCorpus) -> str:
    """16 hex digits of a hash of everything that the result depends on."""
    settings = recipe.model_dump(mode="json", include={"task", "corpus", "tokenizer"})
    for place in ("train", "valid", "test", "name"):
        settings["corpus"].pop(place)
    versions = [metadata.version(name) for name in ("sacremoses", "subword-nmt")]
    digest = hashlib.sha256(json.dumps([storage.FORMAT, settings, versions, raw.tokenized]).encode())
    for samples in (raw.train, raw.valid, raw.test):
        digest.update(b"\x01none" if samples is None else b"\x01")
        for sample in samples or ():
            digest.update("\x02".join((*sample, "")).encode())
    if recipe.tokenizer.codes:
        digest.update(repr(BPE.load(recipe.tokenizer.codes).merges).encode())
    if (own := _own_pipeline(recipe)) is not None:
        digest.update(json.dumps(own.to_dict()).encode())
    elif recipe.tokenizer.kind == "checkpoint":
        digest.update(str(recipe.model.checkpoint).encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class _Encoded:
    """All splits of one side: words and pieces, and the pipeline that made them."""

    pipeline: TextPipeline
    words: dict[str, list[str]]
    pieces: dict[str, list[list[str]]]
    ids: dict[str, Sentences]


def _prepare(recipe: Recipe, raw: RawCorpus, key: str, folder: Path) -> Prepared:
    pipelines = _pipelines(recipe, raw)
    splits, dropped = _clean_splits(recipe, raw, pipelines)
    sides = _encode(recipe, pipelines, splits)
    result = _assemble(recipe, raw, key, folder, sides, dropped)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with new_folder(folder) as made:
            storage.save(result, made)
    except LidstoneError:
        if _stored(folder, key) is None:  # else another user's process was faster, whose folder cannot be replaced
            raise
    return result


def _pipelines(recipe: Recipe, raw: RawCorpus) -> list[TextPipeline]:
    """One pipeline per column of a sample, still without vocabulary."""
    corpus = recipe.corpus
    if (own := _own_pipeline(recipe)) is not None:
        return [replace(own, tokenization=_tokenization(raw, own.tokenization))]
    tokenization = _tokenization(raw, corpus.tokenization)
    languages = [corpus.target_language] if recipe.task == "lm" else [corpus.source_language, corpus.target_language]
    checkpoint = recipe.model.checkpoint if recipe.tokenizer.kind == "checkpoint" else None
    return [
        TextPipeline(
            language=language,
            tokenization=tokenization,
            lowercase=corpus.lowercase,
            normalize=corpus.normalize,
            checkpoint=checkpoint,
        )
        for language in languages
    ]


def _tokenization(raw: RawCorpus, wanted: str) -> str:
    """Moses-tokenized text is not tokenized again."""
    return "done" if raw.tokenized and wanted == "moses" else wanted


def _own_pipeline(recipe: Recipe) -> TextPipeline | None:
    """The pipeline of a run of lidstone that is trained further: its tokens are read as its own text was."""
    checkpoint = Path(str(recipe.model.checkpoint))
    if recipe.tokenizer.kind != "checkpoint":
        return None
    own = saved_pipeline(checkpoint / "model") or saved_pipeline(checkpoint)
    for key in ("tokenization", "lowercase", "normalize") if own is not None else ():
        given, kept = getattr(recipe.corpus, key), getattr(own, key)
        if given not in (Corpus.model_fields[key].default, kept):
            raise DataError(
                f"corpus.{key} is {given}, but {checkpoint} was trained with {kept}",
                hint=f"leave corpus.{key} out: it comes with the checkpoint",
            )
    return own


def _clean_splits(
    recipe: Recipe, raw: RawCorpus, pipelines: Sequence[TextPipeline]
) -> tuple[dict[str, Samples], dict[str, int]]:
    """Tokenized samples of each split, and how many were dropped."""
    corpus = recipe.corpus
    read = {"train": raw.train, "valid": raw.valid, "test": raw.test}
    tokenized = {split: _words(samples, pipelines) for split, samples in read.items() if samples is not None}
    kept = {split: [sample for sample in samples if all(sample)] for split, samples in tokenized.items()}
    kept["train"] = [sample for sample in kept["train"] if is_clean(sample, corpus)]
    if corpus.distinct:
        kept = distinct({split: kept[split] for split in SPLITS if split in kept})
    dropped = {split: len(tokenized[split]) - len(kept[split]) for split in kept}
    _fill_splits(kept, corpus.valid_every)
    kept["train"] = evenly(kept["train"], corpus.fraction, corpus.limit)
    for split in SPLITS:
        if not kept[split]:
            raise DataError(
                f"no {split} samples are left: {len(tokenized.get(split, tokenized['train']))} were read",
                hint="check the files, and corpus.max_length, max_ratio, limit and fraction",
            )
    return kept, dropped


def _words(samples: Samples, pipelines: Sequence[TextPipeline]) -> Samples:
    columns = [pipeline.words(sample[number] for sample in samples) for number, pipeline in enumerate(pipelines)]
    return list(zip(*columns, strict=True))


def _fill_splits(kept: dict[str, Samples], valid_every: int | None) -> None:
    """Take missing splits out of the training text: every n-th sample, or blocks of neighbours (80/10/10)."""
    if "valid" not in kept and valid_every is not None:
        kept["train"], kept["valid"] = every_nth(kept["train"], valid_every)
    if "valid" in kept and "test" in kept:
        return
    block = max(1, min(10, len(kept["train"]) // 30))
    train, valid, test = split_sentences(kept["train"], block=block)
    spare = {"valid": list(valid), "test": list(test)}
    kept["train"] = list(train)
    for split, samples in spare.items():
        kept["train"] += samples if split in kept else []
        kept.setdefault(split, samples)


def is_clean(sample: Sample, corpus: Corpus) -> bool:
    """Whether a training sample passes the filters of Moses' clean-corpus-n: lengths and their ratio.

    >>> pair = ("ein Haus", "a very big house")
    >>> is_clean(pair, Corpus()), is_clean(pair, Corpus(max_ratio=1.5)), is_clean(pair, Corpus(max_length=3))
    (True, False, False)
    """
    lengths = [len(text.split(" ")) if text else 0 for text in sample]
    shortest, longest = min(lengths), max(lengths)
    return (
        shortest >= max(corpus.min_length, 1)
        and (corpus.max_length is None or longest <= corpus.max_length)
        and (corpus.max_ratio is None or longest <= corpus.max_ratio * shortest)
    )


def distinct(splits: dict[str, list[Sample]]) -> dict[str, list[Sample]]:
    """Each sample once, in the last split of the dictionary that has it: test before validation before training.

    >>> distinct({"train": [("a",), ("b",), ("b",)], "test": [("a",), ("c",), ("c",)]})
    {'train': [('b',)], 'test': [('a',), ('c',)]}
    """
    seen: set[Sample] = set()
    kept = {}
    for split, samples in reversed(splits.items()):
        fresh = dict.fromkeys(samples)
        kept[split] = [sample for sample in fresh if sample not in seen]
        seen.update(fresh)
    return {split: kept[split] for split in splits}


def every_nth(samples: Sequence[Sample], step: int) -> tuple[list[Sample], list[Sample]]:
    """Split off every `step`-th sample, as fairseq's scripts do for validation.

    >>> every_nth([("a",), ("b",), ("c",), ("d",)], 2)
    ([('a',), ('c',)], [('b',), ('d',)])
    """
    rest = [sample for number, sample in enumerate(samples, 1) if number % step]
    return rest, list(samples[step - 1 :: step])


def evenly(samples: Sequence[Sample], fraction: float, limit: int | None) -> list[Sample]:
    """A share of the samples, evenly spread, and of these the first `limit`.

    >>> evenly([(letter,) for letter in "abcdef"], 0.5, 2)
    [('b',), ('d',)]
    """
    chosen = (
        sample
        for number, sample in enumerate(samples)
        if int((number + 1) * fraction + 1e-9) > int(number * fraction + 1e-9)
    )
    return list(islice(chosen, limit))


def _encode(recipe: Recipe, pipelines: Sequence[TextPipeline], splits: dict[str, Samples]) -> list[_Encoded]:
    columns = [
        {split: [sample[number] for sample in samples] for split, samples in splits.items()}
        for number in range(len(pipelines))
    ]
    if recipe.tokenizer.kind == "checkpoint":
        return [_by_checkpoint(pipeline, words) for pipeline, words in zip(pipelines, columns, strict=True)]
    merges = _merges(recipe, [words["train"] for words in columns])
    pipelines = [replace(pipeline, bpe=bpe) for pipeline, bpe in zip(pipelines, merges, strict=True)]
    pieces = [
        {split: pipeline.pieces(lines) for split, lines in words.items()}
        for pipeline, words in zip(pipelines, columns, strict=True)
    ]
    vocabularies = _vocabularies(recipe, [side["train"] for side in pieces])
    return [
        _Encoded(replace(pipeline, vocab=vocab), words, parts, {s: _encode_lines(t, vocab) for s, t in parts.items()})
        for pipeline, vocab, words, parts in zip(pipelines, vocabularies, columns, pieces, strict=True)
    ]


def _merges(recipe: Recipe, texts: Sequence[list[str]]) -> list[BPE | None]:
    """The merges of each side: read from a file, learnt from all sides together, or learnt from each side."""
    settings = recipe.tokenizer
    if settings.kind != "bpe":
        return [None] * len(texts)
    if settings.codes is not None:
        return [BPE.load(settings.codes)] * len(texts)
    if settings.joint:
        return [learn_bpe((line for text in texts for line in text), settings.merges)] * len(texts)
    return [learn_bpe(text, settings.merges) for text in texts]


def _vocabularies(recipe: Recipe, sides: Sequence[list[list[str]]]) -> list[Vocabulary]:
    settings = recipe.tokenizer
    options = {"min_count": settings.min_count, "pad_to_multiple": settings.pad_to_multiple}
    if settings.shared_vocabulary:
        shared = build_vocabulary((line for side in sides for line in side), **options)
        return [shared] * len(sides)
    return [build_vocabulary(side, **options) for side in sides]


def _encode_lines(lines: list[list[str]], vocab: Vocabulary) -> Sentences:
    """The ids of all lines, by a single look-up for the whole split."""
    flat = encode_pieces([token for line in lines for token in line], vocab)
    cuts = np.cumsum([len(line) for line in lines])[:-1]
    return Sentences.pack(np.split(flat, cuts), vocab.eos)


def _by_checkpoint(pipeline: TextPipeline, words: dict[str, list[str]]) -> _Encoded:
    vocab = pipeline.vocab or Vocabulary.from_tokenizer(pipeline.tokenizer, size=pipeline.model_size)
    ready = replace(pipeline, vocab=vocab)
    lines = {split: ready.encode_words(text) for split, text in words.items()}
    strings = vocab.tokens or ()
    pieces = {split: [[strings[token] for token in ids] for ids in encoded] for split, encoded in lines.items()}
    ids = {split: Sentences.pack(encoded, vocab.eos) for split, encoded in lines.items()}
    return _Encoded(ready, words, pieces, ids)


def _assemble(
    recipe: Recipe, raw: RawCorpus, key: str, folder: Path, sides: Sequence[_Encoded], dropped: dict[str, int]
) -> Prepared:
    target, source = sides[-1], sides[0] if len(sides) > 1 else None
    pairs = {split: target.pieces[split] for split in ("valid", "test") if source is not None}
    references = {split: [target.pipeline.join(pieces) for pieces in lines] for split, lines in pairs.items()}
    splits = {split: _split(target, source, split, references.get(split, ())) for split in SPLITS}
    manifest: dict[str, Any] = {
        "format": storage.FORMAT,
        "key": key,
        "name": _name(recipe),
        "edition": raw.edition,
        "settings": recipe.model_dump(mode="json", include={"task", "corpus", "tokenizer"}),
        "splits": {split: _facts(splits[split], dropped.get(split, 0)) for split in SPLITS},
        "vocabulary": {"target": target.pipeline.vocabulary.size, "source": source and source.pipeline.vocabulary.size},
        "references": references,
    }
    other = source.pipeline if source else None
    three = splits["train"], splits["valid"], splits["test"]
    return Prepared(manifest["name"], *three, target.pipeline, other, manifest, folder)


def _split(target: _Encoded, source: _Encoded | None, split: str, references: Sequence[str]) -> CorpusSplit:
    words = np.array([target.pipeline.word_count(line) for line in target.words[split]], dtype=np.int64)
    lines = target.pieces[split] + (source.pieces[split] if source else [])
    return CorpusSplit(
        target.ids[split], source.ids[split] if source else None, words, tokens_sha256(lines), tuple(references)
    )


def _facts(split: CorpusSplit, dropped: int) -> dict[str, Any]:
    tokens = {"target": len(split.target.stream) - len(split)}
    if split.source is not None:
        tokens["source"] = len(split.source.stream) - len(split)
    return {
        "samples": len(split),
        "dropped": dropped,
        "tokens": tokens,
        "words": int(split.words.sum()),
        "longest": max(int(side.lengths.max()) for side in (split.target, split.source) if side is not None),
        "sha256": split.sha256,
    }
