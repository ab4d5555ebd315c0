"""Learning BPE merges as subword-nmt does, several times as fast.

subword-nmt spends most of its time searching for the most frequent pair among all pairs. Here there is one set of pairs
per frequency, and a heap of the frequencies; words are rewritten without regular expressions. Everything else, the
pruning of rare pairs and its side effects included, is subword-nmt's own code, so that the merges are the same.
"""

from __future__ import annotations

import copy
import heapq
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

Pair = tuple[str, str]


def learn_merges(words: Mapping[str, int], merges: int, min_frequency: int = 2) -> list[Pair]:
    """The first `merges` merges, best first, for words with these counts.

    >>> learn_merges({"low": 3, "lower": 1}, 2)
    [('l', 'o'), ('lo', 'w</w>')]
    """
    from subword_nmt.learn_bpe import get_pair_statistics, prune_stats, replace_pair, update_pair_statistics

    # to its regular expression an unusual space inside a word is the end of a symbol: leave such text to it
    replace = replace_pair if any(_has_space(word) for word in words) else _replace_pair

    spelt = {(*word[:-1], f"{word[-1]}</w>"): count for word, count in words.items()}
    vocabulary = sorted(spelt.items(), key=lambda item: item[1], reverse=True)
    plain, indices = get_pair_statistics(vocabulary)
    everything = copy.copy(plain)
    stats = _RankedCounts(plain)
    threshold = max(plain.values(), default=0) / 10
    learnt: list[Pair] = []
    while len(learnt) < merges and everything:
        number = len(learnt)
        best = stats.best() if stats else None
        if best is None or (number and stats[best] < threshold):  # the best pair may be a pruned one
            prune_stats(stats, everything, threshold)
            stats = _RankedCounts(everything)
            best = stats.best()
            threshold = stats[best] * number / (number + 10000.0)
            prune_stats(stats, everything, threshold)
        if stats[best] < min_frequency:
            break
        learnt.append(best)
        update_pair_statistics(best, replace(best, vocabulary, indices), stats, indices)
        stats[best] = 0
        if not number % 100:
            prune_stats(stats, everything, threshold)
    return learnt


def _has_space(word: str) -> bool:
    return len(word.split()) > 1 or word != word.strip()


def _replace_pair(pair: Pair, vocabulary: list[tuple[tuple[str, ...], int]], indices: Any) -> list[Any]:
    """Join the pair in all words that have it; return (number, new word, old word, count) of each."""
    changes = []
    for number, occurrences in indices[pair].items():
        if occurrences > 0:
            old, count = vocabulary[number]
            vocabulary[number] = (_joined(old, *pair), count)
            changes.append((number, vocabulary[number][0], old, count))
    return changes


def _joined(word: tuple[str, ...], first: str, second: str) -> tuple[str, ...]:
    symbols: list[str] = []
    start = 0
    while start < len(word):
        if word[start] == first and word[start + 1 : start + 2] == (second,):
            symbols.append(first + second)
            start += 2
        else:
            symbols.append(word[start])
            start += 1
    return tuple(symbols)


class _RankedCounts(defaultdict[Pair, int]):
    """Counts of pairs with fast access to the most frequent one; of equals, the last in the alphabet.

    Equals `max(counts, key=lambda pair: (counts[pair], pair))`.
    """

    def __init__(self, counts: Mapping[Pair, int]) -> None:
        super().__init__(int)
        self._changed: set[Pair] = set()
        self._frequency: dict[Pair, int] = {}  # as ranked, which may be out of date for the changed ones
        self._ranks: dict[int, set[Pair]] = {}
        self._heap: list[int] = []
        self.update(counts)
        self._changed.update(counts)

    def __setitem__(self, pair: Pair, count: int) -> None:
        super().__setitem__(pair, count)
        self._changed.add(pair)

    def __delitem__(self, pair: Pair) -> None:
        super().__delitem__(pair)
        self._changed.add(pair)

    def best(self) -> Any:
        for pair in self._changed:
            self._rank(pair)
        self._changed.clear()
        while not self._ranks[-self._heap[0]]:
            del self._ranks[-heapq.heappop(self._heap)]
        return max(self._ranks[-self._heap[0]])

    def _rank(self, pair: Pair) -> None:
        old, new = self._frequency.pop(pair, None), self.get(pair)
        if old is not None:
            self._ranks[old].discard(pair)
        if new is not None:
            if new not in self._ranks:
                self._ranks[new] = set()
                heapq.heappush(self._heap, -new)
            self._ranks[new].add(pair)
            self._frequency[pair] = new
