"""Kneser-Essen-Ney: interpolated, one discount per order, continuation counts below the top.

    p(w|h) = max(a(hw) - D, 0) / a(h.) + D N_1+(h.) / a(h.) p(w|h'),      D = n_1 / (n_1 + 2 n_2)

a is the adjusted count: how many distinct words precede the n-gram; plain counts at the top order and after `<s>`.
n_r n-grams of the order have the adjusted count r. Unigrams are interpolated with the uniform distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lidstone.errors import InputError, SmoothingUndefined
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import interpolate, make_table
from lidstone.ngram.table import BackoffTable


@dataclass(frozen=True)
class KneserEssenNey:
    """Kneser-Essen-Ney smoothing.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> KneserEssenNey(discount=0.5).fit(counts).prob([[1]]).round(4).tolist()
    [[0.5, 0.125, 0.375]]
    """

    discount: float | None = None
    """D at every order, between 0 and 1; by default n_1 / (n_1 + 2 n_2) of each order"""

    def __post_init__(self) -> None:
        if self.discount is not None and not 0 <= self.discount <= 1:
            raise InputError(f"discount must be between 0 and 1, not {self.discount}", hint="0.75 is usual")

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        derived = counts.derived
        found = [self._discount(counts, order) for order in range(1, counts.order + 1)]
        discounts = np.outer(found, [0.0, 1.0, 1.0, 1.0])
        parts = interpolate(counts, derived.adjusted, derived.adjusted_totals, discounts)
        return make_table(self, "kneser-essen-ney", counts, *parts, discounts=found)

    def _discount(self, counts: Counts, order: int) -> float:
        if self.discount is not None:
            return self.discount
        histogram = counts.counts_of_counts(order, adjusted=True)
        n1, n2 = (int(histogram[r]) if r < len(histogram) else 0 for r in (1, 2))
        if n1 == 0:
            raise SmoothingUndefined(
                f"the Kneser-Essen-Ney discount is undefined for order {order}: no {order}-gram has the adjusted "
                "count 1 (n_1 = 0)",
                hint="use more text, or give a discount, such as discount=0.75",
            )
        return n1 / (n1 + 2 * n2)
