"""Kneser-Essen-Ney: interpolated, one discount per order, continuation counts below the top.

    p(w|h) = max(a(hw) - D, 0) / a(h.) + D N_1+(h.) / a(h.) p(w|h'),      D = n_1 / (n_1 + 2 n_2)

a is the adjusted count: how many distinct words precede the n-gram; plain counts at the top order and after `<s>`.
n_r n-grams of the order have the adjusted count r. Unigrams are interpolated with the uniform distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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

NAME = "kneser-essen-ney"


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
    fallback: float | None = None
    """D for orders in which no n-gram has the adjusted count 1, so that the default is undefined"""

    def __post_init__(self) -> None:
        check_discount("discount", self.discount)
        check_discount("fallback", self.fallback)

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        weights = Weights.adjusted(counts)
        discounts, notes = self._discounts(counts, weights)
        return make_table(self, NAME, counts, *interpolate(counts, weights, discounts), **notes)

    def plan(self, counts: Counts) -> Plan:
        """The same, block by block."""
        return discount_plan(NAME, counts, *self._discounts(counts, Weights.adjusted(counts)), adjusted=True)

    def _discounts(self, counts: Counts, weights: Weights) -> tuple[Floats, dict[str, Any]]:
        """D for the weights 0, 1, 2 and 3 or more of each order, and what the signature says of them."""
        found, fallen = single_discounts(NAME, counts, weights, self.discount, self.fallback, adjusted=True)
        announce_fallback(NAME, self.fallback, fallen, stacklevel=4)
        return np.outer(found, [0.0, 1.0, 1.0, 1.0]), {"discounts": found, "fallback_orders": fallen}
