"""Words of a text by their hash, as KenLM knows them: MurmurHash64A of the bytes, seed 0.

A word is what stands between spaces (space, tab, line feed, vertical tab, form feed, carriage return: what
`bytes.split` takes). Texts are given by address and must end with eight spaces: eight bytes are read at a time.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.cpython.unsafe.numbers import trailing_zeros
from numpy.typing import NDArray

from lidstone.ngram.kenlm.compiled.memory import address_of, load_u8, load_u64

PADDING = b" " * 8

_HIGH = np.uint64(0x8080808080808080)
_BELOW_33 = np.uint64(0x2121212121212121)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_MULTIPLY = np.uint64(0xC6A4A7935BD1E995)
_SHIFT = np.uint64(47)


@njit(cache=True, nogil=True, inline="always")
def is_space(byte):  # type: ignore[no-untyped-def]
    """Whether the byte separates words."""
    return byte == 32 or (9 <= byte <= 13)


@njit(cache=True, nogil=True)
def word_end(text, position):  # type: ignore[no-untyped-def]
    """The first space from `position` on; eight bytes at a time look for any below 33."""
    while True:
        block = load_u64(text + position)
        low = (block - _BELOW_33) & ~block & _HIGH
        if low == 0:
            position += 8
            continue
        position += np.int64(trailing_zeros(low) >> 3)
        if is_space(load_u8(text + position)):
            return position
        position += 1  # another control character, part of the word


@njit(cache=True, nogil=True)
def word_hash(text, begin, end):  # type: ignore[no-untyped-def]
    """MurmurHash64A of text[begin:end]."""
    size = end - begin
    result = np.uint64(size) * _MULTIPLY
    while size >= 8:
        block = load_u64(text + begin) * _MULTIPLY
        block = (block ^ (block >> _SHIFT)) * _MULTIPLY
        result = (result ^ block) * _MULTIPLY
        begin += 8
        size -= 8
    if size > 0:
        rest = load_u64(text + begin) & ~(_ALL << np.uint64(8 * size))
        result = (result ^ rest) * _MULTIPLY
    result = (result ^ (result >> _SHIFT)) * _MULTIPLY
    return result ^ (result >> _SHIFT)


def hash_words(words: list[bytes]) -> NDArray[np.uint64]:
    """The hash of each word.

    >>> [f"{key:x}" for key in hash_words([b"a", b"antidisestablishmentarianism"])]
    ['71717d2d36b6b11', 'e09c74a3929e57c1']
    """
    ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
    return _hash_all(b"".join(words) + PADDING, ends)


@njit(cache=True, nogil=True)
def _hash_all(text, ends):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(ends), np.uint64)
    begin, address = np.int64(0), address_of(text)
    for i in range(len(ends)):
        hashes[i] = word_hash(address, begin, ends[i])
        begin = ends[i]
    return hashes
