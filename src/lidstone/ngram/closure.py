"""From the n-grams of an ARPA file, in any order and with gaps, to a closed trie.

A pruned model may lack the suffix or the prefix of an n-gram it has; a trie needs both. So, from the top order down,
each order is completed by what the order above needs. Then, from the bottom up, each is sorted by (parent, word).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.ngram.trie import Trie
from lidstone.ngram.union import first_children

Ngrams = NDArray[np.int32]


@dataclass(frozen=True)
class ClosedLevel:
    """The n-grams of one order: first those given, in their order, then those that closure requires."""

    ngrams: Ngrams
    """(n-grams, order)"""
    prefixes: NDArray[np.integer]
    """the number of each one's prefix within the level below"""
    suffixes: NDArray[np.integer]
    """likewise of the suffix"""
    repeated: int
    """the number of the first n-gram that was given before, or -1"""


def close(given: list[Ngrams]) -> list[ClosedLevel]:
    """Levels 2..n, each with all prefixes and suffixes of the one above.

    >>> levels = close([np.array([[0, 1]], np.int32), np.array([[1, 2, 0]], np.int32)])
    >>> levels[0].ngrams.tolist(), levels[1].prefixes.tolist(), levels[1].suffixes.tolist()
    ([[0, 1], [1, 2], [2, 0]], [1], [2])
    """
    closed: list[Ngrams] = []
    links, repeated = [], []
    if not given:
        return []
    above = np.empty((0, len(given) + 2), np.int32)
    for ngrams in reversed(given):
        above, prefixes, suffixes, twice = _complete(ngrams, above)
        closed.append(above)
        links.append((prefixes, suffixes))  # of the level above
        repeated.append(twice)
    links = [*links[1:], (above[:, 0], above[:, -1])]  # of a bigram: its words
    levels = [ClosedLevel(ngrams, *pair, twice) for ngrams, pair, twice in zip(closed, links, repeated, strict=True)]
    return levels[::-1]


def build(levels: list[ClosedLevel], vocab_size: int) -> tuple[Trie, list[NDArray[np.int64]]]:
    """The trie, and the node of each n-gram of each level."""
    bounds = [0, vocab_size + 1]
    nodes = [np.arange(vocab_size + 1)]
    words, suffixes, parents = [nodes[0]], [np.full(vocab_size + 1, -1)], [np.empty(0, np.int64)]
    for level in levels:
        keys = nodes[-1][level.prefixes] << 32 | level.ngrams[:, -1]
        order = np.argsort(keys)
        words.append(level.ngrams[order, -1])
        suffixes.append(nodes[-1][level.suffixes[order]])
        parents.append(keys[order] >> 32)
        nodes.append(np.empty(len(order), np.int64))
        nodes[-1][order] = np.arange(bounds[-1], bounds[-1] + len(order))
        bounds.append(bounds[-1] + len(order))
    first = first_children(np.concatenate(parents), np.array(bounds))
    all_words, all_suffixes = (np.concatenate(arrays).astype(np.int32) for arrays in (words, suffixes))
    return Trie(np.array(bounds), all_words, all_suffixes, first), nodes


@njit(cache=True, nogil=True)
def _complete(given, above):  # type: ignore[no-untyped-def]
    """`given`, and the prefixes and suffixes of `above` that it lacks; where in it each prefix and suffix stands."""
    size, order = given.shape
    ngrams = np.empty((size + 2 * len(above), order), np.int32)
    bits = np.int64(np.log2(len(ngrams) + 8)) + 2
    slots = np.full(1 << bits, -1, np.int32)  # at least twice as many as n-grams
    prefixes, suffixes = np.empty(len(above), np.int64), np.empty(len(above), np.int64)
    end, repeated = 0, -1
    for i in range(size):
        ngrams[end] = given[i]
        found = _insert(slots, ngrams, end)
        if found < end and repeated < 0:
            repeated = i
        end += 1
    for i in range(len(above)):
        ngrams[end] = above[i, :order]
        prefixes[i] = _insert(slots, ngrams, end)
        end += prefixes[i] == end
        ngrams[end] = above[i, 1:]
        suffixes[i] = _insert(slots, ngrams, end)
        end += suffixes[i] == end
    return ngrams[:end].copy(), prefixes, suffixes, repeated


@njit(cache=True, nogil=True)
def _insert(slots, ngrams, new):  # type: ignore[no-untyped-def]
    """Open addressing: the number of the n-gram that equals ngrams[new], or `new`, now entered."""
    key = np.uint64(0)
    for word in ngrams[new]:
        key = (key ^ np.uint64(word)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
    slot = np.int64(key & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        old = slots[slot]
        if _equal(ngrams, old, new):
            return old
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = new
    return new


@njit(cache=True, nogil=True)
def _equal(ngrams, one, other):  # type: ignore[no-untyped-def]
    same = True
    for i in range(ngrams.shape[1]):
        same &= ngrams[one, i] == ngrams[other, i]
    return same
