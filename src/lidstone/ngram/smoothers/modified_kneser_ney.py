"""Modified Kneser-Ney (Chen & Goodman 1998): interpolated, three discounts per order; what KenLM's lmplz estimates.

    p(w|h) = (a(hw) - D(a(hw))) / a(h.) + gamma(h) p(w|h'),    D(r) = D_1, D_2 or D_3+

a is the adjusted count: how many distinct words precede the n-gram; plain counts at the top order and after `<s>`.
    D_r = r - (r+1) Y t_{r+1} / t_r,   Y = t_1 / (t_1 + 2 t_2),   t_r n-grams of that order have adjusted count r.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import SmoothingUndefined
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import interpolate, make_table
from lidstone.ngram.table import BackoffTable


@dataclass(frozen=True)
class ModifiedKneserNey:
    """Modified Kneser-Ney smoothing.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> ModifiedKneserNey().fit(counts)
    Traceback (most recent call last):
    lidstone.errors.SmoothingUndefined: modified Kneser-Ney is undefined for order 1: the counts of counts ...
    """

    fallback: tuple[float, float, float] | None = None
    """discounts for orders whose counts of counts leave them undefined (lmplz --discount_fallback: 0.5, 1, 1.5)"""

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        derived = counts.derived
        found = [self._discounts(counts, order) for order in range(1, counts.order + 1)]
        discounts = np.array([[0.0, *(self.fallback if d is None else d)] for d in found])  # type: ignore[misc]
        fallen = [order for order, d in enumerate(found, start=1) if d is None]
        if fallen:
            warnings.warn(
                f"modified-kneser-ney uses its fallback discounts {self.fallback} for orders {fallen}",
                stacklevel=2,
            )
        parts = interpolate(counts, derived.adjusted, derived.adjusted_totals, discounts)
        notes = {"discounts": discounts[:, 1:].tolist(), "fallback_orders": fallen}
        return make_table(self, "modified-kneser-ney", counts, *parts, **notes)

    def _discounts(self, counts: Counts, order: int) -> list[float] | None:
        """D_1, D_2, D_3+ of one order, or None where the fallback has to serve."""
        t = np.zeros(5)
        histogram: NDArray[np.int64] = counts.counts_of_counts(order, adjusted=True)[:5]
        t[: len(histogram)] = histogram
        if t[1:4].all():
            y = t[1] / (t[1] + 2 * t[2])
            discounts = [r - (r + 1) * y * t[r + 1] / t[r] for r in (1, 2, 3)]
            if all(0 <= d <= r for r, d in enumerate(discounts, start=1)):
                return discounts
        if self.fallback is None:
            raise SmoothingUndefined(
                f"modified Kneser-Ney is undefined for order {order}: the counts of counts t_1..t_4 are "
                f"{t[1:].astype(int).tolist()}",
                hint="use more text, or fallback=(0.5, 1.0, 1.5)",
            )
        return None
