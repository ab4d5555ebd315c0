"""The confidence penalty (Pereyra et al., 2017): cross-entropy minus gamma times the entropy of the model.

It is gamma KL(q || uniform), the reverse of the divergence of label smoothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from lidstone.errors import InputError
from lidstone.lab.methods.base import Regularizer, StrengthMethod, TrainingText
from lidstone.loss.checks import check_shapes
from lidstone.loss.losses import LossParts, SmoothedLoss
from lidstone.loss.schedule import Schedule


class ConfidencePenaltyMethod(StrengthMethod):
    """Cross-entropy with the penalty, on logits."""

    kind = "confidence_penalty"

    def describe(self, settings: Regularizer) -> dict[str, Any]:
        uniform = {"order": 1, "form": "exact", "empirical": "token"}  # its counterpart, as in label smoothing
        return super().describe(settings) | uniform

    def loss(
        self, settings: Regularizer, text: TrainingText, make: type[SmoothedLoss], schedule: Schedule
    ) -> SmoothedLoss:
        return ConfidencePenalty(settings.strengths[0], schedule=schedule)


class ConfidencePenalty(SmoothedLoss):
    """Cross-entropy minus gamma times the entropy of the model's distribution (Pereyra et al., 2017).

    loss = -log q(y) - gamma H(q),    H(q) = -sum_w q(w) log q(w)

    >>> loss = ConfidencePenalty(gamma=0.5)
    >>> logits, labels = torch.zeros(1, 1, 4, requires_grad=True), torch.tensor([[2]])
    >>> round(loss(logits, labels).total.item(), 4)              # log 4 - 0.5 log 4
    0.6931
    """

    def __init__(self, gamma: float, **options: Any) -> None:
        if gamma < 0:
            raise InputError(f"the strength of a penalty is {gamma}", hint="use gamma >= 0")
        if options.get("weight") is not None:
            raise InputError("a penalty on the model's distribution has no class weights", hint="leave weight= out")
        super().__init__(None, None, **options)
        self.gamma = gamma

    @property
    def signature(self) -> dict[str, Any]:
        """Everything that determines this loss."""
        return {"confidence_penalty": self.gamma, "schedule": str(self.schedule)}

    def forward(
        self,
        logits: Tensor,  # (batch, time, V)
        labels: Tensor,  # (batch, time)
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
    ) -> LossParts:
        """The loss of logits that score the labels at the same positions; plain NLL in eval mode."""
        if self.reduction == "none":
            raise InputError(
                "a penalty on the model's distribution sums over positions", hint='use reduction="mean" or "sum"'
            )
        check_shapes(logits, labels)
        labels = self._gold(labels, logits.shape[-1])
        counted = labels >= 0
        scale = self._scale(counted, num_items).view(labels.shape)
        logs = log_softmax(logits.float().masked_fill(~counted[..., None], 0), -1)
        gold = torch.where(counted, labels, 0)[..., None]
        nll = -(logs.gather(-1, gold)[..., 0] * scale).sum()
        if not (self.training and torch.is_grad_enabled()):
            return LossParts(nll, nll, nll * 0, nll * 0)
        divergence = self.divergence(logs, labels, histories)
        penalty = self.gamma * self.schedule(self.progress) * (divergence * scale).sum()
        return LossParts(nll + penalty, nll.detach(), penalty.detach(), nll.detach() * 0)

    def divergence(self, logs: Tensor, labels: Tensor, histories: Tensor | None) -> Tensor:
        """What gamma multiplies at each position, (batch, time): minus the entropy, which is KL(q || uniform) - log V.

        `logs` are log q, (batch, time, V); labels are -1 where they are ignored.
        """
        return (logs.exp() * logs.masked_fill(logs.isneginf(), 0)).sum(-1)  # 0 log 0 = 0


METHOD = ConfidencePenaltyMethod()
