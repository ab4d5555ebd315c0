"""What smoothers derive from counts: totals, continuation counts and counts of counts, all of the whole text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.continuation import adjusted_counts
from lidstone.ngram.trie import Trie, sum_children
from lidstone.parallel import threads_for

LARGEST = 1 << 20
"""Larger counts share one entry among the counts of counts, so that these stay small"""


@dataclass(frozen=True, eq=False)
class Derived:
    """What the whole text says, kept when thresholds drop n-grams."""

    totals: NDArray[np.int32]
    """c(h) for each node that can be a history"""
    adjusted: NDArray[np.int32]
    """Kneser-Ney's count of each node: distinct words before it, or the plain count (top order, or after `<s>`)"""
    adjusted_totals: NDArray[np.int32]
    """the sum of `adjusted` over each history's followers"""
    histograms: tuple[NDArray[np.int64], ...] = ()
    """counts of counts of each order: entry r is how many n-grams occur r times, or more at the last entry `LARGEST`"""
    adjusted_histograms: tuple[NDArray[np.int64], ...] = ()
    """the same of the adjusted counts"""

    def restricted(self, keep: NDArray[np.bool_]) -> Derived:
        """The same for some of the nodes."""
        inner = keep[: len(self.totals)]
        return replace(
            self,
            totals=self.totals[inner],
            adjusted=self.adjusted[keep],
            adjusted_totals=self.adjusted_totals[inner],
        )


def derive(trie: Trie, counts: NDArray[np.int32]) -> Derived:
    """Everything derived from the count of each node of a trie."""
    totals = sum_children(trie.first, counts)
    adjusted = np.concatenate([adjusted_counts(trie, counts), counts[trie.num_histories :]])
    adjusted[trie.vocab_size] = 0
    below = int(trie.levels[max(trie.order - 2, 0)])  # the rest have followers of the top order, where counts are plain
    adjusted_totals = np.concatenate([sum_children(trie.first[: below + 1], adjusted), totals[below:]])
    levels = [trie.level(order) for order in range(1, trie.order + 1)]
    words = counts[levels[0]].copy()
    words[trie.vocab_size] = 0  # <s> is never predicted
    plain = [words, *(counts[level] for level in levels[1:])]
    with ThreadPoolExecutor(threads_for(trie.size)) as pool:
        found = list(pool.map(_histogram, [*plain, *(adjusted[level] for level in levels[:-1])]))
    histograms, adjusted_histograms = found[: trie.order], found[trie.order :]
    return Derived(totals, adjusted, adjusted_totals, tuple(histograms), (*adjusted_histograms, histograms[-1]))


def _histogram(values: NDArray[np.int32]) -> NDArray[np.int64]:
    """How many values are 0, 1, 2, .. `LARGEST` or more; as np.bincount, which would make a copy of the values."""
    if values.min(initial=0) < 0:
        raise InputError("a count is negative", hint="count the text again")
    histogram = np.zeros(min(int(values.max(initial=0)), LARGEST) + 1, np.int64)
    count_values(values, histogram)
    return histogram


@njit(cache=True, nogil=True)
def count_values(values, histogram):  # type: ignore[no-untyped-def]
    """Add how many values are 0, 1, 2 .. to a histogram; its last entry is for all that are larger."""
    for value in values:
        histogram[min(np.uint64(value), np.uint64(len(histogram) - 1))] += 1
