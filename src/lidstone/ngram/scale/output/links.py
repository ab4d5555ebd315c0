"""Suffix links of a finished trie: the second pass.

The suffix of a child is the child, with the same word, of its parent's suffix: it is found among these by a search that
goes on where the last one ended, for both are sorted by word.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lidstone.ngram.scale.pieces import Ints
from lidstone.text.interning import prefetch

AHEAD = 16
"""How many parents ahead the children of a suffix are asked for; their offsets twice as many."""


def link(first: Ints, words: Ints, parent_links: Ints, parents: range, out: Ints) -> bool:
    """The links of the children of `parents`, into `out`; False if one has no suffix: this is no trie.

    `parent_links` are those of the parents themselves.
    """
    return bool(_link(first, words, parent_links, parents.start, parents.stop, out))


@njit(cache=True, nogil=True)
def _link(first, words, parent_links, start, stop, out):  # type: ignore[no-untyped-def]
    base = first[start]
    for parent in range(start, stop):
        if parent + 2 * AHEAD < stop:
            prefetch(first, np.int64(parent_links[parent + 2 * AHEAD - start]))
            prefetch(words, np.int64(first[parent_links[parent + AHEAD - start]]))
        suffix = parent_links[parent - start]
        at, end = first[suffix], first[suffix + 1]
        for child in range(first[parent], first[parent + 1]):
            at = _search(words, words[child], at, end)
            if at == end or words[at] != words[child]:
                return False
            out[child - base] = at
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
