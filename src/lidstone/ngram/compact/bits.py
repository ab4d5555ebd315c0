"""Integers in as few bits as the largest needs, one after the other in 64-bit words.

    PackedWords      the last word of each n-gram; unigrams are their own words and take no space
    PackedSuffixes   the n-gram without its oldest word, of every n-gram that can be a history
    PackedFirst      ascending numbers: low bits in place; for each value of the high bits, where it begins

Suffixes of the highest order are not stored: each is the child of its history's suffix that has the same word.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Words64 = NDArray[np.uint64]


class PackedWords(NamedTuple):
    """One word per node, without unigrams."""

    data: Words64
    width: int
    unigrams: int


class PackedSuffixes(NamedTuple):
    """One node per history, without unigrams, whose suffix is -1."""

    data: Words64
    width: int
    unigrams: int
    inner: int
    """how many nodes can be histories"""


class PackedFirst(NamedTuple):
    """Ascending numbers, as many as histories and one more."""

    data: Words64
    """the lowest `width` bits of each"""
    width: int
    high: NDArray[np.int64]
    """high[j]: the first number that is at least j << width; high[0] is 0"""
    size: int


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


def unpack(data: Words64, width: int, count: int, dtype: type = np.int64) -> NDArray:
    """The first `count` values.

    >>> unpack(pack(np.array([5, 0, 7]), 3), 3, 3).tolist()
    [5, 0, 7]
    """
    values: NDArray = np.empty(count, dtype)
    _unpack(data, width, values)
    return values


def pack_ascending(values: NDArray[np.integer]) -> PackedFirst:
    """Ascending numbers, with the width of the low part that needs the least space."""
    largest, count = int(values[-1]), len(values)
    costs = {width: count * width + ((largest >> width) + 1) * 64 for width in range(1, width_of(largest) + 1)}
    width = min(costs, key=costs.__getitem__)
    high: Any = np.searchsorted(values, np.arange((largest >> width) + 1) << width).astype(np.int64)
    return PackedFirst(pack(values, width), width, high, count)


def unpack_ascending(packed: PackedFirst, dtype: type = np.int64) -> NDArray:
    """The numbers that `pack_ascending` was given.

    >>> unpack_ascending(pack_ascending(np.array([4, 4, 9, 200]))).tolist()
    [4, 4, 9, 200]
    """
    low = unpack(packed.data, packed.width, packed.size)
    high: Any = np.searchsorted(packed.high, np.arange(packed.size), "right") - 1
    values: NDArray = (high << packed.width | low).astype(dtype)
    return values


@njit(cache=True, nogil=True)
def bits_at(data, width, i):  # type: ignore[no-untyped-def]
    """Number i of a packed array."""
    bit = np.uint64(i) * np.uint64(width)
    word, shift = bit >> np.uint64(6), bit & np.uint64(63)
    above = (data[word + np.uint64(1)] << np.uint64(1)) << (np.uint64(63) - shift)
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    return np.int64((data[word] >> shift | above) & mask)


@njit(cache=True, nogil=True)
def ascending_at(data, width, high, i):  # type: ignore[no-untyped-def]
    """Number i of an ascending array: a binary search finds its high bits."""
    low, end = 0, len(high)
    while low < end:  # how many of `high` are at most i
        middle = (low + end) >> 1
        if high[middle] <= i:
            low = middle + 1
        else:
            end = middle
    return np.int64(low - 1) << np.int64(width) | bits_at(data, width, i)


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
