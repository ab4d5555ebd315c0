"""Label smoothing as a smoother: what a model learns from counts when every target is mixed with the uniform.

    p(w|h) = (c(hw)/c(h) + gamma u(w)) / (1 + gamma)          u uniform over E; an unseen history: uniform

Unlike add-lambda, the uniform's share does not shrink as c(h) grows: weighted per position, label smoothing of
strength gamma is Jelinek-Mercer interpolation with the uniform, weight 1/(1 + gamma). In the convention of
`torch.nn.CrossEntropyLoss(label_smoothing=e)`, e = gamma / (1 + gamma).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import full_histories, make_table, mix, uniform, unigrams
from lidstone.ngram.table import BackoffTable


@dataclass(frozen=True)
class LabelSmoothing:
    """Per-position label smoothing of the order-n counts.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> LabelSmoothing(gamma=0.5).fit(counts).prob([[1]]).round(4).tolist()    # (1/2 + .5/3)/1.5, (0 + .5/3)/1.5
    [[0.4444, 0.1111, 0.4444]]
    """

    gamma: float = 0.1
    """strength of the uniform against the text; >= 0"""

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < float("inf"):
            raise InputError(f"gamma must be 0 or more, not {self.gamma}", hint="0.1 is usual")

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        share = 1 / (1 + self.gamma)
        shares = np.where(full_histories(counts), share, 0.0)
        base = uniform(counts)
        if counts.order == 1:
            base = share * unigrams(counts) + (1 - share) * base
        return make_table(self, "label-smoothing", counts, base, *mix(counts, shares))
