"""What smoothers derive from counts, all of the whole text: totals, adjusted counts, and counts of counts.

Kneser-Ney's adjusted count of an n-gram is its continuation count, how many distinct words stand before it; at the top
order and after `<s>` it is the plain count. Of counts in memory, `adjusted_counts` finds them all at once; of counts in
a file, `adjusted_window` those of a window of n-grams: the links into it stand side by side after each first word.

The n-grams w1 w2 .. whose first word is w1 have their suffixes w2 .. in ascending order, so a thread that takes, for
every w1, the range with w2 in its share counts suffixes that no other thread counts. Suffixes of n-grams of different
lengths are different anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.jit import kernel
from lidstone.ngram.count_kernels import AHEAD, cut_children
from lidstone.ngram.trie import Trie, sum_children
from lidstone.parallel import threads_for
from lidstone.text.memory import prefetch_item

Ints = NDArray[np.integer]
LARGEST = 1 << 20
"""Larger counts share one entry among the counts of counts, so that these stay small"""


def adjusted_counts(trie: Trie, counts: NDArray[np.int32], threads: int | None = None) -> NDArray[np.int32]:
    """Kneser-Ney's counts of all histories: distinct words before, plain counts after `<s>`, 0 for `<s>`.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1], [2, 2, 0]], Vocabulary(size=3, eos=0), order=2)
    >>> adjusted_counts(counts.trie, counts.counts).tolist()
    [2, 1, 3, 0]
    """
    adjusted = np.full(trie.num_histories, 0, counts.dtype)  # np.zeros would get its memory page by page
    if trie.order > 1:
        _count_all_suffixes(trie, adjusted, threads_for(trie.size) if threads is None else threads)
    for order in range(1, trie.order):
        starts = trie.sentence_starts(order)
        adjusted[starts] = counts[starts]
    adjusted[trie.vocab_size : trie.vocab_size + 1] = 0
    return adjusted


def _count_all_suffixes(trie: Trie, adjusted: NDArray[np.int32], threads: int) -> None:
    """Add 1 to the suffix of every n-gram; threads take shares of second words, of the longest n-grams first."""
    places = [_places(trie, threads)]
    for _ in range(3, trie.order + 1):
        places.append(trie.first[places[-1]].astype(np.int64))
    shares = [share for found in reversed(places) for share in pairwise(np.ascontiguousarray(found.T))]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda share: count_suffixes(trie.suffixes, *share, adjusted), shares))


def _places(trie: Trie, shares: int) -> NDArray[np.int64]:
    """(V + 1, shares + 1): where, among the 2-grams that begin with a word, each share of second words begins."""
    start, stop = trie.vocab_size + 1, int(trie.levels[2])
    frequent = np.bincount(trie.suffixes[start:stop], minlength=start)
    sums = np.cumsum(frequent)
    cuts = np.searchsorted(sums, sums[-1] * np.arange(shares) / shares, side="left") + (np.arange(shares) > 0)
    places = np.empty((start, shares + 1), np.int64)
    cut_children(trie.first, trie.words, cuts, places[:, :-1])
    places[:, :-1] += start
    places[:, -1] = trie.first[1 : start + 1]
    return places


@kernel
def count_suffixes(suffixes, begins, ends, adjusted):  # type: ignore[no-untyped-def]
    """Add 1 to the suffix of every node of the ranges."""
    for begin, end in zip(begins, ends):  # noqa: B905
        for node in range(begin, end):
            if node + AHEAD < len(suffixes):
                prefetch_item(adjusted, np.int64(suffixes[node + AHEAD]))
            adjusted[np.uint64(suffixes[node])] += 1


def adjusted_window(trie: Trie, counts: Ints, order: int, start: int, stop: int) -> Ints:
    """Adjusted counts of the nodes start..stop, all of one order below the top."""
    window = np.zeros(stop - start, counts.dtype)
    bounds: Ints = np.arange(trie.vocab_size + 2)
    for _ in range(order):
        bounds = trie.first[bounds]
    _count_between(trie.suffixes, bounds, start, window)
    plain = max(trie.sentence_starts(order).start, start)
    if plain < stop:
        window[plain - start :] = counts[plain:stop]
    return without_start(window, trie, start)


def without_start(values: Ints, trie: Trie, start: int) -> Ints:
    """With zero for `<s>`, which is never predicted."""
    at = trie.vocab_size - start
    if not 0 <= at < len(values):
        return values
    values = values.copy()
    values[at] = 0
    return values


@kernel
def _count_between(suffixes, bounds, start, window):  # type: ignore[no-untyped-def]
    """Count the links that lead into a window; those of the n-grams bounds[i]..bounds[i + 1] ascend."""
    stop = start + len(window)
    for word in range(len(bounds) - 1):
        low, end = bounds[word], bounds[word + 1]
        high = end
        while low < high:
            middle = (low + high) >> 1
            if suffixes[middle] < start:
                low = middle + 1
            else:
                high = middle
        while low < end and suffixes[low] < stop:
            if suffixes[low] >= start:  # also in a file that was not checked
                window[suffixes[low] - start] += 1
            low += 1


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
        kept_histories = keep[: len(self.totals)]
        return replace(
            self,
            totals=self.totals[kept_histories],
            adjusted=self.adjusted[keep],
            adjusted_totals=self.adjusted_totals[kept_histories],
        )


def derive(trie: Trie, counts: NDArray[np.int32]) -> Derived:
    """Everything derived from the count of each node of a trie."""
    totals = sum_children(trie.first, counts)
    adjusted = np.concatenate([adjusted_counts(trie, counts), counts[trie.num_histories :]])
    adjusted[trie.vocab_size] = 0
    below = int(trie.levels[max(trie.order - 2, 0)])  # the rest have followers of the top order, where counts are plain
    adjusted_totals = np.concatenate([sum_children(trie.first[: below + 1], adjusted), totals[below:]])
    return Derived(totals, adjusted, adjusted_totals, *histograms(trie, counts, adjusted))


def histograms(
    trie: Trie, counts: Ints, adjusted: Ints
) -> tuple[tuple[NDArray[np.int64], ...], tuple[NDArray[np.int64], ...]]:
    """Counts of counts of each order, plain and adjusted; `<s>` is not part of them."""

    def of_order(values: Ints, order: int) -> NDArray[np.int64]:
        level = trie.level(order)
        return histogram([without_start(values[level], trie, level.start)])

    orders = range(1, trie.order + 1)
    with ThreadPoolExecutor(threads_for(trie.size)) as pool:
        plain = pool.map(partial(of_order, counts), orders)
        changed = pool.map(partial(of_order, adjusted), orders[:-1])  # of the top order they are the plain ones
        found = tuple(plain)
        return found, (*changed, found[-1])


def histogram(parts: Iterable[Ints]) -> NDArray[np.int64]:
    """How many values are 0, 1, .. `LARGEST` or more, up to the largest there is.

    >>> histogram([np.array([1, 3]), np.array([1])]).tolist()
    [0, 2, 0, 1]
    """
    return trimmed(tally(parts, LARGEST))


def trimmed(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """A histogram without the zeros at its end."""
    return found[: int(np.max(np.flatnonzero(found), initial=0)) + 1].copy()


def tally(parts: Iterable[Ints], largest: int) -> NDArray[np.int64]:
    """How many values are 0, 1, .. `largest` or more."""
    found = np.zeros(largest + 1, np.int64)
    for part in parts:
        if _count_values(part, found):
            raise InputError("a count is negative", hint="count the text again")
    return found


@kernel
def _count_values(values, histogram):  # type: ignore[no-untyped-def]
    """Add how many values are 0, 1, .. to a histogram, the last entry for all that are larger; is one negative?"""
    last, negative = np.uint64(len(histogram) - 1), False
    for value in values:
        histogram[min(np.uint64(value), last)] += 1  # as an unsigned number, a negative one is large
        negative |= value < 0
    return negative
