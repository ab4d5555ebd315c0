"""Continuation counts: how many distinct words stand before each n-gram of a trie.

The n-grams w1 w2 .. whose first word is w1 have their suffixes w2 .. in ascending order, so a thread that takes, for
every w1, the range with w2 in its share counts suffixes that no other thread counts. Suffixes of n-grams of different
lengths are different anyway.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.ngram.counting_kernels import AHEAD, cut_children
from lidstone.ngram.trie import Trie
from lidstone.parallel import threads_for
from lidstone.text.memory import prefetch_item


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


@njit(cache=True, nogil=True)
def count_suffixes(suffixes, begins, ends, adjusted):  # type: ignore[no-untyped-def]
    """Add 1 to the suffix of every node of the ranges."""
    for begin, end in zip(begins, ends):  # noqa: B905
        for node in range(begin, end):
            if node + AHEAD < len(suffixes):
                prefetch_item(adjusted, np.int64(suffixes[node + AHEAD]))
            adjusted[np.uint64(suffixes[node])] += 1
