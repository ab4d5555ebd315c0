"""Interpolated discounting: take something off each count and give it to the order below.

    p(w|h) = (c(hw) - D(c(hw))) / c(h) + gamma(h) p(w|h'),      gamma(h) = what was taken off / c(h)

Kneser-Ney and absolute discounting differ only in the counts they put in and in D. Unigrams rest on the uniform.
`SingleDiscount` is what absolute discounting and Kneser-Essen-Ney share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError, SmoothingUndefined
from lidstone.ngram.continuation import adjusted_counts
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import Floats, announce_fallback, check_discount, make_table, uniform
from lidstone.ngram.smoothers.plan import Block, Plan
from lidstone.ngram.table import BackoffTable
from lidstone.parallel import over_ranges, threads_for


@dataclass(frozen=True)
class Weights:
    """What is discounted: a number for each n-gram, and for each history the sum that its numbers are divided by."""

    below: NDArray[np.int32]
    """one for each node below the top order; after them others may follow"""
    top: NDArray[np.int32]
    """one per node; those below the top order are not used"""
    totals: NDArray[np.int32] | None
    """one per history, or None for the sums of its followers"""
    levels: NDArray[np.int64]

    @classmethod
    def plain(cls, counts: Counts) -> Weights:
        """Counts as they are."""
        totals = counts.totals if counts.is_derived else None
        return cls(counts.counts, counts.counts, totals, counts.trie.levels)

    @classmethod
    def adjusted(cls, counts: Counts) -> Weights:
        """Kneser-Ney's counts; what is not needed of `counts.derived` is not computed."""
        if counts.is_derived:
            derived = counts.derived
            return cls(derived.adjusted, derived.adjusted, derived.adjusted_totals, counts.trie.levels)
        return cls(adjusted_counts(counts.trie, counts.counts), counts.counts, None, counts.trie.levels)

    def of(self, order: int) -> NDArray[np.int32]:
        """The numbers of the n-grams of an order, at the places of their nodes."""
        return self.top if order == len(self.levels) - 1 else self.below


def counts_of_counts(counts: Counts, weights: Weights, order: int, *, adjusted: bool) -> NDArray[np.int64]:
    """How many n-grams of an order have the weight 0 .. 4, and 5 or more."""
    if counts.is_derived:
        return counts.counts_of_counts(order, adjusted=adjusted)
    start, stop = counts.trie.levels[order - 1 : order + 1].tolist()
    values = weights.of(order)[start : stop - (order == 1)]  # <s> is never predicted
    found = np.zeros((2, threads_for(len(values)), 6), np.int64)
    parts = np.array_split(values, found.shape[1])
    over_ranges(lambda part, _: count_small(parts[part], found[0, part], found[1, part]), len(parts), len(parts))
    if found[1].any():
        raise InputError("a count is negative", hint="count the text again")
    return np.asarray(found[0].sum(axis=0))


@njit(cache=True, nogil=True)
def count_small(values, found, negative):  # type: ignore[no-untyped-def]
    """Count the values 0 .. 4, and those above; and the negative ones."""
    own, below = np.zeros(6, np.int64), 0  # threads that write to neighbours in memory wait for each other
    for value in values:
        own[min(np.uint64(value), np.uint64(5))] += 1
        below += value < 0
    found += own
    negative[0] += below


def interpolate(
    counts: Counts,
    weights: Weights,
    discounts: Floats,  # (order, 4): D for weights 0, 1, 2 and 3 or more
) -> tuple[Floats, Floats, Floats]:
    """Base, rows and backoffs of interpolated discounting at every order."""
    first, levels = counts.trie.first, counts.trie.levels.tolist()
    rows, backoffs = np.empty(counts.trie.size), np.empty(counts.trie.num_histories)
    rows[: levels[1]] = 0.0
    totals = np.empty(0, first.dtype) if weights.totals is None else weights.totals
    for order in range(2, counts.order + 1):
        arrays = first, weights.of(order), totals, discounts[order - 1]
        bounds = _equal_shares(first, *levels[order - 2 : order])

        def discount(part: int, _: int, arrays: Any = arrays, bounds: Any = bounds) -> None:
            discount_children(*arrays, bounds[part], bounds[part + 1], rows, backoffs)

        over_ranges(discount, len(bounds) - 1, len(bounds) - 1)
    base = discounted_unigrams(weights.of(1)[: counts.vocab.size], discounts[0], uniform(counts))
    return base, rows, backoffs


def _equal_shares(first: NDArray[np.int32], start: int, stop: int) -> list[int]:
    """Histories at which shares of about equally many followers begin, a share for each thread."""
    low, high = int(first[start]), int(first[stop])
    threads = threads_for(high - low)
    targets = (low + (high - low) * np.arange(1, threads) // threads).astype(first.dtype)  # else numpy copies `first`
    return [start, *(start + np.searchsorted(first[start:stop], targets)).tolist(), stop]


def discount_plan(name: str, counts: Counts, discounts: Floats, notes: dict[str, Any], *, adjusted: bool) -> Plan:
    """The same, block by block; with the adjusted counts or the plain ones."""
    weights = counts.derived.adjusted if adjusted else counts.counts
    base = discounted_unigrams(weights[: counts.vocab.size], discounts[0], uniform(counts))
    return Plan(name, base, partial(_fill, discounts, adjusted), notes)


def _fill(discounts: Floats, adjusted: bool, block: Block) -> tuple[Floats, Floats]:
    weights = block.adjusted if adjusted else block.counts
    totals = block.adjusted_totals if adjusted else block.totals
    rows, backoffs = np.empty(len(weights)), np.empty(len(totals))
    discount_children(block.first, weights, totals, discounts[block.order - 1], 0, len(totals), rows, backoffs)
    return rows, backoffs


@njit(cache=True, nogil=True)
def discount_children(first, counts, totals, discounts, start, stop, rows, backoffs):  # type: ignore[no-untyped-def]
    """For the histories start..stop: rows = (c - D[min(c, 3)]) / total, and what is taken away becomes the backoff.

    D[r] <= r, so nothing goes below zero. Without `totals` it is the sum of the counts. `totals` may exceed it
    (thresholds dropped some): that mass, too, goes to the backoff. It is found from whole numbers, so no rounding adds
    up over many followers.
    """
    given = len(totals) > 0
    for history in range(start, stop):
        begin, end = first[history], first[history + 1]
        total = np.int64(0)
        if given:
            total = np.int64(totals[history])
        else:
            for child in range(begin, end):
                total += counts[child]
        if total == 0:
            rows[begin:end] = 0.0
            backoffs[history] = 1.0
            continue
        left, ones, twos, more = total, 0, 0, 0
        for child in range(begin, end):
            count = counts[child]
            rows[child] = (count - discounts[min(count, 3)]) / total
            left -= count
            ones, twos, more = ones + (count == 1), twos + (count == 2), more + (count > 2)
        backoffs[history] = (left + ones * discounts[1] + twos * discounts[2] + more * discounts[3]) / total


def discounted_unigrams(weights: NDArray[np.int32], discounts: Floats, floor: Floats) -> Floats:
    """(c - D(c)) / total + (mass taken away) * floor, over the whole vocabulary."""
    total = weights.sum()
    taken = discounts[np.minimum(weights, 3)]
    found: Floats = (weights - taken) / total + taken.sum() / total * floor
    return found


@dataclass(frozen=True)
class SingleDiscount:
    """Interpolated discounting with one discount per order."""

    discount: float | None = None
    """D at every order, between 0 and 1; by default n_1 / (n_1 + 2 n_2) of each order"""
    fallback: float | None = None
    """D for orders in which no n-gram has the count 1, so that the default is undefined"""

    name: ClassVar[str]
    adjusted: ClassVar[bool]
    """whether Kneser-Ney's counts are discounted, or the plain ones"""

    def __post_init__(self) -> None:
        check_discount("discount", self.discount)
        check_discount("fallback", self.fallback)

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        weights = self._weights(counts)
        discounts, notes = self._discounts(counts, weights)
        return make_table(self, self.name, counts, *interpolate(counts, weights, discounts), **notes)

    def plan(self, counts: Counts) -> Plan:
        """The same, block by block."""
        discounts, notes = self._discounts(counts, self._weights(counts))
        return discount_plan(self.name, counts, discounts, notes, adjusted=self.adjusted)

    def _weights(self, counts: Counts) -> Weights:
        return Weights.adjusted(counts) if self.adjusted else Weights.plain(counts)

    def _discounts(self, counts: Counts, weights: Weights) -> tuple[Floats, dict[str, Any]]:
        """D for the weights 0, 1, 2 and 3 or more of each order, and what the signature says of them."""
        found, fallen = self._per_order(counts, weights)
        announce_fallback(self.name, self.fallback, fallen, stacklevel=4)
        return np.outer(found, [0.0, 1.0, 1.0, 1.0]), {"discounts": found, "fallback_orders": fallen}

    def _per_order(self, counts: Counts, weights: Weights) -> tuple[list[float], list[int]]:
        """The discount of each order, and the orders that use `fallback`."""
        if self.discount is not None:
            return [self.discount] * counts.order, []
        orders = range(1, counts.order + 1)
        found = [leaving_one_out(counts_of_counts(counts, weights, order, adjusted=self.adjusted)) for order in orders]
        fallen = [order for order, discount in enumerate(found, start=1) if discount is None]
        if fallen and self.fallback is None:
            kind = "adjusted count" if self.adjusted else "count"
            raise SmoothingUndefined(
                f"{self.name} is undefined for order {fallen[0]}: no {fallen[0]}-gram has the {kind} 1 (n_1 = 0)",
                hint="use more text, or give a discount, or fallback=0.75 for such orders",
            )
        return [self.fallback if d is None else d for d in found], fallen  # type: ignore[misc]


def leaving_one_out(histogram: NDArray[np.int64]) -> float | None:
    """Ney's estimate D = n_1 / (n_1 + 2 n_2) from counts of counts; None without n_1, 0 where there is nothing at all.

    >>> leaving_one_out(np.array([0, 6, 2])), leaving_one_out(np.array([0, 0, 2])), leaving_one_out(np.array([0]))
    (0.6, None, 0.0)
    """
    n1, n2 = (int(histogram[r]) if r < len(histogram) else 0 for r in (1, 2))
    if n1 == 0:
        return None if histogram[1:].any() else 0.0
    return n1 / (n1 + 2 * n2)
