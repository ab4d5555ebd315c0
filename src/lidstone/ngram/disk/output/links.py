"""Suffix links of a finished trie: the second pass.

The suffix of a child is the child, with the same word, of its parent's suffix: it is found among these by a search that
goes on where the last one ended, for both are sorted by word. Where the parents are 2-grams, their suffixes are words,
with many children each: 2-grams with the same second word are taken together and share a table of its children.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lidstone.ngram.disk.pieces import Ints
from lidstone.text.memory import prefetch_item

AHEAD = 16
"""How many parents ahead the children of a suffix are asked for; their offsets twice as many."""


def link(first: Ints, words: Ints, parent_links: Ints, parents: range, out: Ints) -> bool:
    """The links of the children of `parents`, into `out`; False if one has no suffix: this is no trie.

    `parent_links` are those of the parents themselves.
    """
    return bool(_link(first, words, parent_links, parents.start, parents.stop, out))


def link_to_pairs(first: Ints, words: Ints, parents: range, out: Ints) -> bool:
    """`link` where the parents are 2-grams; a call takes time for all 2-grams, so it should have many parents."""
    vocabulary, seconds = int(first[0]), words[parents.start : parents.stop]
    if not (seconds.min(initial=0) >= 0 and seconds.max(initial=0) < vocabulary):
        return False
    places = np.zeros(vocabulary, first.dtype)
    return bool(_link_to_pairs(first, words, seconds, parents.start, _by_value(seconds, vocabulary), places, out))


@njit(cache=True, nogil=True)
def _link(first, words, parent_links, start, stop, out):  # type: ignore[no-untyped-def]
    base = first[start]
    for parent in range(start, stop):
        if parent + 2 * AHEAD < stop:
            prefetch_item(first, np.int64(parent_links[parent + 2 * AHEAD - start]))
            prefetch_item(words, np.int64(first[parent_links[parent + AHEAD - start]]))
        suffix = parent_links[parent - start]
        at, end = first[suffix], first[suffix + 1]
        for child in range(first[parent], first[parent + 1]):
            at = _search(words, words[child], at, end)
            if at == end or words[at] != words[child]:
                return False
            out[child - base] = at
    return True


@njit(cache=True, nogil=True)
def _by_value(values, size):  # type: ignore[no-untyped-def]
    """The positions of values below `size`, sorted by value."""
    ends, found = np.zeros(size + 1, np.int64), np.empty(len(values), np.int32)
    for value in values:
        ends[value + 1] += 1
    for value in range(size):
        ends[value + 1] += ends[value]
    for position in range(len(values)):
        value = values[position]
        found[ends[value]] = position
        ends[value] += 1
    return found


@njit(cache=True, nogil=True)
def _link_to_pairs(first, words, seconds, start, turns, places, out):  # type: ignore[no-untyped-def]
    base, turn = first[start], 0
    while turn < len(turns):
        word = seconds[turns[turn]]
        low, end = first[word], first[word + 1]
        for pair in range(low, end):
            if not 0 <= words[pair] < len(places):
                return False
            places[words[pair]] = pair
        while turn < len(turns) and seconds[turns[turn]] == word:
            if turn + 2 * AHEAD < len(turns):
                prefetch_item(first, np.int64(start + turns[turn + 2 * AHEAD]))
                prefetch_item(words, np.int64(first[start + turns[turn + AHEAD]]))
            parent = start + turns[turn]
            for child in range(first[parent], first[parent + 1]):
                at = places[words[child]] if 0 <= words[child] < len(places) else -1
                if at < low or at >= end or words[at] != words[child]:
                    return False
                out[child - base] = at
            turn += 1
    return True


@njit(cache=True, nogil=True)
def _search(words, word, low, end):  # type: ignore[no-untyped-def]
    """The first position from `low` on whose word is not smaller: in growing steps, then by halves."""
    step, high = 1, low
    while high < end and words[high] < word:
        low = high + 1
        high += step
        step *= 2
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low
