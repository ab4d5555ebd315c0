"""`LinearSmoothedCrossEntropy`: output projection and regularized loss together, never holding all logits.

Positions are taken in chunks: project a chunk, take its losses, turn its logits into their gradient in place, and
multiply that back into the gradients of the hidden states and of the weight. In two dense lines,

    logits = hidden @ weight.T + bias
    total  = SmoothedCrossEntropy(...)(logits, labels).total
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lidstone.errors import InputError
from lidstone.loss import linear_operators
from lidstone.loss.checks import check_transforms
from lidstone.loss.columns.weighted import weighted_linear_loss
from lidstone.loss.loss import LossParts, SmoothedLoss
from lidstone.loss.sharded import gathered


class LinearSmoothedCrossEntropy(SmoothedLoss):
    """Cross-entropy of `hidden @ weight.T + bias`, regularized by an n-gram model, in chunks of positions.

    >>> loss = LinearSmoothedCrossEntropy()
    >>> hidden, weight = torch.zeros(1, 3, 2, requires_grad=True), torch.zeros(4, 2, requires_grad=True)
    >>> round(loss(hidden, weight, torch.tensor([[1, 3, 0]])).total.item(), 4)
    1.3863
    """

    def forward(
        self,
        hidden: Tensor,  # (batch, time, d)
        weight: Tensor,  # (V, d)
        labels: Tensor | None = None,  # (batch, time)
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
        bias: Tensor | None = None,  # (V,)
        **others: Any,
    ) -> LossParts:
        """The loss of hidden states that predict the labels at the same positions; see SmoothedCrossEntropy."""
        check_transforms()
        if labels is None or others:  # as when the Trainer calls the loss itself
            hint = (
                "with a Trainer use SmoothedLossMixin and smoothed_loss=; compute_loss_func= gives it no hidden states"
            )
            raise InputError("the linear loss needs hidden states, the output matrix and labels", hint=hint)
        weight, bias = gathered(weight), gathered(bias)
        if self.reduction == "none":
            raise InputError("the linear loss sums over positions", hint='use reduction="mean" or "sum"')
        if hidden.shape[:-1] != labels.shape or hidden.shape[-1] != weight.shape[-1]:
            raise InputError(
                f"hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)} and labels {tuple(labels.shape)} "
                "do not fit",
                hint="hidden is (batch, time, d), weight (V, d), labels (batch, time)",
            )
        self._check_vocabulary(len(weight), "output matrix")
        gold = self._gold(labels, len(weight))
        if self.weighted is not None and self.training and torch.is_grad_enabled():
            return weighted_linear_loss(self, self.weighted, (hidden, weight, bias), labels, histories, num_items)
        plan = self._plan(gold, histories)
        leaves = (hidden, weight, bias)
        wants = [torch.is_grad_enabled() and leaf is not None and leaf.requires_grad for leaf in leaves]
        sums, *_ = linear_operators.linear_losses(
            hidden.reshape(-1, hidden.shape[-1]),
            weight,
            bias,
            gold.reshape(-1),
            self._scale(gold >= 0, num_items),
            plan,
            *self._table,
            product_type(hidden),
            *wants,
        )
        total, *parts = sums.unbind()
        return LossParts(total, *(part.detach() for part in parts))


def product_type(hidden: Tensor) -> torch.dtype:
    """The type in which hidden states are multiplied here."""
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
