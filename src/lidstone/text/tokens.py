"""Tokens of a text as byte ranges, and their hashes: the compiled scanner of counting and of scoring.

A token is a word, or the end of a line. Words stand between blanks: space, tab, line feed and carriage return, as for
KenLM's lmplz, where text is counted or scored by a table; with `wide` blanks also vertical tab and form feed, what
`bytes.split` takes, where KenLM's other programs score lines. Other Unicode spaces belong to words.

Texts are given by address and must end with eight blanks (`PADDING`): eight bytes are read at a time. For little-endian
machines, as are all that numba supports.
"""

from __future__ import annotations

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros
from numpy.typing import NDArray

from lidstone.jit import helper, inlined, kernel
from lidstone.text.memory import address_of, load_u8, load_u64

PADDING = b" " * 8
PADDED, WIDE_BLANKS, PLAIN_BLANKS = np.bool_(True), np.bool_(True), np.bool_(False)
LINE_FEED, NONE = np.int64(10), np.int64(256)
"""What separates lines; NONE: the whole text is one."""

_HIGH = np.uint64(0x8080808080808080)
_BELOW_33 = np.uint64(0x2121212121212121)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_MULTIPLY = np.uint64(0xC6A4A7935BD1E995)
_SHIFT = np.uint64(47)


@inlined
def next_token(text, position, size, separator, wide):  # type: ignore[no-untyped-def]
    """The next token from `position` on as (begin, end). At the end of the text begin is `size`; a byte `separator`
    is a token of its own, the end of a line.
    """
    while position < size:
        byte = load_u8(text + position)
        if byte == separator:
            return position, position + 1
        if not is_blank(byte, wide):
            return position, word_end(text, position, wide)
        position += 1
    return position, position


@inlined
def is_blank(byte, wide):  # type: ignore[no-untyped-def]
    """Whether the byte separates words."""
    return byte == 32 or byte == 9 or byte == 10 or byte == 13 or (wide and (byte == 11 or byte == 12))


@inlined
def word_end(text, position, wide):  # type: ignore[no-untyped-def]
    """The first blank from `position` on; eight bytes at a time look for any below 33."""
    while True:
        block = load_u64(text + position)
        low = (block - _BELOW_33) & ~block & _HIGH
        if low == 0:
            position += 8
            continue
        position += np.int64(trailing_zeros(low) >> 3)
        if is_blank(load_u8(text + position), wide):
            return position
        position += 1  # another control character, part of the word


@inlined
def first_bytes(address, size):  # type: ignore[no-untyped-def]
    """The next `size` bytes, at most 8, as one number, padded with zeros."""
    block = load_u64(address)
    return block if size >= 8 else block & ~(_ALL << np.uint64(8 * size))


@inlined
def last_bytes(address, size):  # type: ignore[no-untyped-def]
    """`first_bytes` that does not touch what follows them."""
    block = np.uint64(0)
    for i in range(size):
        block |= np.uint64(load_u8(address + i)) << np.uint64(8 * i)
    return block


@helper
def word_hash(text, begin, end, padded):  # type: ignore[no-untyped-def]
    """MurmurHash64A of text[begin:end], seed 0: how KenLM knows a word. Whether eight bytes more may be read."""
    size = end - begin
    result = np.uint64(size) * _MULTIPLY
    while size >= 8:
        block = load_u64(text + begin) * _MULTIPLY
        block = (block ^ (block >> _SHIFT)) * _MULTIPLY
        result = (result ^ block) * _MULTIPLY
        begin += 8
        size -= 8
    if size > 0:
        rest = first_bytes(text + begin, size) if padded else last_bytes(text + begin, size)
        result = (result ^ rest) * _MULTIPLY
    result = (result ^ (result >> _SHIFT)) * _MULTIPLY
    return result ^ (result >> _SHIFT)


def hash_words(words: list[bytes]) -> NDArray[np.uint64]:
    """The hash of each word.

    >>> [f"{key:x}" for key in hash_words([b"a", b"antidisestablishmentarianism"])]
    ['71717d2d36b6b11', 'e09c74a3929e57c1']
    """
    ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
    hashes = np.empty(len(ends), np.uint64)
    _hash_all(b"".join(words) + PADDING, ends, hashes)
    return hashes


@kernel
def _hash_all(text, ends, hashes):  # type: ignore[no-untyped-def]
    begin, address = np.int64(0), address_of(text)
    for i in range(len(ends)):
        hashes[i] = word_hash(address, begin, ends[i], PADDED)
        begin = ends[i]
