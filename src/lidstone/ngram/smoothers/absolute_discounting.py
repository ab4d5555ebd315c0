"""Absolute discounting (Ney, Essen & Kneser 1994): the same amount off every count, interpolated.

    p(w|h) = max(c(hw) - D, 0) / c(h) + D N_1+(h.) / c(h) p(w|h'),      D = n_1 / (n_1 + 2 n_2)

n_r n-grams of the order occur r times. Plain counts at every order: that is the difference from Kneser-Essen-Ney.
Unigrams are interpolated with the uniform distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lidstone.ngram.smoothers.discounting import SingleDiscount


@dataclass(frozen=True)
class AbsoluteDiscounting(SingleDiscount):
    """Absolute discounting, interpolated.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> AbsoluteDiscounting(discount=0.5).fit(counts).prob([[], [1]]).round(4).tolist()    # (1.5, 1.5, .5)/5 + .3/3 ...
    [[0.4, 0.4, 0.2], [0.45, 0.2, 0.35]]
    """

    name: ClassVar[str] = "absolute-discounting"
    adjusted: ClassVar[bool] = False
