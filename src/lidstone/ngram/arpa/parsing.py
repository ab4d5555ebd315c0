"""The compiled inner loop of `lines.py`: lines of n-grams in, arrays out.

Words are looked up in an open-addressing table over the bytes of all unigrams. Numbers are read to within one unit in
the last place, far finer than the seven digits of ARPA files.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

DONE, MARKER, FAULT = 0, 1, 2
"""Why `parse` stopped: the text ended; a line begins with a backslash; a line cannot be read."""

MOST_BACKOFF = 99.0
"""log10 of the largest backoff: the opposite of -99, which files use for zero"""

_TENS = 10.0 ** np.arange(23)
_EMPTY = -1


class Words(NamedTuple):
    """The words by their bytes."""

    text: NDArray[np.uint8]
    """all words one after the other"""
    ends: NDArray[np.int64]
    """word i is text[ends[i]:ends[i+1]]"""
    slots: NDArray[np.int32]
    """the hash table: numbers of words"""


def index_words(words: list[bytes]) -> Words:
    """A table of distinct words, numbered in their order."""
    text = np.frombuffer(b"".join(words) + b"\n", np.uint8).copy()
    ends = np.concatenate([[0], np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))])
    slots = np.full(1 << (2 * len(words) + 16).bit_length(), _EMPTY, np.int32)
    table = Words(text, ends, slots)
    _fill(*table)
    return table


@njit(cache=True, nogil=True)
def parse(text, position, order, with_backoff, words, ends, slots, ngrams, logprobs, backoffs, lines):  # type: ignore[no-untyped-def]
    """Read lines from `position` on; `lines` gets the number of each n-gram's line within this call.

    Gives why it stopped, where the line begins at which it did, the number of that line, and how many n-grams it read.
    """
    line = filled = 0
    while position < len(text):
        begin = position
        position = _skip(text, position)
        if text[position] == 92:
            return MARKER, begin, line, filled
        if text[position] != 10:
            logprobs[filled], position = _number(text, position)
            for i in range(order):
                position = _skip(text, position)
                ngrams[filled, i], position = _find(text, position, words, ends, slots)
                if ngrams[filled, i] < 0:
                    return FAULT, begin, line, filled
            position = _skip(text, position)
            backoffs[filled] = 0.0
            if with_backoff and text[position] != 10:
                backoffs[filled], position = _number(text, position)
                position = _skip(text, position)
            good = logprobs[filled] <= 0.0 and backoffs[filled] <= MOST_BACKOFF  # and so not NaN: bad numbers give it
            if not good or text[position] != 10:
                return FAULT, begin, line, filled
            lines[filled] = line
            filled += 1
        position += 1
        line += 1
    return DONE, position, line, filled


@njit(cache=True, nogil=True)
def _skip(text, position):  # type: ignore[no-untyped-def]
    """Past spaces, tabs and carriage returns."""
    while text[position] == 32 or text[position] == 9 or text[position] == 13:
        position += 1
    return position


@njit(cache=True, nogil=True)
def _number(text, position):  # type: ignore[no-untyped-def]
    """A decimal number or an infinity, and where it ends; NaN for anything else."""
    negative = text[position] == 45
    position += negative or text[position] == 43
    if text[position] == 105 or text[position] == 73:  # inf
        end = _word_end(text, position)
        good = end - position == 3 and text[position + 1] | 32 == 110 and text[position + 2] | 32 == 102
        return (-np.inf if negative else np.inf) if good else np.nan, end
    mantissa, digits, scale = np.uint64(0), 0, 0
    point = False
    while 48 <= text[position] <= 57 or (text[position] == 46 and not point):
        if text[position] == 46:
            point = True
        else:
            digits += 1
            if mantissa < np.uint64(10**17):
                mantissa = mantissa * np.uint64(10) + np.uint64(text[position] - 48)
                scale -= point
            else:
                scale += not point
        position += 1
    exponent, position = _exponent(text, position)
    value = _scaled(np.float64(mantissa), scale + exponent)
    good = digits > 0 and text[position] <= 32
    return (-value if negative else value) if good else np.nan, position


@njit(cache=True, nogil=True)
def _exponent(text, position):  # type: ignore[no-untyped-def]
    if text[position] != 101 and text[position] != 69:
        return 0, position
    letter = position
    position += 1
    negative = text[position] == 45
    position += negative or text[position] == 43
    exponent, digits = 0, position
    while 48 <= text[position] <= 57:
        exponent = min(exponent * 10 + int(text[position]) - 48, 9999)
        position += 1
    return (-exponent if negative else exponent), position if position > digits else letter


@njit(cache=True, nogil=True)
def _scaled(value, exponent):  # type: ignore[no-untyped-def]
    """The value times 10^exponent, exactly rounded where both fit a float64."""
    if exponent < -22 or exponent > 22:
        return value * 10.0**exponent
    return value / _TENS[-exponent] if exponent < 0 else value * _TENS[exponent]


@njit(cache=True, nogil=True)
def _word_end(text, position):  # type: ignore[no-untyped-def]
    while text[position] != 32 and text[position] != 9 and text[position] != 10 and text[position] != 13:
        position += 1
    return position


@njit(cache=True, nogil=True)
def _find(text, begin, words, ends, slots):  # type: ignore[no-untyped-def]
    """The number of the word that begins here, or -1, and where it ends."""
    end = _word_end(text, begin)
    slot = _hash(text, begin, end) & (len(slots) - 1)
    while slots[slot] != _EMPTY:
        word = slots[slot]
        if _same(text, begin, end, words, ends[word], ends[word + 1]):
            return word, end
        slot = (slot + 1) & (len(slots) - 1)
    return np.int32(-1), end


@njit(cache=True, nogil=True)
def _hash(text, begin, end):  # type: ignore[no-untyped-def]
    key = np.uint64(0xCBF29CE484222325)
    for i in range(begin, end):
        key = (key ^ np.uint64(text[i])) * np.uint64(0x100000001B3)
    return np.int64((key ^ (key >> np.uint64(32))) & np.uint64(0x7FFFFFFF))


@njit(cache=True, nogil=True)
def _same(text, begin, end, words, start, stop):  # type: ignore[no-untyped-def]
    same = end - begin == stop - start
    i = 0
    while same and i < end - begin:
        same = text[begin + i] == words[start + i]
        i += 1
    return same


@njit(cache=True, nogil=True)
def _fill(text, ends, slots):  # type: ignore[no-untyped-def]
    for word in range(len(ends) - 1):
        slot = _hash(text, ends[word], ends[word + 1]) & (len(slots) - 1)
        while slots[slot] != _EMPTY:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = word
