"""Kneser-Essen-Ney: interpolated, one discount per order, continuation counts below the top.

    p(w|h) = max(a(hw) - D, 0) / a(h.) + D N_1+(h.) / a(h.) p(w|h'),      D = n_1 / (n_1 + 2 n_2)

a is the adjusted count: how many distinct words precede the n-gram; plain counts at the top order and after `<s>`.
n_r n-grams of the order have the adjusted count r. Unigrams are interpolated with the uniform distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lidstone.ngram.smoothers.discounting import SingleDiscount


@dataclass(frozen=True)
class KneserEssenNey(SingleDiscount):
    """Kneser-Essen-Ney smoothing.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> KneserEssenNey(discount=0.5).fit(counts).prob([[1]]).round(4).tolist()
    [[0.5, 0.125, 0.375]]
    """

    name: ClassVar[str] = "kneser-essen-ney"
    adjusted: ClassVar[bool] = True
