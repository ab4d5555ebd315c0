"""Interpolated discounting: take something off each count and give it to the order below.

    p(w|h) = (c(hw) - D(c(hw))) / c(h) + gamma(h) p(w|h')                                                       (1)
    gamma(h) = what was taken off / c(h)                                                                        (2)

Kneser-Ney and absolute discounting differ only in the counts they put in and in D. Unigrams rest on the uniform.
`SingleDiscount` is what absolute discounting and Kneser-Essen-Ney share.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import SmoothingUndefined
from lidstone.jit import kernel
from lidstone.ngram.adjusted import adjusted_counts, tally
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import (
    BlockFit,
    BlockSmoother,
    FilledBlock,
    Floats,
    HistoryBlock,
    Ints,
    check_discount,
    uniform,
)
from lidstone.parallel import threads_for

NO_TOTALS: Ints = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class DiscountedCounts:
    """What is discounted: the plain or the adjusted count of each n-gram; and what the sums of a history's are.

    Where `counts.derived` is not there yet, only what is needed of it is computed, and sums are taken by the kernel.
    """

    adjusted: bool
    """whether Kneser-Ney's counts are discounted, or the plain ones"""
    derived: bool
    """whether they are taken from `counts.derived`"""
    below: Ints
    """otherwise the adjusted counts of the n-grams below the top order; at the top they are the plain ones"""

    @classmethod
    def of(cls, counts: Counts, *, adjusted: bool) -> DiscountedCounts:
        """The adjusted counts, or the plain ones."""
        needed = adjusted and not counts.is_derived
        return cls(adjusted, counts.is_derived, adjusted_counts(counts.trie, counts.counts) if needed else NO_TOTALS)

    def level(self, counts: Counts, order: int) -> Ints:
        """Those of all n-grams of an order, `<s>` left out: it is never predicted."""
        level = counts.trie.level(order)
        part = slice(level.start, level.stop - (order == 1))
        if not self.adjusted:
            return counts.counts[part]
        if self.derived:
            return counts.derived.adjusted[part]
        return counts.counts[part] if order == counts.order else self.below[part]

    def of_block(self, block: HistoryBlock) -> tuple[Ints, Ints]:
        """Those of the followers, and their sum in the whole text for each history, or `NO_TOTALS`."""
        if self.derived:
            return (block.adjusted, block.adjusted_totals) if self.adjusted else (block.counts, block.totals)
        plain = not self.adjusted or block.order == block.source.order
        return block.counts if plain else self.below[block.followers], NO_TOTALS

    def counts_of_counts(self, counts: Counts, order: int) -> NDArray[np.int64]:
        """How many n-grams of an order have the count 0, 1, ..; at least up to 4."""
        if self.derived:
            return counts.counts_of_counts(order, adjusted=self.adjusted)
        values = self.level(counts, order)
        with ThreadPoolExecutor(threads_for(len(values))) as pool:
            found = list(pool.map(lambda part: tally([part], 63), np.array_split(values, threads_for(len(values)))))
        return np.asarray(np.sum(found, axis=0))


def discount(
    counts: Counts,
    discounted: DiscountedCounts,
    discounts: Floats,  # (order, 4): D for counts of 0, 1, 2 and 3 or more
    fallback_orders: list[int],
    noted: Any,
) -> BlockFit:
    """The fit of interpolated discounting at every order; `noted` is what the signature says of the discounts."""
    base = _discounted_unigrams(discounted.level(counts, 1), discounts[0], uniform(counts))
    notes = {"discounts": noted, "fallback_orders": fallback_orders}
    return BlockFit(base, partial(_discount, discounted, discounts), notes, derived=discounted.derived)


def _discount(discounted: DiscountedCounts, discounts: Floats, block: HistoryBlock, out: FilledBlock) -> None:
    discount_followers(block.first, *discounted.of_block(block), discounts[block.order - 1], out.rows, out.backoffs)


@kernel
def discount_followers(first, counts, totals, discounts, rows, backoffs):  # type: ignore[no-untyped-def]
    """For each history: rows = (c - D[min(c, 3)]) / total, and what is taken away becomes the backoff.

    Followers of history i are first[i]:first[i+1], the first of all at 0. D[r] <= r, so nothing goes below zero.
    Without `totals` it is the sum of the counts. `totals` may exceed it (thresholds dropped some): that mass, too, goes
    to the backoff. It is found from whole numbers, so no rounding adds up over many followers.
    """
    given = len(totals) > 0
    for history in range(len(backoffs)):
        begin, end = first[history] - first[0], first[history + 1] - first[0]
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
            rows[child] = (count - discounts[min(count, 3)]) / total  # (1)
            left -= count
            ones, twos, more = ones + (count == 1), twos + (count == 2), more + (count > 2)
        backoffs[history] = (left + ones * discounts[1] + twos * discounts[2] + more * discounts[3]) / total  # (2)


def _discounted_unigrams(counts: Ints, discounts: Floats, floor: Floats) -> Floats:
    """(1) over the whole vocabulary, with `floor` as the order below."""
    total = counts.sum()
    taken = discounts[np.minimum(counts, 3)]
    found: Floats = (counts - taken) / total + taken.sum() / total * floor
    return found


@dataclass(frozen=True)
class SingleDiscount(BlockSmoother):
    """Interpolated discounting with one discount per order."""

    discount: float | None = None
    """D at every order, between 0 and 1; by default n_1 / (n_1 + 2 n_2) of each order"""
    fallback: float | None = None
    """D for orders in which no n-gram has the count 1, so that the default is undefined"""

    adjusted: ClassVar[bool]
    """whether Kneser-Ney's counts are discounted, or the plain ones"""

    def __post_init__(self) -> None:
        check_discount("discount", self.discount)
        check_discount("fallback", self.fallback)

    def prepare(self, counts: Counts) -> BlockFit:
        """One discount per order, given or from the counts of counts."""
        discounted = DiscountedCounts.of(counts, adjusted=self.adjusted)
        found, fallen = self._per_order(counts, discounted)
        return discount(counts, discounted, np.outer(found, [0.0, 1.0, 1.0, 1.0]), fallen, found)

    def _per_order(self, counts: Counts, discounted: DiscountedCounts) -> tuple[list[float], list[int]]:
        """The discount of each order, and the orders that use `fallback`."""
        if self.discount is not None:
            return [self.discount] * counts.order, []
        orders = range(1, counts.order + 1)
        found = [leaving_one_out(discounted.counts_of_counts(counts, order)) for order in orders]
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
