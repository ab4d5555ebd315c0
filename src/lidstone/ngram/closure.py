"""From the n-grams of an ARPA file, in any order and with gaps, to a closed trie.

A pruned model may lack the suffix or the prefix of an n-gram it has; a trie needs both. So, from the top order down,
each order is completed by what the order above needs. Then, from the bottom up, each is sorted by (parent, word).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lidstone.jit import helper, kernel
from lidstone.ngram.trie import Trie
from lidstone.ngram.union import first_children
from lidstone.text.memory import load_u32, store_i64, store_u32

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
    links: list[tuple[NDArray[np.integer], NDArray[np.integer]]] = []
    repeated = []
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


def _complete(given: Ngrams, above: Ngrams) -> tuple[Ngrams, NDArray[np.int64], NDArray[np.int64], int]:
    """`given`, and the prefixes and suffixes of `above` that it lacks; where in it each prefix and suffix stands."""
    ngrams = np.empty((len(given) + 2 * len(above), given.shape[1]), np.int32)
    ngrams[: len(given)] = given
    slots = np.full(1 << (len(ngrams) + 8).bit_length() + 1, -1, np.int32)  # at least twice as many as n-grams
    prefixes, suffixes = np.empty(len(above), np.int64), np.empty(len(above), np.int64)
    above, arrays = np.ascontiguousarray(above), (ngrams, above, slots, prefixes, suffixes)
    sizes = ngrams.shape[1], len(given), len(above), len(slots)
    end, repeated = _enter(*sizes, *(array.ctypes.data for array in arrays))
    return ngrams[:end].copy(), prefixes, suffixes, repeated


@kernel
def _enter(order, size, more, room, ngrams, above, slots, prefixes, suffixes):  # type: ignore[no-untyped-def]
    """The loop of `_complete`: how many n-grams there are, and the first of the given ones that was there before."""
    repeated, end = np.int64(-1), size
    for i in range(size):
        if _insert(slots, room, ngrams, order, i) < i and repeated < 0:
            repeated = np.int64(i)
    for i in range(2 * more):
        part = i & 1  # its prefix, then its suffix
        for k in range(order):
            store_u32(ngrams + 4 * (order * end + k), load_u32(above + 4 * ((order + 1) * (i >> 1) + part + k)))
        found = _insert(slots, room, ngrams, order, end)
        end += found == end
        store_i64((suffixes if part else prefixes) + 8 * (i >> 1), found)
    return end, repeated


@helper
def _insert(slots, room, ngrams, order, new):  # type: ignore[no-untyped-def]
    """Open addressing: the number of the n-gram that equals number `new`, or `new`, now entered."""
    key, own = np.uint64(0), ngrams + 4 * order * new
    for i in range(order):
        key = (key ^ np.uint64(load_u32(own + 4 * i))) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
    slot = np.int64(key & np.uint64(room - 1))
    while True:
        old = np.int64(np.int32(load_u32(slots + 4 * slot)))
        if old < 0:
            store_u32(slots + 4 * slot, new)
            return new
        same = True
        for i in range(order):
            same &= load_u32(ngrams + 4 * (order * old + i)) == load_u32(own + 4 * i)
        if same:
            return old
        slot = (slot + 1) & (room - 1)
