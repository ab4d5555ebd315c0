"""Add-lambda (Lidstone): pretend to have seen every word lambda times more after every history.

    p(w|h) = (c(hw) + lam) / (c(h) + lam |E|)                                                                   (1)

lam = 1 is Laplace's rule; an unseen history: uniform
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import BlockFit, BlockSmoother, Floats, Ints, pseudo_counts


@dataclass(frozen=True)
class AddLambda(BlockSmoother):
    """Add-lambda smoothing of the order-n counts.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> AddLambda(lam=0.5).fit(counts).prob([[2], [1]]).round(4).tolist()    # (1+.5)/(1+1.5) ...; (1+.5)/(2+1.5) ...
    [[0.6, 0.2, 0.2], [0.4286, 0.1429, 0.4286]]
    """

    name: ClassVar[str] = "add-lambda"
    lam: float = 1.0
    """lambda, how often each event counts as seen before any text; > 0"""

    def __post_init__(self) -> None:
        if not 0 < self.lam < 1e30:  # times |E| it must still be a number
            raise InputError(
                f"lam must be positive and finite, not {self.lam}", hint="the paper uses 0.01, 0.05 and 0.1"
            )

    def prepare(self, counts: Counts) -> BlockFit:
        """Every event weighs its count and `lam`."""
        return pseudo_counts(counts, self._weights, self.lam)  # (1)

    def _weights(self, counts: Ints, _: NDArray[np.bool_]) -> Floats:
        return counts.astype(np.float64) + self.lam
