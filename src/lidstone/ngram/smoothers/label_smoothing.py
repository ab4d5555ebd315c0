"""Label smoothing as a smoother: what a model learns from counts when every target is mixed with the uniform.

    p(w|h) = (c(hw)/c(h) + gamma u(w)) / (1 + gamma)          u uniform over E; an unseen history: uniform      (1)

Unlike add-lambda, the uniform's share does not shrink as c(h) grows: weighted per position, label smoothing of
strength gamma is Jelinek-Mercer interpolation with the uniform, weight 1/(1 + gamma).

gamma is the paper's strength. PyTorch, and this package's label-smoothing loss, name the uniform's share instead:
epsilon = gamma / (1 + gamma), p(w|h) = (1 - epsilon) c(hw)/c(h) + epsilon u(w). Both names are accepted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import BlockFit, BlockSmoother, uniform, unigrams


@dataclass(frozen=True)
class LabelSmoothing(BlockSmoother):
    """Per-position label smoothing of the order-n counts.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> LabelSmoothing(gamma=0.5).fit(counts).prob([[1]]).round(4).tolist()    # (1/2 + .5/3)/1.5, (0 + .5/3)/1.5
    [[0.4444, 0.1111, 0.4444]]
    >>> LabelSmoothing(epsilon=0.1).fit(counts).prob([[1]]).round(4).tolist()    # .9/2 + .1/3, .1/3
    [[0.4833, 0.0333, 0.4833]]
    """

    name: ClassVar[str] = "label-smoothing"
    gamma: float | None = None
    """strength of the uniform against the text, 0 or more, as in the paper; 0.1 where epsilon is not given either"""
    epsilon: float | None = None
    """the uniform's share, from 0 to 1, as in `torch.nn.CrossEntropyLoss(label_smoothing=epsilon)`"""

    def __post_init__(self) -> None:
        if self.gamma is not None and self.epsilon is not None:
            raise InputError("gamma and epsilon are two ways to say one thing", hint="give one of them")
        if self.gamma is None and self.epsilon is None:
            object.__setattr__(self, "gamma", 0.1)
        if self.gamma is not None and not 0 <= self.gamma < float("inf"):
            raise InputError(f"gamma must be 0 or more, not {self.gamma}", hint="0.1 is usual")
        if self.epsilon is not None and not 0 <= self.epsilon <= 1:
            raise InputError(f"epsilon must be from 0 to 1, not {self.epsilon}", hint="0.1 is usual")

    def prepare(self, counts: Counts) -> BlockFit:
        """The share of c(hw)/c(h) is one for all whole histories."""
        base = uniform(counts)
        if counts.order == 1:
            base = self._share * unigrams(counts) + (1 - self._share) * base
        return BlockFit.interpolated(base, lambda block: np.where(block.whole, self._share, 0.0))  # (1)

    @property
    def _share(self) -> float:
        """What the text keeps."""
        return 1 / (1 + self.gamma) if self.gamma is not None else 1 - float(self.epsilon or 0)
