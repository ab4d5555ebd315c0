"""Models as KenLM's binary files: probing hash tables and tries, with the bytes that build_binary writes.

Ids are KenLM's: in probing files `<unk>` is 0 and the words follow in the order of the model, in tries they follow in
the order of their hashes. `formats/kenlm.py` describes the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.files import atomic_write
from lidstone.jit import kernel
from lidstone.ngram.formats.kenlm import (
    ARRAY_TRIE,
    PROBING,
    QUANT_ARRAY_TRIE,
    QUANT_TRIE,
    TRIE,
    UNIGRAM,
    Header,
    PackedOrder,
    TrieParts,
    write_bits,
)
from lidstone.ngram.scorer.build import Level, NgramModel, keys_of, model_of_table
from lidstone.ngram.scorer.models import buckets, load_model
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import MAX_ORDER
from lidstone.text.hash_tables import insert_in_slots
from lidstone.text.tokens import hash_words

Format = Literal["probing", "trie"]


def write_kenlm(
    model: BackoffTable | str | Path,
    path: str | Path,
    format: Format = "probing",
    *,
    multiplier: float = 1.5,
    bits: int | None = None,
    backoff_bits: int | None = None,
    array_bits: int | None = None,
    unknown: float | None = None,
    words: bool = True,
) -> None:
    """Write a model, a table or the file of one, as a binary of KenLM, that of `build_binary` from its ARPA file.

    The numbers of an ARPA file are taken as they are, those of a table as float32. `multiplier` is the number of slots
    per n-gram of a probing file. Tries may be smaller: `bits` (2 to 25) quantises probabilities, and backoffs unless
    `backoff_bits` says otherwise; `array_bits` (up to 255) compresses pointers. `unknown` is log10 p of unknown words
    where the model has no `<unk>`, build_binary's -100 for example: without it such a model is refused. Without `words`
    the file has their hashes only.

    >>> import tempfile
    >>> from lidstone import Vocabulary, WittenBell, count, load_scorer
    >>> vocab = Vocabulary(size=4, eos=1, unk=0, tokens=("<unk>", "</s>", "tea", "milk"))
    >>> file = Path(tempfile.mkdtemp()) / "tea.bin"
    >>> write_kenlm(WittenBell().fit(count([[2, 3]], vocab, order=2)), file)
    >>> load_scorer(file).score_lines(["tea milk"]).words.tolist()
    [2]
    """
    ngrams = model_of_table(model) if isinstance(model, BackoffTable) else load_model(model)
    source = "the table" if isinstance(model, BackoffTable) else str(model)
    ngrams = _with_unknown(ngrams, unknown, source)
    _check_expressible(ngrams, source)
    _check_options(format, multiplier, bits, backoff_bits, array_bits)
    if format == "trie":
        ngrams = _sorted(_renumbered(ngrams, np.argsort(hash_words(ngrams.words))))
        sizes = None if bits is None else (bits, bits if backoff_bits is None else backoff_bits)
        parts = _trie_blocks(ngrams, sizes, array_bits, words)
    else:
        parts = _probing_blocks(in_order(ngrams), multiplier, words)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)


def _with_unknown(model: NgramModel, unknown: float | None, source: str) -> NgramModel:
    """The model with this log10 p of unknown words, if it has none of its own."""
    if model.has_unk:
        return model
    if unknown is None:
        raise InputError(
            f"{source} has no <unk>, and a binary of KenLM has one",
            hint="give log10 p of unknown words: unknown=-100 (--unknown -100), as build_binary does",
        )
    first = model.levels[0]
    logprobs = first.logprobs.copy()
    logprobs[model.unk] = unknown
    return dataclasses.replace(model, levels=[dataclasses.replace(first, logprobs=logprobs), *model.levels[1:]])


def _check_expressible(model: NgramModel, source: str) -> None:
    """Refuse what KenLM's formats have no place for."""
    if len(model.levels) < 2:
        raise InputError(f"{source} is of order 1; KenLM's binaries have orders 2 to {MAX_ORDER}", hint="use order 2")
    for order, level in enumerate(model.levels, start=1):
        backoffs = level.backoffs if order < len(model.levels) else np.zeros(1)
        if not (np.isfinite(level.logprobs).all() and np.isfinite(backoffs).all()):
            raise InputError(
                f"{source} has a {order}-gram with a probability or a backoff of 0 (log10 -inf), which KenLM refuses",
                hint="write -99 in its place, as lidstone and SRILM do",
            )
        if (level.logprobs > 0).any():
            raise InputError(f"{source} has a {order}-gram with a probability above 1", hint="fit the model again")
    if any(b"\0" in word for word in model.words):
        raise InputError(f"{source} has a word with a NUL byte, which ends words in KenLM's files", hint="rename it")


def _check_options(
    format: str, multiplier: float, bits: int | None, backoff_bits: int | None, array_bits: int | None
) -> None:
    if format not in ("probing", "trie"):
        raise InputError(f"KenLM has no format {format!r}", hint="choose probing or trie")
    if format == "probing" and (bits, backoff_bits, array_bits) != (None, None, None):
        raise InputError("only tries are quantised, or have compressed pointers", hint='use format="trie"')
    if not 1 < multiplier < 1e6:
        raise InputError(f"the multiplier must be above 1, not {multiplier}", hint="KenLM uses 1.5")
    if bits is None and backoff_bits is not None:
        raise InputError("backoff_bits needs bits", hint="quantise probabilities too: bits=8 (-q 8)")
    for name, value, low, high in (("bits", bits, 1, 25), ("backoff_bits", backoff_bits or bits, 2, 25)):
        if value is not None and not low <= value <= high:
            raise InputError(f"{name} must be {low} to {high}, not {value}", hint="8 is usual")
    if array_bits is not None and not 0 <= array_bits <= 255:
        raise InputError(f"array_bits must be 0 to 255, not {array_bits}", hint="255 makes the smallest file")


def in_order(model: NgramModel) -> NgramModel:
    """The model with the ids of KenLM's hash tables: `<unk>` is 0, and the words follow in their order."""
    return _renumbered(model, np.arange(len(model.words)))


def _renumbered(model: NgramModel, order: NDArray[np.integer]) -> NgramModel:
    """The model with `<unk>` as 0, and then the words in this order; other ids are left out: no text has them."""
    old = np.concatenate([[model.unk], model.ids[order]])
    new = np.full(len(model.levels[0].oldest), -1)
    new[old] = np.arange(len(old))
    levels = [_taken(model.levels[0], old)]
    for k, level in enumerate(model.levels[1:]):
        suffixes = new[level.suffixes] if k == 0 else level.suffixes
        levels.append(dataclasses.replace(level, oldest=new[level.oldest], suffixes=suffixes))
        if (levels[-1].oldest < 0).any() or (k == 0 and (suffixes < 0).any()):
            raise InputError("an n-gram of the model has a word that no text can have", hint="fit the model again")
    words = [model.words[place] for place in order]
    return NgramModel(words, np.arange(1, len(old)), levels, 0, int(new[model.bos]), int(new[model.eos]), model.has_unk)


def _taken(level: Level, places: NDArray[np.integer]) -> Level:
    """Some n-grams of a level, in this order; of unigrams the numbers are their places."""
    above = len(level.suffixes) > 0
    return Level(
        level.oldest[places] if above else np.arange(len(places)),
        level.suffixes[places] if above else level.suffixes,
        level.logprobs[places],
        level.backoffs[places],
        level.extends_left[places],
        level.extends_right[places],
        level.listed,
    )


def _sorted(model: NgramModel) -> NgramModel:
    """The n-grams of each order by suffix and oldest word: the children of an n-gram stand side by side."""
    levels, places = [model.levels[0]], model.levels[0].oldest
    for level in model.levels[1:]:
        moved = dataclasses.replace(level, suffixes=places[level.suffixes])
        order = np.argsort(moved.suffixes.astype(np.int64) << 32 | moved.oldest)
        levels.append(_taken(moved, order))
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
    return dataclasses.replace(model, levels=levels)


def _words(model: NgramModel) -> bytes:
    return b"\0".join([b"<unk>", *model.words, b""])


# Probing hash tables


def _probing_blocks(model: NgramModel, multiplier: float, with_words: bool) -> Iterator[Any]:
    """The blocks of a file; n-grams that longer ones need have no slots of their own, unless there are too many."""
    sizes = [len(model.words) + model.has_unk, *(level.listed for level in model.levels[1:])]
    for k, level in enumerate(model.levels[1:], start=1):
        if len(level.oldest) >= buckets(sizes[k], multiplier):
            sizes[k] = len(level.oldest)
    header = Header(PROBING, len(sizes), multiplier, with_words, tuple(sizes))
    yield header.data
    yield np.array([0, len(model.words) + 1], "<u4")
    yield _slots(buckets(sizes[0], multiplier), hash_words(model.words), [model.ids.astype("<u4")])
    unigrams = np.zeros((sizes[0] + 1, 2), "<f4")
    first = model.levels[0]
    logprobs = np.where(first.extends_left, np.abs(first.logprobs), first.logprobs)  # 0 of <s> has no sign
    unigrams[: len(model.words) + 1] = np.column_stack([logprobs, first.marked_backoffs])
    yield unigrams
    for level, size, keys in zip(model.levels[1:], sizes[1:], keys_of(model.levels)[1:], strict=True):
        yield _slots(buckets(size, multiplier), keys, _values(level)[: 1 if level is model.levels[-1] else 2])
    if with_words:
        yield _words(model)


def _values(level: Level) -> list[NDArray[np.float32]]:
    return [level.marked_logprobs, level.marked_backoffs]


def _slots(count: int, keys: NDArray[np.uint64], values: list[NDArray[Any]]) -> NDArray[Any]:
    """KenLM's hash table: a slot is a key and its values; a key that finds its slot taken goes on to the next."""
    entry = np.dtype([("key", "<u8"), *((f"value{i}", value.dtype) for i, value in enumerate(values))])
    table, places = np.zeros(count, entry), np.empty(len(keys), np.int64)
    insert_in_slots(table.view(np.uint8), count, entry.itemsize, keys, places)
    for i, value in enumerate(values):
        table[f"value{i}"][places] = value
    return table


# Tries


def _trie_blocks(model: NgramModel, bits: tuple[int, int] | None, most: int | None, with_words: bool) -> Iterator[Any]:
    """The blocks of a file."""
    kind = (TRIE, QUANT_TRIE)[bits is not None] if most is None else (ARRAY_TRIE, QUANT_ARRAY_TRIE)[bits is not None]
    header = Header(kind, len(model.levels), 1.5, with_words, tuple(len(level.oldest) for level in model.levels))
    parts = TrieParts(header, bits, most)
    bins = [_bins(level, bits, top=level is model.levels[-1]) for level in model.levels[1:]] if bits else []
    yield header.data
    yield np.array([len(model.words), *hash_words(model.words).tolist(), 0], "<u8")
    if bits:
        yield bytes([2, *bits]).ljust(8, b"\0")
        yield b"".join(values.tobytes() for order in bins for values in order)
    begins = _begins(model, 1)
    unigrams = np.zeros(len(model.words) + 3, UNIGRAM)
    unigrams["logprob"][:-2], unigrams["backoff"][:-2] = model.levels[0].logprobs, model.levels[0].marked_backoffs
    unigrams["next"][:-1] = begins
    yield unigrams
    start = parts.bigrams
    for k, packed in enumerate(parts.orders, start=1):
        yield _packed(model, k, packed, start, most or 0, bins[k - 1] if bits else None)
        start = packed.end
    if with_words:
        yield _words(model)


def _begins(model: NgramModel, order: int) -> NDArray[np.int64]:
    """Where the longer n-grams of each n-gram of an order begin, and where those of the last end."""
    count = len(model.levels[order - 1].oldest)
    return np.searchsorted(model.levels[order].suffixes, np.arange(count + 1))


def _packed(
    model: NgramModel, k: int, packed: PackedOrder, start: int, most: int, bins: list[NDArray[np.float32]] | None
) -> NDArray[np.uint8]:
    """The block of one order: its array of upper bits of pointers where it has one, and its entries."""
    block, level, top = np.zeros(packed.end - start, np.uint8), model.levels[k], k == len(model.levels) - 1
    entries, stride, at = block[packed.start - start :], packed.stride, packed.word_bits
    write_bits(entries, 0, stride, at, level.oldest)
    if bins:
        if not top:
            write_bits(entries, at, stride, _width(bins[1]), _nearest_backoffs(bins[1], level.marked_backoffs))
            at += _width(bins[1])
        write_bits(entries, at, stride, _width(bins[0]), _nearest(bins[0], level.logprobs, 0))
    else:
        write_bits(entries, at, stride, 31, level.logprobs.view(np.uint32))
        if not top:
            write_bits(entries, at + 31, stride, 32, level.marked_backoffs.view(np.uint32))
    if not top:
        begins = _begins(model, k + 1)
        write_bits(entries, stride - packed.next_bits, stride, packed.next_bits, begins)
        if packed.offsets_size:
            _write_offsets(block, start, packed, begins, most)
    return block


def _write_offsets(block: NDArray[np.uint8], start: int, packed: PackedOrder, begins: Any, most: int) -> None:
    """For each value of the upper bits of pointers the first n-gram that has it, or a larger one."""
    block[:2] = 0, most
    offsets = np.searchsorted(begins >> packed.next_bits, np.arange(packed.offsets_size)).astype("<u8")
    at = packed.offsets - start
    block[at : at + offsets.nbytes] = offsets.view(np.uint8)


# Quantisation: bins of equal size, each the mean of the values in it (Federico & Bertoldi 2006)


def _bins(level: Level, bits: tuple[int, int], top: bool) -> list[NDArray[np.float32]]:
    """The bins of log10 p and of backoffs of one order; the first two of backoffs are -0.0 and 0.0, which are flags."""
    probs = _centres(np.sort(level.logprobs), 1 << bits[0])
    if top:
        return [probs]
    listed = level.backoffs[level.backoffs != 0]
    return [probs, np.append(np.array([-0.0, 0.0], np.float32), _centres(np.sort(listed), (1 << bits[1]) - 2))]


@kernel
def _centres(values, bins):  # type: ignore[no-untyped-def]
    """The means of so many equal parts of sorted values; an empty part has that of the one before."""
    centres, start = np.full(bins, -np.inf, np.float32), np.int64(0)
    for i in range(bins):
        end = len(values) * (i + 1) // bins
        total = 0.0
        for k in range(start, end):  # one after the other: the sum of KenLM, to the last bit
            total += values[k]
        if end > start:
            centres[i] = total / (end - start)
        elif i > 0:
            centres[i] = centres[i - 1]
        start = end
    return centres


def _nearest(bins: NDArray[np.float32], values: NDArray[np.float32], first: int) -> NDArray[np.int64]:
    """The number of the bin nearest to each value, the upper one of two that are equally near, from `first` on."""
    above = first + np.searchsorted(bins[first:], values)
    inside = np.clip(above, first + 1, len(bins) - 1)
    with np.errstate(invalid="ignore"):
        closer = values - bins[inside - 1] < bins[inside] - values
    found: NDArray[np.int64] = np.where(
        above == first, first, np.where(above == len(bins), len(bins) - 1, above - closer)
    )
    return found


def _nearest_backoffs(bins: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.int64]:
    """The same for backoffs: -0.0 and 0.0 have bins of their own."""
    return np.where(values == 0, np.where(np.signbit(values), 0, 1), _nearest(bins, values, 2))


def _width(bins: NDArray[np.float32]) -> int:
    return (len(bins) - 1).bit_length()
