"""The arrays of a trie in as few bits as they need: `pack_trie`, and back by `PackedLinks.decode`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.access import PackedFirst, PackedSuffixes, PackedWords, Words64, bits_at, find_child

if TYPE_CHECKING:
    from lidstone.ngram.trie import Trie


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


def unpack(data: Words64, width: int, count: int, dtype: type = np.int64) -> NDArray[Any]:
    """The first `count` values.

    >>> unpack(pack(np.array([5, 0, 7]), 3), 3, 3).tolist()
    [5, 0, 7]
    """
    values: NDArray[Any] = np.empty(count, dtype)
    _unpack(data, width, values)
    return values


def pack_ascending(values: NDArray[np.integer]) -> PackedFirst:
    """Ascending numbers, with the width of the low part that needs the least space."""
    largest, count = int(values[-1]), len(values)
    costs = {width: count * width + ((largest >> width) + 1) * 64 for width in range(1, width_of(largest) + 1)}
    width = min(costs, key=costs.__getitem__)
    high: Any = np.searchsorted(values, np.arange((largest >> width) + 1) << width).astype(np.int64)
    return PackedFirst(pack(values, width), width, high, count)


def unpack_ascending(packed: PackedFirst, dtype: type = np.int64) -> NDArray[Any]:
    """The numbers that `pack_ascending` was given.

    >>> unpack_ascending(pack_ascending(np.array([4, 4, 9, 200]))).tolist()
    [4, 4, 9, 200]
    """
    low = unpack(packed.data, packed.width, packed.size)
    high: Any = np.searchsorted(packed.high, np.arange(packed.size), "right") - 1
    values: NDArray[Any] = (high << packed.width | low).astype(dtype)
    return values


@njit(cache=True, nogil=True)
def _pack(values, width, data):  # type: ignore[no-untyped-def]
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(len(values)):
        bit = np.uint64(i) * np.uint64(width)
        word, shift = bit >> np.uint64(6), bit & np.uint64(63)
        value = np.uint64(values[i]) & mask
        data[word] |= value << shift
        data[word + np.uint64(1)] |= (value >> np.uint64(1)) >> (np.uint64(63) - shift)


@njit(cache=True, nogil=True)
def _unpack(data, width, values):  # type: ignore[no-untyped-def]
    for i in range(len(values)):
        values[i] = bits_at(data, width, i)


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
        if name == "first":
            return unpack_ascending(self.first, self.node_type.type)
        unigrams, size = int(self.levels[1]), int(self.levels[-1])
        words = np.empty(size, np.int32)
        words[:unigrams] = np.arange(unigrams)
        words[unigrams:] = unpack(self.words.data, self.words.width, size - unigrams, np.int32)
        return words if name == "words" else self._suffixes(words)

    def _suffixes(self, words: NDArray[np.int32]) -> NDArray[Any]:
        """Those of histories as stored, those of the highest order by search."""
        unigrams, inner = int(self.levels[1]), int(self.levels[-2])
        suffixes = np.full(len(words), -1, self.node_type)
        if inner >= unigrams:
            stored = unpack(self.suffixes.data, self.suffixes.width, inner - unigrams, self.node_type.type)
            suffixes[unigrams:inner] = stored
            _find_suffixes(unpack_ascending(self.first), words, suffixes, int(self.levels[-3]), inner)
        return suffixes


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
    unigrams, inner = int(trie.levels[1]), trie.num_histories
    below = trie.suffixes[unigrams:inner]
    width = width_of(int(below.max(initial=0)))
    words = trie.words[unigrams:]
    word_width = width_of(int(words.max(initial=0)))
    return packed_trie(
        PackedLinks(
            trie.levels,
            pack_ascending(trie.first),
            PackedWords(pack(words, word_width), word_width, unigrams),
            PackedSuffixes(pack(below, width), width, unigrams, inner),
        )
    )


def packed_trie(links: PackedLinks) -> Trie:
    """A trie that has only the packed arrays."""
    from lidstone.ngram.trie import Trie

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
    unigrams, size, inner = int(levels[1]), int(levels[-1]), int(levels[-2])
    counts = {"first": inner + 1, "words": size - unigrams, "suffixes": max(inner - unigrams, 0)}
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
            PackedFirst(arrays["packed_first"], widths["first"], high, inner + 1),
            PackedWords(arrays["packed_words"], widths["words"], unigrams),
            PackedSuffixes(arrays["packed_suffixes"], widths["suffixes"], unigrams, inner),
        )
    )


@njit(cache=True, nogil=True)
def _find_suffixes(first, words, suffixes, start, stop):  # type: ignore[no-untyped-def]
    """Fill in the suffixes of all nodes that follow the histories start:stop; -1 where one is missing."""
    for history in range(start, stop):
        shorter = np.int64(suffixes[history])
        for node in range(first[history], first[history + 1]):
            suffixes[node] = words[node] if shorter < 0 else find_child(first, words, shorter, words[node])
