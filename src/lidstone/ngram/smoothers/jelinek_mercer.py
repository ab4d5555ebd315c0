"""Jelinek-Mercer: a fixed weight for each order, the rest for the orders below.

    p_k(w|h) = lam_k c(hw)/c(h) + (1 - lam_k) p_{k-1}(w|h'),      p_0 uniform over E

An unseen history passes through to h'. Grounded in the unigram, lam_1 is 1: then a word that the text lacks has the
probability zero after every history. The weights are given, or learnt from held-out text by EM (`learn`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import Floats, make_table, mix, uniform, unigrams
from lidstone.ngram.smoothers.plan import Block, Plan, mix_plan
from lidstone.ngram.table import BackoffTable
from lidstone.text.datasets import Sentences


@dataclass(frozen=True)
class JelinekMercer:
    """Jelinek-Mercer interpolation.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> JelinekMercer(weights=0.5).fit(counts).prob([[], [1]]).round(4).tolist()   # (2/5, 2/5, 1/5)/2 + (1/3)/2, ...
    [[0.3667, 0.3667, 0.2667], [0.4333, 0.1833, 0.3833]]
    """

    weights: float | tuple[float, ...] = 0.75
    """lam_k from 0 to 1: one number for every order, or one for each, lowest first"""
    base: Literal["uniform", "unigram"] = "uniform"
    """what the recursion ends in; unigram means lam_1 = 1, and a sequence of weights may begin with that of order 2"""

    def __post_init__(self) -> None:
        plain = float(self.weights) if np.ndim(self.weights) == 0 else tuple(map(float, self.weights))  # type: ignore
        object.__setattr__(self, "weights", plain)
        if self.base not in ("uniform", "unigram"):
            raise InputError(f"base must be 'uniform' or 'unigram', not {self.base!r}")
        if not all(0 <= weight <= 1 for weight in np.atleast_1d(self.weights)):
            raise InputError(f"weights must be from 0 to 1, not {self.weights}", hint="the paper uses 0.25, 0.5, 0.75")

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        lam = self.per_order(counts.order)
        share = np.repeat(lam[1:], np.diff(counts.trie.levels)[:-1])  # a history of k words belongs to order k + 1
        return make_table(self, "jelinek-mercer", counts, _base(counts, lam[0]), *mix(counts, share))

    def plan(self, counts: Counts) -> Plan:
        """The same, block by block."""
        lam = self.per_order(counts.order)
        return mix_plan("jelinek-mercer", _base(counts, lam[0]), partial(_share, lam))

    def per_order(self, order: int) -> tuple[float, ...]:
        """lam_1 .. lam_n.

        >>> JelinekMercer(0.6).per_order(3), JelinekMercer(0.6, base="unigram").per_order(3)
        ((0.6, 0.6, 0.6), (1.0, 0.6, 0.6))
        """
        grounded = self.base == "unigram"
        if not isinstance(self.weights, tuple):
            return (1.0 if grounded else self.weights, *[self.weights] * (order - 1))
        if grounded and len(self.weights) == order - 1:
            return (1.0, *self.weights)
        if len(self.weights) != order or (grounded and self.weights[0] != 1):
            raise InputError(
                f"{len(self.weights)} weights {self.weights} do not fit order {order} with base='{self.base}'",
                hint="give one per order, lowest first; with base='unigram', begin with that of the bigrams",
            )
        return self.weights

    @classmethod
    def learn(
        cls,
        counts: Counts,
        held_out: Sentences,
        *,
        base: Literal["uniform", "unigram"] = "uniform",
        start: float | Sequence[float] = 0.5,
        tolerance: float = 1e-9,
        iterations: int = 1000,
    ) -> JelinekMercer:
        """The weights that make held-out text most likely, found by EM; the text must not be part of the counts.

        >>> from lidstone.ngram.counts import count
        >>> from lidstone.text.vocabulary import Vocabulary
        >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
        >>> [round(weight, 3) for weight in JelinekMercer.learn(counts, [[1, 2], [2]]).weights]
        [0.0, 0.662]
        """
        from lidstone.ngram.smoothers.held_out import learn_weights, observe

        begin = cls(weights=start, base=base)  # type: ignore[arg-type]
        seen = observe(counts, held_out)
        found = learn_weights(seen, begin.per_order(counts.order), tolerance=tolerance, iterations=iterations)
        return cls(weights=found.weights, base=base)


def _base(counts: Counts, weight: float) -> Floats:
    return weight * unigrams(counts) + (1 - weight) * uniform(counts)


def _share(lam: tuple[float, ...], block: Block) -> Floats:
    return np.full(len(block.totals), lam[block.order - 1])
