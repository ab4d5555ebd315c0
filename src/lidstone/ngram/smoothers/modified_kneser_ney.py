"""Modified Kneser-Ney (Chen & Goodman 1998): interpolated, three discounts per order; what KenLM's lmplz estimates.

    p(w|h) = (a(hw) - D(a(hw))) / a(h.) + gamma(h) p(w|h'),    D(r) = D_1, D_2 or D_3+

a is the adjusted count: how many distinct words precede the n-gram; plain counts at the top order and after `<s>`.
    D_r = r - (r+1) Y t_{r+1} / t_r,   Y = t_1 / (t_1 + 2 t_2),   t_r n-grams of that order have adjusted count r.  (1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, SmoothingUndefined
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import BlockFit, BlockSmoother
from lidstone.ngram.smoothers.discounting import DiscountedCounts, discount

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts for orders of little text, those of lmplz --discount_fallback."""


@dataclass(frozen=True)
class ModifiedKneserNey(BlockSmoother):
    """Modified Kneser-Ney smoothing.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> ModifiedKneserNey().fit(counts)
    Traceback (most recent call last):
    lidstone.errors.SmoothingUndefined: modified-kneser-ney is undefined for order 1: the counts of counts ...
    """

    name: ClassVar[str] = "modified-kneser-ney"
    fallback: tuple[float, float, float] | None = None
    """discounts for orders whose counts of counts leave them undefined (lmplz --discount_fallback: 0.5, 1, 1.5)"""

    def __post_init__(self) -> None:
        if self.fallback is None:
            return
        object.__setattr__(self, "fallback", tuple(self.fallback))
        if len(self.fallback) != 3 or not all(0 <= d <= r for r, d in enumerate(self.fallback, start=1)):
            raise InputError(
                f"fallback must be three discounts, of at most 1, 2 and 3, not {self.fallback}",
                hint=f"lmplz uses {FALLBACK}",
            )

    def prepare(self, counts: Counts) -> BlockFit:
        """Three discounts per order, from the counts of counts."""
        discounted = DiscountedCounts.of(counts, adjusted=True)
        found = [self._discounts(counts, discounted, order) for order in range(1, counts.order + 1)]
        fallen = [order for order, d in enumerate(found, start=1) if d is None]
        discounts = np.array([[0.0, *(self.fallback if d is None else d)] for d in found])  # type: ignore[misc]
        return discount(counts, discounted, discounts, fallen, discounts[:, 1:].tolist())

    def _discounts(self, counts: Counts, discounted: DiscountedCounts, order: int) -> list[float] | None:
        """D_1, D_2, D_3+ of one order, or None where they are undefined and the fallback is used."""
        histogram = discounted.counts_of_counts(counts, order)
        discounts = chen_goodman(histogram)
        if discounts is None and self.fallback is None:
            raise SmoothingUndefined(
                f"modified-kneser-ney is undefined for order {order}: the counts of counts t_1..t_4 are "
                f"{_first_four(histogram)[1:].astype(int).tolist()}",
                hint=f"use more text, or fallback={FALLBACK}",
            )
        return discounts


def chen_goodman(histogram: NDArray[np.int64]) -> list[float] | None:
    """D_1, D_2, D_3+ from counts of counts; None where they are undefined, zeros where there is nothing at all.

    >>> chen_goodman(np.array([0, 8, 4, 2, 1]))      # Y = 1/2
    [0.5, 1.25, 2.0]
    """
    if not histogram[1:].any():
        return [0.0, 0.0, 0.0]
    t = _first_four(histogram)
    if not t[1:4].all():
        return None
    y = t[1] / (t[1] + 2 * t[2])
    discounts = [float(r - (r + 1) * y * t[r + 1] / t[r]) for r in (1, 2, 3)]  # (1)
    return discounts if all(0 <= d <= r for r, d in enumerate(discounts, start=1)) else None


def _first_four(histogram: NDArray[np.int64]) -> NDArray[np.float64]:
    t = np.zeros(5)
    t[: len(histogram[:5])] = histogram[:5]
    return t
