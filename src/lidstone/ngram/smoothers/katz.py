"""Katz (1987) back-off, as Chen & Goodman read it: seen words keep a Good-Turing share, the rest backs off.

    p(w|h) = d_c c(hw) / c(h)   if c(hw) > 0,   else alpha(h) p(w|h')                                          (1)
    d_r = (r*/r - A) / (1 - A) for r <= k, else 1,     r* = (r+1) n_{r+1} / n_r,     A = (k+1) n_{k+1} / n_1   (2)
    alpha(h) = (1 - sum over seen w of p(w|h)) / (1 - sum over seen w of p(w|h'))                              (3)

n_r n-grams of the order occur r times. Unigrams are discounted likewise and give to the words not seen in equal parts.
Back-off fits the rows of a table: rows[hw] = p(w|h) - alpha(h) p(w|h'). alpha may exceed one. (3) needs the finished
probabilities of the order below, so each order is fitted when the one below it is complete (`BlockFit.backs_off`).

What the definition leaves open:
- an order whose d_r are not all in (0, 1] (n_{k+1} = 0, irregular n_r) uses the largest smaller k for which they are;
  if there is none down to 2, the order is undefined and needs `fallback`;
- a history all of whose counts exceed k has nothing to give: its c(h) counts as one more (as in the CMU and SRI tools);
- a history without words to give to (all other words have p(w|h') = 0, or there are none) is not discounted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, SmoothingUndefined
from lidstone.jit import kernel
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import (
    BlockFit,
    BlockSmoother,
    FilledBlock,
    Floats,
    HistoryBlock,
    check_discount,
    unigrams,
)

NOTHING = 1e-9  # less probability than this, for all words not seen together, is rounding


@dataclass(frozen=True)
class Katz(BlockSmoother):
    """Katz back-off smoothing.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 1, 3, 1, 3], [1, 1, 3, 2, 1]], Vocabulary(size=4, eos=0), order=2)
    >>> Katz(k=2).fit(counts).prob([[1]]).round(4).tolist()    # d_1 1/6, d_2 2/6, 3/6, and the rest is left to 2
    [[0.0833, 0.125, 0.2917, 0.5]]
    """

    name: ClassVar[str] = "katz"
    k: int = 5
    """counts above k are not discounted; 2 or more"""
    unigrams: Literal["discounted", "ml"] = "discounted"
    """discounted, to leave something for words not seen; or ml, plain relative frequencies (as OpenGrm does)"""
    fallback: float | None = None
    """a discount D for orders that have no valid d_r: then d_r = (r - D)/r for r <= k"""

    def __post_init__(self) -> None:
        if self.k < 2:
            raise InputError(f"k must be 2 or more, not {self.k}", hint="5 is usual; with k = 1, d_1 would be 0")
        if self.unigrams not in ("discounted", "ml"):
            raise InputError(f"unigrams must be 'discounted' or 'ml', not {self.unigrams!r}")
        check_discount("fallback", self.fallback)

    def prepare(self, counts: Counts) -> BlockFit:
        """Discount ratios from the counts of counts; `fill` backs off."""
        every_event_seen = np.count_nonzero(counts.counts[: counts.vocab.size]) == counts.vocab.event_count
        plain = self.unigrams == "ml" or every_event_seen
        factors = {order: self._factors(counts, order) for order in range(1 + plain, counts.order + 1)}
        base = unigrams(counts) if plain else _discounted_unigrams(counts, factors[1][0])
        notes = {
            "cutoffs": {str(order): cut for order, (_, cut) in factors.items()},
            "ratios": {str(order): found[1:-1].tolist() for order, (found, _) in factors.items()},
            "fallback_orders": [order for order, (_, cut) in factors.items() if cut == 0],
        }
        by_order = {order: found for order, (found, _) in factors.items()}
        return BlockFit(base, partial(_back_off, by_order, counts.vocab.event_count), notes, backs_off=True)

    def _factors(self, counts: Counts, order: int) -> tuple[Floats, int]:
        """d_r for r = 0, 1, .. k and 1 for all beyond; and the k in use, 0 for the fallback."""
        histogram = counts.counts_of_counts(order)
        most = min(self.k, len(histogram))  # no n-gram occurs more often
        for cut in range(most, 1, -1):
            ratios = discount_ratios(histogram, cut)
            if ratios is not None:
                return np.concatenate([[1.0], ratios, [1.0]]), cut
        if self.fallback is None and histogram[1:].any():
            raise SmoothingUndefined(
                f"katz is undefined for order {order}: no k from 2 to {self.k} gives discounts between 0 and 1; the "
                f"counts of counts n_1, n_2 .. are {histogram[1 : self.k + 2].tolist()}",
                hint="use more text, or fallback=0.5" + (", or unigrams='ml'" if order == 1 else ""),
            )
        r = np.arange(1, most + 1)
        return np.concatenate([[1.0], (r - (self.fallback or 0.0)) / r, [1.0]]), 0 if histogram[1:].any() else self.k


def discount_ratios(histogram: NDArray[np.int64], k: int) -> Floats | None:
    """d_1 .. d_k from counts of counts; None unless all are in (0, 1].

    >>> discount_ratios(np.array([0, 30, 10, 5, 2]), 2).round(4).tolist()     # A = 3*5/30 = 1/2
    [0.3333, 0.5]
    >>> discount_ratios(np.array([0, 30, 10]), 2) is None                     # n_3 = 0
    True
    """
    n = np.zeros(k + 2)
    n[: len(histogram[: k + 2])] = histogram[: k + 2]
    if not n[1 : k + 1].all():
        return None
    r = np.arange(1, k + 1)
    share = (k + 1) * n[k + 1] / n[1]
    if share >= 1:
        return None
    ratios: Floats = ((r + 1) * n[2:] / (r * n[1:-1]) - share) / (1 - share)  # (2)
    return ratios if ((ratios > 0) & (ratios <= 1)).all() else None


def _discounted_unigrams(counts: Counts, factors: Floats) -> Floats:
    words = counts.counts[: counts.vocab.size]
    kept = words * factors[np.minimum(words, len(factors) - 1)]
    total = words.sum() + (kept.sum() == words.sum())
    unseen = counts.vocab.events & (words == 0)
    found: Floats = kept / total + unseen * (1 - kept.sum() / total) / unseen.sum()
    return found


def _back_off(factors: dict[int, Floats], events: int, block: HistoryBlock, out: FilledBlock) -> None:
    arrays = block.first, block.suffixes, block.counts, block.totals, block.probs
    _fill(*arrays, factors[block.order], events, out.rows, out.backoffs, out.probs)


@kernel
def _fill(first, suffixes, counts, totals, below, factors, events, rows, backoffs, probs):  # type: ignore[no-untyped-def]
    """Followers of history i are first[i]:first[i+1], the first of all at 0; p(w|h') is `below` at the suffix of hw."""
    most, keep = len(factors) - 1, len(probs) > 0
    taken_off = np.arange(most + 1) * (1 - factors)  # what a count of r gives away; above k, nothing
    often = np.zeros(most + 1, np.int64)
    for history in range(len(backoffs)):
        children = range(first[history] - first[0], first[history + 1] - first[0])
        kinds = seen = 0
        often[:] = 0
        rest, carry = 1.0, 0.0  # of the order below, after what it gives to the words seen; summed with compensation
        for child in children:
            if counts[child] == 0:  # inserted to share a trie with a table
                continue
            kinds += 1
            seen += counts[child]
            often[min(counts[child], most)] += 1
            term = below[suffixes[child]] + carry
            carry = term - (rest - (rest - term))
            rest -= term
        if kinds == 0:
            backoffs[history] = 1.0
            for child in children:
                rows[child] = 0.0
                if keep:
                    probs[child] = below[suffixes[child]]
            continue
        discounted = kinds < events and rest > NOTHING
        left = totals[history] - seen + (often * taken_off).sum()  # thresholds may have dropped some
        total = totals[history] + (left == 0) if discounted else seen
        backoffs[history] = max(left, 1.0 * (left == 0)) / total / rest if discounted else 0.0  # (3)
        for child in children:
            lower = backoffs[history] * below[suffixes[child]]
            factor = factors[min(counts[child], most)] if discounted else 1.0
            own = counts[child] * factor / total if counts[child] else lower  # (1)
            rows[child] = own - lower
            if keep:
                probs[child] = own
