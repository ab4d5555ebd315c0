"""Absolute discounting (Ney, Essen & Kneser 1994): the same amount off every count, interpolated.

    p(w|h) = max(c(hw) - D, 0) / c(h) + D N_1+(h.) / c(h) p(w|h'),      D = n_1 / (n_1 + 2 n_2)

n_r n-grams of the order occur r times. Plain counts at every order: that is the difference from Kneser-Essen-Ney.
Unigrams are interpolated with the uniform distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lidstone.deprecation import renamed_field
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import Floats, announce_fallback, make_table
from lidstone.ngram.smoothers.discounting import (
    Weights,
    check_discount,
    discount_plan,
    interpolate,
    single_discounts,
)
from lidstone.ngram.smoothers.plan import Plan
from lidstone.ngram.table import BackoffTable

NAME = "absolute-discounting"


@renamed_field("d", "discount")
@dataclass(frozen=True)
class AbsoluteDiscounting:
    """Absolute discounting, interpolated.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> AbsoluteDiscounting(discount=0.5).fit(counts).prob([[], [1]]).round(4).tolist()    # (1.5, 1.5, .5)/5 + .3/3 ...
    [[0.4, 0.4, 0.2], [0.45, 0.2, 0.35]]
    """

    discount: float | None = None
    """D at every order, between 0 and 1; by default n_1 / (n_1 + 2 n_2) of each order"""
    fallback: float | None = None
    """D for orders in which no n-gram occurs once, so that the default is undefined"""

    def __post_init__(self) -> None:
        check_discount("discount", self.discount)
        check_discount("fallback", self.fallback)

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        weights = Weights.plain(counts)
        discounts, notes = self._discounts(counts, weights)
        return make_table(self, NAME, counts, *interpolate(counts, weights, discounts), **notes)

    def plan(self, counts: Counts) -> Plan:
        """The same, block by block."""
        return discount_plan(NAME, counts, *self._discounts(counts, Weights.plain(counts)), adjusted=False)

    def _discounts(self, counts: Counts, weights: Weights) -> tuple[Floats, dict[str, Any]]:
        """D for the weights 0, 1, 2 and 3 or more of each order, and what the signature says of them."""
        found, fallen = single_discounts(NAME, counts, weights, self.discount, self.fallback, adjusted=False)
        announce_fallback(NAME, self.fallback, fallen, stacklevel=4)
        return np.outer(found, [0.0, 1.0, 1.0, 1.0]), {"discounts": found, "fallback_orders": fallen}
