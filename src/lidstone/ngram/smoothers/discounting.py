"""Interpolated discounting: take something off each count and give it to the order below.

    p(w|h) = (c(hw) - D(c(hw))) / c(h) + gamma(h) p(w|h'),      gamma(h) = what was taken off / c(h)

Kneser-Ney and absolute discounting differ only in the counts they put in and in D. Unigrams rest on the uniform.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError, SmoothingUndefined
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import Floats, uniform
from lidstone.parallel import over_ranges


def interpolate(
    counts: Counts,
    weights: NDArray[np.int32],
    totals: NDArray[np.int32],
    discounts: Floats,  # (order, 4): D for counts 0, 1, 2 and 3 or more
) -> tuple[Floats, Floats, Floats]:
    """Base, rows and backoffs of interpolated discounting at every order."""
    rows, backoffs = np.empty(counts.trie.size), np.empty(counts.trie.inner)
    rows[: counts.trie.vocab_size + 1] = 0.0
    for order in range(2, counts.order + 1):
        histories = counts.trie.level(order - 1)
        arrays = counts.trie.first, weights, totals, discounts[order - 1]
        base = histories.start

        def discount(start: int, stop: int, arrays: Any = arrays, base: int = base) -> None:
            discount_children(*arrays, base + start, base + stop, rows, backoffs)

        over_ranges(discount, histories.stop - histories.start)
    base = discounted_unigrams(weights[: counts.vocab.size], discounts[0], uniform(counts))
    return base, rows, backoffs


@njit(cache=True, nogil=True)
def discount_children(first, counts, totals, discounts, start, stop, rows, backoffs):  # type: ignore[no-untyped-def]
    """For the histories start..stop: rows = (c - D[min(c, 3)]) / total, and what is taken away becomes the backoff.

    D[r] <= r, so nothing goes below zero. `totals` may exceed the sum of the counts (thresholds dropped some): that
    mass, too, goes to the backoff. It is found from whole numbers, so no rounding adds up over many followers.
    """
    for history in range(start, stop):
        total = totals[history]
        if total == 0:
            rows[first[history] : first[history + 1]] = 0.0
            backoffs[history] = 1.0
            continue
        left, ones, twos, more = total, 0, 0, 0
        for child in range(first[history], first[history + 1]):
            count = counts[child]
            rows[child] = (count - discounts[min(count, 3)]) / total
            left -= count
            ones, twos, more = ones + (count == 1), twos + (count == 2), more + (count > 2)
        backoffs[history] = (left + ones * discounts[1] + twos * discounts[2] + more * discounts[3]) / total


def discounted_unigrams(weights: NDArray[np.int32], discounts: Floats, floor: Floats) -> Floats:
    """(c - D(c)) / total + (mass taken away) * floor, over the whole vocabulary."""
    total = weights.sum()
    taken = discounts[np.minimum(weights, 3)]
    return (weights - taken) / total + taken.sum() / total * floor


def single_discounts(
    name: str, counts: Counts, given: float | None, fallback: float | None, *, adjusted: bool
) -> tuple[list[float], list[int]]:
    """One discount per order, n_1 / (n_1 + 2 n_2) unless given; and the orders that use `fallback`."""
    if given is not None:
        return [given] * counts.order, []
    found = [leaving_one_out(counts.counts_of_counts(k, adjusted=adjusted)) for k in range(1, counts.order + 1)]
    fallen = [order for order, discount in enumerate(found, start=1) if discount is None]
    if fallen and fallback is None:
        kind = "adjusted count" if adjusted else "count"
        raise SmoothingUndefined(
            f"{name} is undefined for order {fallen[0]}: no {fallen[0]}-gram has the {kind} 1 (n_1 = 0)",
            hint="use more text, or give a discount, or fallback=0.75 for such orders",
        )
    return [fallback if d is None else d for d in found], fallen  # type: ignore[misc]


def leaving_one_out(histogram: NDArray[np.int64]) -> float | None:
    """Ney's estimate D = n_1 / (n_1 + 2 n_2) from counts of counts; None without n_1, 0 where there is nothing at all.

    >>> leaving_one_out(np.array([0, 6, 2])), leaving_one_out(np.array([0, 0, 2])), leaving_one_out(np.array([0]))
    (0.6, None, 0.0)
    """
    n1, n2 = (int(histogram[r]) if r < len(histogram) else 0 for r in (1, 2))
    if n1 == 0:
        return None if histogram[1:].any() else 0.0
    return n1 / (n1 + 2 * n2)


def check_discount(name: str, value: float | None) -> None:
    """Refuse a discount outside 0..1."""
    if value is not None and not 0 <= value <= 1:
        raise InputError(f"{name} must be between 0 and 1, not {value}", hint="0.75 is usual")
