"""Reverse KL to an n-gram model: cross-entropy plus gamma KL(q || p~(.|h)).

The confidence penalty is gamma KL(q || uniform) up to a constant; here the n-gram model stands in place of the uniform
distribution, so the network may be confident where the n-gram model is. A smoother as regularizer is the other
direction, gamma KL(p~ || q).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lidstone.lab.methods.base import Regularizer, StrengthMethod, TrainingText
from lidstone.lab.methods.confidence_penalty import ConfidencePenalty
from lidstone.lab.methods.residual import log_table
from lidstone.loss.losses import SmoothedLoss
from lidstone.loss.schedule import Schedule
from lidstone.loss.targets import Targets, shift_right
from lidstone.ngram.table import BackoffTable


class ReverseKLMethod(StrengthMethod):
    """Cross-entropy with the divergence from the table of a smoother, on logits."""

    kind = "reverse_kl"
    tasks = ("lm",)
    has_smoother = True
    axes = ("gamma", "order")
    has_order = True

    def loss(
        self, settings: Regularizer, text: TrainingText, make: type[SmoothedLoss], schedule: Schedule
    ) -> SmoothedLoss:
        return ReverseKL(text.table(settings), settings.strengths[0], schedule=schedule)


class ReverseKL(ConfidencePenalty):
    """Cross-entropy plus gamma times the divergence of the model's distribution from an n-gram model's.

    loss = -log q(y) + gamma sum_w q(w) (log q(w) - log p~(w|h)),    w in the event space

    >>> from lidstone import Vocabulary, WittenBell, count
    >>> table = WittenBell().fit(count([[1], [2]], Vocabulary(size=3, eos=0), order=1))
    >>> loss = ReverseKL(table, gamma=0.5)
    >>> logits, labels = torch.tensor(table.prob([()])).log()[None], torch.tensor([[2]])
    >>> parts = loss(logits.float().requires_grad_(), labels)
    >>> round(parts.plus.item(), 4)                              # q = p~
    0.0
    """

    def __init__(self, table: BackoffTable, gamma: float, **options: Any) -> None:
        super().__init__(gamma, **options)
        self.signature_of_table = table.signature
        self.log_rows = Targets(log_table(table), None, "token")

    @property
    def signature(self) -> dict[str, Any]:
        """All that determines this loss."""
        return {"reverse_kl": self.gamma, "table": self.signature_of_table, "schedule": str(self.schedule)}

    def divergence(self, logs: Tensor, labels: Tensor, histories: Tensor | None) -> Tensor:
        """KL(q || p~(.|h)) of each position, (batch, time); ids that are never predicted are left out."""
        contexts = shift_right(labels, self.log_rows.vocab.bos) if histories is None else histories
        states, shifts = self.log_rows.histories(contexts)
        distinct, number = torch.unique(states, return_inverse=True)
        rows = self.log_rows.base.repeat(len(distinct), 1)  # log p~ up to a constant of the history
        self.log_rows.add_sparse_rows(rows, distinct, shifts[: len(distinct)], torch.ones_like(rows[:, 0]))
        log_p = torch.log_softmax(rows, -1)[number].view(logs.shape)
        finite = ~(logs.isneginf() | log_p.isneginf())
        return (logs.exp() * (logs - log_p).masked_fill(~finite, 0)).sum(-1)


METHOD = ReverseKLMethod()
