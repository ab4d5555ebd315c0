"""How compiled code reads a table, whatever its arrays are: plain, packed or quantised.

Each function here is compiled for the types that it is given, so a plain array costs what it did without them.

    at(array, i)              number i of an array, plain, packed or quantised
    size_of(array)            how many there are
    suffix_of(..., node)      the node without its oldest word, given the history that the node follows
    link_of(..., node)        the same, given the children of the shorter history
    with_row(rows, ...)       what a row makes of the probability of the order below
    row_of(rows, ...)         the row of a node
    read_all(array, ...)      a stretch of an array as plain numbers
    full_prob(values, ...)    p(w | h) of a node hw

Packed integers stand one after the other in 64-bit words, in as few bits as the largest needs; quantised
values are codes of 8 or 16 bits. `compact.py` makes both. Suffixes of the highest order are not stored: each is the
child of its history's suffix that has the same word.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from lidstone.jit import helper, kernel
from lidstone.text.memory import load_i64, scratch, store_i64

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
    num_histories: int
    """how many nodes can be histories"""


class PackedFirst(NamedTuple):
    """Ascending numbers, as many as histories and one more."""

    data: Words64
    """the lowest `width` bits of each"""
    width: int
    high: NDArray[np.int64]
    """high[j]: the first number that is at least j << width; high[0] is 0"""
    size: int


class Quantised(NamedTuple):
    """Values of consecutive nodes, a code each."""

    codes: NDArray[np.unsignedinteger]
    scales: NDArray[np.int64]
    """low and step of each order"""
    levels: NDArray[np.int64]
    """codes of the k-th order of these are levels[k]:levels[k+1], counted from the first node of all"""


class Values(NamedTuple):
    """What full probabilities are computed from where they are not stored: rows, or codes of p(w | h) itself."""

    rows: Any
    base: NDArray[np.float64]


def at(array: Any, i: Any) -> Any:
    """Number i of an array, in compiled code."""
    raise NotImplementedError


def size_of(array: Any) -> Any:
    """How many numbers an array has, in compiled code."""
    raise NotImplementedError


def suffix_of(first: Any, words: Any, suffixes: Any, history: Any, node: Any) -> Any:
    """The node without its oldest word, in compiled code."""
    raise NotImplementedError


def link_of(words: Any, suffixes: Any, shorter: Any, low: Any, high: Any, node: Any) -> Any:
    """`suffix_of` for a walk over siblings: low..high are the children of the history's suffix `shorter`."""
    raise NotImplementedError


def with_row(rows: Any, node: Any, weight: Any, lower: Any) -> Any:
    """p(w | h) of the node hw times a weight, not cut off at 0, in compiled code; `lower` is the order below's part."""
    raise NotImplementedError


def row_of(rows: Any, base: Any, first: Any, words: Any, suffixes: Any, backoffs: Any, history: Any, node: Any) -> Any:
    """p(w | h) - backoff(h) p(w | h without its oldest word), in compiled code."""
    raise NotImplementedError


def full_prob(values: Any, first: Any, words: Any, suffixes: Any, backoffs: Any, history: Any, node: Any) -> Any:
    """p(w | h) of the node hw, in compiled code."""
    raise NotImplementedError


def _is(kind: Any, named: type) -> bool:
    return isinstance(kind, types.BaseNamedTuple) and kind.instance_class is named


@overload(at, strict=False)
def _at(array: Any, i: Any) -> Any:
    if isinstance(array, types.Array):
        return lambda array, i: array[i]
    if _is(array, PackedWords):
        return lambda array, i: (
            np.int64(i) if i < array.unigrams else bits_at(array.data, array.width, i - array.unigrams)
        )
    if _is(array, PackedSuffixes):
        return lambda array, i: (
            np.int64(-1) if i < array.unigrams else bits_at(array.data, array.width, i - array.unigrams)
        )
    if _is(array, PackedFirst):
        return lambda array, i: ascending_at(array.data, array.width, array.high, i)
    return _quantised_at if _is(array, Quantised) else None


def _quantised_at(array, i):  # type: ignore[no-untyped-def]
    k = 0
    while array.levels[k + 1] <= i:
        k += 1
    return value_of(array.codes[i - array.levels[0]], array.scales[2 * k], array.scales[2 * k + 1])


@overload(size_of, strict=False)
def _size_of(array: Any) -> Any:
    if isinstance(array, types.Array):
        return lambda array: len(array)
    return (lambda array: array.levels[-1]) if _is(array, Quantised) else None


@overload(suffix_of, strict=False)
def _suffix_of(first: Any, words: Any, suffixes: Any, history: Any, node: Any) -> Any:
    if isinstance(suffixes, types.Array):
        return lambda first, words, suffixes, history, node: np.int64(suffixes[node])
    return _packed_suffix_of


def _packed_suffix_of(first, words, suffixes, history, node):  # type: ignore[no-untyped-def]
    if node < max(suffixes.unigrams, suffixes.num_histories):
        return np.int64(at(suffixes, node))
    shorter, word = np.int64(at(suffixes, history)), np.int64(at(words, node))
    return word if shorter < 0 else np.int64(find_child(first, words, shorter, word))


@overload(link_of, strict=False)
def _link_of(words: Any, suffixes: Any, shorter: Any, low: Any, high: Any, node: Any) -> Any:
    if isinstance(suffixes, types.Array):
        return lambda words, suffixes, shorter, low, high, node: np.int64(suffixes[node])
    return _packed_link_of


def _packed_link_of(words, suffixes, shorter, low, high, node):  # type: ignore[no-untyped-def]
    if node < max(suffixes.unigrams, suffixes.num_histories):
        return np.int64(at(suffixes, node))
    word = np.int64(at(words, node))
    return word if shorter < 0 else np.int64(find_between(words, low, high, word))


@overload(with_row, strict=False)
def _with_row(rows: Any, node: Any, weight: Any, lower: Any) -> Any:
    if isinstance(rows, types.Array):
        return lambda rows, node, weight, lower: weight * rows[node] + lower
    return lambda rows, node, weight, lower: weight * at(rows, node)


@overload(row_of, strict=False)
def _row_of(rows: Any, base: Any, first: Any, words: Any, suffixes: Any, backoffs: Any, history: Any, node: Any) -> Any:
    if isinstance(rows, types.Array):
        return lambda rows, base, first, words, suffixes, backoffs, history, node: rows[node]
    return _row_of_codes


def _row_of_codes(rows, base, first, words, suffixes, backoffs, history, node):  # type: ignore[no-untyped-def]
    below = suffix_of(first, words, suffixes, history, node)
    lower = base[below] if below < len(base) else at(rows, below)
    return at(rows, node) - at(backoffs, history) * lower


@overload(full_prob, strict=False)
def _full_prob(values: Any, first: Any, words: Any, suffixes: Any, backoffs: Any, history: Any, node: Any) -> Any:
    if isinstance(values, types.Array):
        return lambda values, first, words, suffixes, backoffs, history, node: values[node]
    return _prob_of_rows if isinstance(values[0], types.Array) else _prob_of_codes


def _prob_of_codes(values, first, words, suffixes, backoffs, history, node):  # type: ignore[no-untyped-def]
    return values.base[node] if node < len(values.base) else at(values.rows, node)


def _prob_of_rows(values, first, words, suffixes, backoffs, history, node):  # type: ignore[no-untyped-def]
    """Down the links to the unigram, then up again, in the order of `query.ngram_probs`."""
    nodes, end = scratch(16 * 8), np.int64(0)  # each with its history: no n-gram has more than 8 words
    while history >= 0:
        store_i64(nodes + end, node)
        store_i64(nodes + end + 8, history)
        node = suffix_of(first, words, suffixes, history, node)
        history = np.int64(at(suffixes, history))
        end += 16
    probability = values.base[node] if node < len(values.base) else 0.0
    while end > 0:
        end -= 16
        probability = values.rows[load_i64(nodes + end)] + at(backoffs, load_i64(nodes + end + 8)) * probability
        probability = probability if probability > 0 else 0.0
    return probability


@kernel
def find_child(first, words, node, word):  # type: ignore[no-untyped-def]
    """The child of `node` with this word, or -1."""
    return find_between(words, at(first, node), at(first, node + 1), word)


@kernel
def find_between(words, low, high, word):  # type: ignore[no-untyped-def]
    """Which of the siblings low..high has this word, or -1: a binary search."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if at(words, middle) < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and at(words, low) == word else -1


@helper
def bits_at(data, width, i):  # type: ignore[no-untyped-def]
    """Number i of a packed array."""
    bit = np.uint64(i) * np.uint64(width)
    word, shift = bit >> np.uint64(6), bit & np.uint64(63)
    above = (data[word + np.uint64(1)] << np.uint64(1)) << (np.uint64(63) - shift)
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    return np.int64((data[word] >> shift | above) & mask)


@helper
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


@kernel
def value_of(code, low, step):  # type: ignore[no-untyped-def]
    """The value of one code."""
    if code < 2:
        return 1.0 if code == 1 else 0.0
    return np.int64(low + (np.int64(code) - 2) * step).view(np.float64)


@kernel
def read_all(array, start, out):  # type: ignore[no-untyped-def]
    """Let `out` be the numbers from `start` on."""
    for i in range(len(out)):
        out[i] = at(array, start + i)
