"""How compiled code reads a table, whatever its arrays are: plain, packed or quantised.

Each function here is compiled for the types that it is given, so a plain array costs what it did without them.

    at(array, i)              number i of an array, plain, packed or quantised
    size_of(array)            how many there are
    suffix_of(..., node)      the node without its oldest word, given the history that the node follows
    with_row(rows, ...)       what a row makes of the probability of the order below
    row_of(rows, ...)         the row of a node
    full_prob(values, ...)    p(w | h) of a node hw
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from lidstone.ngram.compact.bits import PackedFirst, PackedSuffixes, PackedWords, ascending_at, bits_at
from lidstone.ngram.compact.quantise import Quantised, value_of

DEPTH = 8
"""No n-gram has more words."""


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


def with_row(rows: Any, child: Any, weight: Any, below: Any) -> Any:
    """p(w | h) times a weight, from the same of the order below, in compiled code."""
    raise NotImplementedError


def row_of(rows: Any, base: Any, first: Any, words: Any, suffixes: Any, backoffs: Any, history: Any, node: Any) -> Any:
    """p(w | h) - backoff(h) p(w | h without its oldest word), in compiled code."""
    raise NotImplementedError


def full_prob(
    values: Any, first: Any, words: Any, suffixes: Any, backoffs: Any, history: Any, node: Any, chain: Any
) -> Any:
    """p(w | h) of the node hw, in compiled code; for `chain` see `chain_for`."""
    raise NotImplementedError


def chain_for(values: Any) -> Any:
    """The `chain` that `full_prob` needs for such values, in compiled code: none where they are stored in full."""
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
    if node < max(suffixes.unigrams, suffixes.inner):
        return np.int64(at(suffixes, node))
    shorter, word = np.int64(at(suffixes, history)), np.int64(at(words, node))
    return word if shorter < 0 else np.int64(find_child(first, words, shorter, word))


@overload(with_row, strict=False)
def _with_row(rows: Any, child: Any, weight: Any, below: Any) -> Any:
    if isinstance(rows, types.Array):  # rounding may leave a tiny negative number
        return lambda rows, child, weight, below: max(below + weight * rows[child], 0.0)
    return lambda rows, child, weight, below: weight * at(rows, child)


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
def _full_prob(
    values: Any, first: Any, words: Any, suffixes: Any, backoffs: Any, history: Any, node: Any, chain: Any
) -> Any:
    if isinstance(values, types.Array):
        return lambda values, first, words, suffixes, backoffs, history, node, chain: values[node]
    return _prob_of_rows if isinstance(values[0], types.Array) else _prob_of_codes


@overload(chain_for, strict=False)
def _chain_for(values: Any) -> Any:
    if isinstance(values, types.Array):
        return lambda values: 0
    return lambda values: np.empty(2 * DEPTH, np.int64)


def _prob_of_codes(values, first, words, suffixes, backoffs, history, node, chain):  # type: ignore[no-untyped-def]
    return values.base[node] if node < len(values.base) else at(values.rows, node)


def _prob_of_rows(values, first, words, suffixes, backoffs, history, node, chain):  # type: ignore[no-untyped-def]
    """Down the links to the unigram, then up again, in the order of `query.ngram_probs`."""
    depth = 0
    while history >= 0:
        chain[depth], chain[depth + DEPTH] = node, history
        node = suffix_of(first, words, suffixes, history, node)
        history = np.int64(at(suffixes, history))
        depth += 1
    probability = values.base[node] if node < len(values.base) else 0.0
    for i in range(depth - 1, -1, -1):
        probability = max(values.rows[chain[i]] + at(backoffs, chain[i + DEPTH]) * probability, 0.0)
    return probability


@njit(cache=True, nogil=True)
def find_child(first, words, node, word):  # type: ignore[no-untyped-def]
    """The child of `node` with this word, or -1: a binary search among the children."""
    low, high = at(first, node), at(first, node + 1)
    end = high
    while low < high:
        middle = (low + high) >> 1
        if at(words, middle) < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and at(words, low) == word else -1
