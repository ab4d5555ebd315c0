"""Add-lambda (Lidstone): pretend to have seen every word lambda times more after every history.

p(w|h) = (c(hw) + lam) / (c(h) + lam |E|)         lam = 1 is Laplace's rule; an unseen history: uniform
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import Floats, make_table, pseudo_counts
from lidstone.ngram.smoothers.plan import Block, Plan, pseudo_count_plan
from lidstone.ngram.table import BackoffTable


@dataclass(frozen=True)
class AddLambda:
    """Add-lambda smoothing of the order-n counts.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> AddLambda(lam=0.5).fit(counts).prob([[2], [1]]).round(4).tolist()    # (1+.5)/(1+1.5) ...; (1+.5)/(2+1.5) ...
    [[0.6, 0.2, 0.2], [0.4286, 0.1429, 0.4286]]
    """

    lam: float = 1.0
    """lambda, how often each event counts as seen before any text; > 0"""

    def __post_init__(self) -> None:
        if not 0 < self.lam < 1e30:  # times |E| it must still be a number
            raise InputError(
                f"lam must be positive and finite, not {self.lam}", hint="the paper uses 0.01, 0.05 and 0.1"
            )

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        return make_table(self, "add-lambda", counts, *pseudo_counts(counts, counts.counts + self.lam, self.lam))

    def plan(self, counts: Counts) -> Plan:
        """The same, block by block."""
        return pseudo_count_plan("add-lambda", counts, partial(_weights, self.lam), self.lam, {})


def _weights(lam: float, block: Block) -> Floats:
    return block.counts.astype(np.float64) + lam
