"""The signed split: how a smoothed distribution differs from the empirical one, per history and in sparse form.

    p~(w|h) - p(w|h) = Z(h) (p+(w|h) - p-(w|h)),      p(w|h) = c(hw) / c(h)                (1) of docs/theory.md

Both p and p~ sum to one, so what is taken away equals what is given: one Z. Words that never follow h have p = 0, and
there p~ is backoff * (order below): the dense part of Z p+ is a multiple of the order below, and Z p- is sparse.

    Z p-(w|h) = minus[hw]                              Z p+(w|h) = plus[hw] + backoff(h) p~(w|h')

Only a *whole* history has an empirical distribution: n-1 words, or fewer after `<s>`. Its n-grams are numbered without
gaps by `slots`: first those after `<s>` of the lower orders, then all of the top order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.ngram.union import align


@dataclass(frozen=True, eq=False)
class SignedSplit:
    """Z p+ and Z p- of every whole history.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> parts = signed_split(AddLambda(lam=1).fit(counts), counts)
    >>> parts.z([1]), parts.z([2])         # after 1: p = (1/2, 0, 1/2), p~ = (2/5, 1/5, 2/5)
    (0.2, 0.5)
    """

    table: BackoffTable
    """p~, on the trie that it shares with the counts"""
    plus: NDArray[np.float64]
    """the sparse part of Z p+; one per slot"""
    minus: NDArray[np.float64]
    """Z p-; one per slot"""
    empirical: NDArray[np.float64]
    """p; one per slot"""

    def slots(self, node: int) -> slice:
        """Where the followers of a whole history stand in `plus` and `minus`."""
        children = self.table.trie.children(node)
        shift = slot_shifts(self.table.trie)[len(self.table.trie.ngram(node))]
        return slice(children.start - shift, children.stop - shift)

    def z(self, history: Sequence[int]) -> float:
        """Z(h), the mass that smoothing moves; 0 for a history that the text does not have."""
        if self.table.order == 1:
            return round(float(self.minus.sum()), 15)
        node = whole_history(self.table, history)
        return 0.0 if node is None else round(float(self.minus[self.slots(node)].sum()), 15)


def signed_split(table: BackoffTable, counts: Counts) -> SignedSplit:
    """Split a table against the counts of the training text, whichever smoother or file it comes from."""
    require_whole(counts)
    table, counts = align(table, counts)
    trie = table.trie
    smoothed = table.ngram_probs
    nodes = whole_ngrams(trie)
    parents = trie.parents[nodes]
    lower = table.backoffs[parents] * smoothed[trie.suffixes[nodes]] if trie.order > 1 else np.zeros(len(nodes))
    totals = counts.totals[parents] if trie.order > 1 else np.full(len(nodes), counts.tokens)
    empirical = counts.counts[nodes] / np.maximum(totals, 1)
    delta = smoothed[nodes] - empirical  # (1): Z p+ is what is above zero, Z p- what is below
    return SignedSplit(table, np.maximum(delta, 0) - lower, np.maximum(-delta, 0), empirical)


def require_whole(counts: Counts) -> None:
    """Refuse counts that lack n-grams of the text."""
    if any(counts.thresholds):
        raise InputError(
            f"counts with thresholds {list(counts.thresholds)} do not give the empirical distribution",
            hint="count again without thresholds; the table itself may be fitted with them",
        )


def whole_ngrams(trie: Trie) -> NDArray[np.int64]:
    """The nodes that follow whole histories, in the order of their slots.

    At order 1 these are the words themselves: the one history is empty.
    """
    if trie.order == 1:
        return np.arange(trie.vocab_size)
    blocks = [trie.sentence_starts(order) for order in range(2, trie.order)]
    return np.concatenate([np.arange(block.start, block.stop) for block in [*blocks, trie.level(trie.order)]])


def slot_shifts(trie: Trie) -> list[int]:
    """For a whole history of length k, node - shifts[k] is the slot of its follower `node`."""
    shifts, slots = [0], 0
    for order in range(2, trie.order + 1):
        block = trie.sentence_starts(order) if order < trie.order else trie.level(order)
        shifts.append(block.start - slots)
        slots += block.stop - block.start
    return shifts


def whole_history(table: BackoffTable, history: Sequence[int]) -> int | None:
    """The node of a history that the trie has in full length, or None."""
    if table.order == 1:
        return None
    node = table.trie.find(list(history)[-(table.order - 1) :])
    whole = len(history) >= table.order - 1 or (len(history) > 0 and history[0] == table.vocab.bos)
    return node if whole and node >= 0 else None
