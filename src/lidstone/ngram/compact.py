"""A table in fewer bytes: `compact` rounds its values to 32, 16 or 8 bits, and packs its trie.

Values of 8 or 16 bits are codes. Each order has a grid of its own, evenly spaced among the bit patterns of float64:
code 0 is the value 0 and code 1 the value 1; code c > 1 is the float64 with the bits low + (c - 2) * step. Bit patterns
of positive numbers ascend as the numbers do, about as their logarithms, so one step is a relative difference of at most
step * 2^-52, and the nearest code is wrong by at most a factor of 1 + step * 2^-53.

Rows are differences, p(w | h) - backoff(h) p(w | h'), and a difference cannot be rounded to a small relative error. So
codes stand for full probabilities, and rows follow from them where they are needed. With codes wrong by a factor of at
most 1 + e, every p(w | h) of an order-n model, stored or backed off to, is wrong by at most (1 + e)^n, for it is the
product of a stored p and at most n - 1 backoffs; and so is the sum of each distribution, which was one before.

A packed trie has its arrays in as few bits as they need: `pack_trie`, and back by `PackedLinks.decode`. `access.py`
reads codes and packed numbers where they stand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.jit import kernel
from lidstone.ngram.access import PackedFirst, PackedSuffixes, PackedWords, Quantised, Words64, read_all, suffix_of
from lidstone.ngram.query import rows_of
from lidstone.ngram.trie import Trie

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary

CODE_TYPES = {8: np.uint8, 16: np.uint16}
FINITE = int(np.array(np.finfo(np.float64).max).view(np.int64))
"""The bits of the largest float64."""


def quantise(values: NDArray[np.floating], levels: NDArray[np.int64], bits: int) -> Quantised:
    """Codes of values[levels[0]:levels[-1]], none of which may be negative.

    >>> coded = quantise(np.array([9.0, 0.5, 0.125, 1.0, 0.0]), np.array([1, 5]), 16)
    >>> decode(coded).round(6).tolist(), coded.codes.tolist()
    ([0.5, 0.125, 1.0, 0.0], [65535, 2, 1, 0])
    """
    codes, scales = [np.empty(0, CODE_TYPES[bits])], []
    for start, stop in pairwise(levels.tolist()):
        own = np.asarray(values[start:stop], np.float64)
        patterns = own.view(np.int64)
        coded = (own > 0) & (own != 1)
        low, most = (int(patterns[coded].min()), int(patterns[coded].max())) if coded.any() else (0, 0)
        step = -((low - most) // ((1 << bits) - 3))
        nearest = 2 + (patterns - low + step // 2) // max(step, 1)
        codes.append(np.where(coded, nearest, own == 1).astype(CODE_TYPES[bits]))
        scales += [low, step]
    return Quantised(np.concatenate(codes), np.array(scales, np.int64), np.asarray(levels, np.int64))


def decode(coded: Quantised) -> NDArray[np.float64]:
    """The values of all codes."""
    values = np.empty(len(coded.codes))
    read_all(coded, coded.levels[0], values)
    return values


def relative_error(coded: Quantised) -> float:
    """By how much a value may be wrong: a factor of at most one plus this."""
    return float(coded.scales[1::2].max(initial=0)) * 2.0**-53


def scales_are_sound(scales: NDArray[np.int64], bits: int) -> bool:
    """Whether every code stands for a finite number that is not negative."""
    pairs = [(int(low), int(step)) for low, step in scales.reshape(-1, 2)]
    return all(low >= 0 and step >= 0 and low + ((1 << bits) - 3) * step <= FINITE for low, step in pairs)


@dataclass(frozen=True, eq=False)
class Codes:
    """Quantised probabilities and backoffs."""

    probs: Quantised
    """of all n-grams but unigrams, whose probabilities are the table's `base`"""
    backoffs: Quantised

    @property
    def bits(self) -> int:
        """How many bits a value has."""
        return 8 * self.probs.codes.itemsize

    @property
    def error(self) -> float:
        """By how much a stored value may be wrong: a factor of at most one plus this."""
        return max(relative_error(self.probs), relative_error(self.backoffs))

    def ngram_probs(self, base: NDArray[np.float64]) -> NDArray[np.float64]:
        """p(w | h) of every node, as `BackoffTable.ngram_probs`."""
        return np.concatenate([base, [0.0], decode(self.probs)])

    def decode(self, table: BackoffTable, name: str) -> NDArray[np.float64]:
        """The plain array of a table: "rows" or "backoffs"."""
        if name == "backoffs":
            return decode(self.backoffs)
        return rows_of(table.trie, table.ngram_probs, table.backoffs)


def quantise_table(table: BackoffTable, bits: int) -> BackoffTable:
    """The table with values of so many bits."""
    if bits not in CODE_TYPES:
        raise InputError(f"values cannot have {bits} bits", hint="choose 8, 16, 32 (float32) or 64 (as they are)")
    levels = table.trie.levels
    backoffs = np.maximum(table.backoffs, 0)  # rounding may leave a tiny negative number
    codes = Codes(quantise(table.ngram_probs, levels[1:], bits), quantise(backoffs, levels[:-1], bits))
    return coded_table(table.vocab, table.base, table.trie, codes, {**table.signature, "precision": f"{bits} bits"})


def coded_table(
    vocab: Vocabulary, base: NDArray[np.float64], trie: Trie, codes: Codes, signature: dict[str, Any]
) -> BackoffTable:
    """A table that has only codes."""
    from lidstone.ngram.table import BackoffTable

    coded = object.__new__(BackoffTable)
    coded.__dict__.update(vocab=vocab, trie=trie, base=base, signature=signature, codes=codes)
    return coded


def code_parts(codes: Codes) -> dict[str, NDArray[Any]]:
    """The arrays of codes by the names in files."""
    probs, backoffs = codes.probs, codes.backoffs
    parts = {"prob_codes": probs.codes, "prob_scales": probs.scales}
    return {**parts, "backoff_codes": backoffs.codes, "backoff_scales": backoffs.scales}


def read_codes(levels: NDArray[np.int64], arrays: dict[str, NDArray[Any]]) -> Codes:
    """The codes of such arrays; refuse sizes that do not fit, and scales with values that are no numbers."""
    parts = []
    for name, own in (("prob", levels[1:]), ("backoff", levels[:-1])):
        codes, scales = arrays[f"{name}_codes"], arrays[f"{name}_scales"]
        if len(codes) != own[-1] - own[0] or len(scales) != 2 * (len(own) - 1):
            raise InputError(f"'{name}_codes' has {len(codes)} values, not {own[-1] - own[0]}")
        if codes.dtype != arrays["prob_codes"].dtype:
            raise InputError(f"'{name}_codes' is {codes.dtype}, unlike 'prob_codes'")
        if not scales_are_sound(scales, 8 * codes.itemsize):
            raise InputError(f"'{name}_scales' holds a value that is not a finite number")
        parts.append(Quantised(codes, scales, own))
    return Codes(*parts)


def compact(table: BackoffTable, bits: int, pack: bool) -> BackoffTable:
    """Round the values to so many bits and, with `pack`, pack the trie; see `BackoffTable.compact`."""
    if bits == 64:
        small = table
    else:
        small = _single(table) if bits == 32 else quantise_table(table, bits)
    return _packed(small) if pack else small


def _single(table: BackoffTable) -> BackoffTable:
    rows, backoffs = table.rows.astype(np.float32), table.backoffs.astype(np.float32)
    values: Any = {"rows": rows, "backoffs": backoffs, "signature": {**table.signature, "precision": "float32"}}
    return replace(table, **values)


def _packed(table: BackoffTable) -> BackoffTable:
    trie = pack_trie(table.trie)
    if table.codes is None:
        return replace(table, trie=trie)
    return coded_table(table.vocab, table.base, trie, table.codes, table.signature)


def width_of(largest: int) -> int:
    """How many bits hold numbers up to `largest`; at least one.

    >>> width_of(0), width_of(7), width_of(8)
    (1, 3, 4)
    """
    return max(int(largest).bit_length(), 1)


def words_for(count: int, width: int) -> int:
    """How many 64-bit words hold so many numbers; one more, so that two neighbours can always be read."""
    return (count * width + 63) // 64 + 1


def pack(values: NDArray[np.integer], width: int) -> Words64:
    """The lowest `width` bits of each value.

    >>> pack(np.array([1, 2, 3]), 4).tolist()
    [801, 0]
    """
    data = np.zeros(words_for(len(values), width), np.uint64)
    _pack(values, width, data)
    return data


def pack_ascending(values: NDArray[np.integer]) -> PackedFirst:
    """Ascending numbers, with the width of the low part that needs the least space."""
    largest, count = int(values[-1]), len(values)
    costs = {width: count * width + ((largest >> width) + 1) * 64 for width in range(1, width_of(largest) + 1)}
    width = min(costs, key=costs.__getitem__)
    high: Any = np.searchsorted(values, np.arange((largest >> width) + 1) << width).astype(np.int64)
    return PackedFirst(pack(values, width), width, high, count)


@kernel
def _pack(values, width, data):  # type: ignore[no-untyped-def]
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(len(values)):
        bit = np.uint64(i) * np.uint64(width)
        word, shift = bit >> np.uint64(6), bit & np.uint64(63)
        value = np.uint64(values[i]) & mask
        data[word] |= value << shift
        data[word + np.uint64(1)] |= (value >> np.uint64(1)) >> (np.uint64(63) - shift)


@dataclass(frozen=True, eq=False)
class PackedLinks:
    """Words, suffixes and offsets of children of a trie."""

    levels: NDArray[np.int64]
    first: PackedFirst
    words: PackedWords
    suffixes: PackedSuffixes

    @property
    def links(self) -> tuple[PackedFirst, PackedWords, PackedSuffixes]:
        """In the order in which compiled code takes them."""
        return self.first, self.words, self.suffixes

    @property
    def node_type(self) -> np.dtype[Any]:
        """The type of a node's number in plain arrays."""
        return np.dtype(np.int32 if self.levels[-1] <= np.iinfo(np.int32).max else np.int64)

    def decode(self, name: str) -> NDArray[Any]:
        """One of the plain arrays: "words", "suffixes" or "first"."""
        if name == "suffixes":
            suffixes = np.full(self.levels[-1], -1, self.node_type)
            _fill_suffixes(self.decode("first"), self.decode("words"), self.suffixes, suffixes)
            return suffixes
        array, size = (self.first, self.first.size) if name == "first" else (self.words, self.levels[-1])
        plain: NDArray[Any] = np.empty(size, self.node_type if name == "first" else np.int32)
        read_all(array, 0, plain)
        return plain


def pack_trie(trie: Trie) -> Trie:
    """The same n-grams, packed.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> trie = pack_trie(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2).trie)
    >>> trie.find([1, 2]), trie.packed.words.width, trie.words.tolist()
    (5, 2, [0, 1, 2, 3, 0, 2, 0, 1])
    """
    if trie.packed is not None:
        return trie
    unigrams, num_histories = int(trie.levels[1]), trie.num_histories
    below = trie.suffixes[unigrams:num_histories]
    width = width_of(int(below.max(initial=0)))
    words = trie.words[unigrams:]
    word_width = width_of(int(words.max(initial=0)))
    return packed_trie(
        PackedLinks(
            trie.levels,
            pack_ascending(trie.first),
            PackedWords(pack(words, word_width), word_width, unigrams),
            PackedSuffixes(pack(below, width), width, unigrams, num_histories),
        )
    )


def packed_trie(links: PackedLinks) -> Trie:
    """A trie that has only the packed arrays."""
    trie = object.__new__(Trie)
    trie.__dict__.update(levels=links.levels, packed=links)
    return trie


def trie_parts(links: PackedLinks) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
    """The arrays of a packed trie by the names in files, and their widths."""
    first, words, suffixes = links.links
    arrays = {"packed_first": first.data, "first_high": first.high}
    arrays |= {"packed_words": words.data, "packed_suffixes": suffixes.data}
    return arrays, {"first": first.width, "words": words.width, "suffixes": suffixes.width}


def read_trie(levels: NDArray[np.int64], arrays: dict[str, NDArray[Any]], widths: dict[str, Any]) -> Trie:
    """The trie of such arrays; refuse sizes with which a look-up could leave them."""
    if len(levels) < 2 or levels[0] != 0 or (np.diff(levels) < 0).any() or levels[-1] > 1 << 48:
        raise InputError("its levels are not ascending")
    unigrams, size, num_histories = int(levels[1]), int(levels[-1]), int(levels[-2])
    counts = {"first": num_histories + 1, "words": size - unigrams, "suffixes": max(num_histories - unigrams, 0)}
    for name, count in counts.items():
        width, data = widths[name], arrays[f"packed_{name}"]
        if type(width) is not int or not 1 <= width <= 48 or len(data) != words_for(count, width):
            raise InputError(f"'packed_{name}' has {len(data)} words, not those of {count} numbers of {width} bits")
    high = arrays["first_high"]
    if not len(high) or high[0] != 0:
        raise InputError("'first_high' does not begin with 0")
    return packed_trie(
        PackedLinks(
            levels,
            PackedFirst(arrays["packed_first"], widths["first"], high, num_histories + 1),
            PackedWords(arrays["packed_words"], widths["words"], unigrams),
            PackedSuffixes(arrays["packed_suffixes"], widths["suffixes"], unigrams, num_histories),
        )
    )


@kernel
def _fill_suffixes(first, words, packed, suffixes):  # type: ignore[no-untyped-def]
    """Those of histories as stored, those of the highest order by search; -1 where one is missing."""
    for history in range(len(first) - 1):
        for node in range(first[history], first[history + 1]):
            suffixes[node] = suffix_of(first, words, packed, history, node)
