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
from torch.autograd.function import once_differentiable

from lidstone.errors import InputError
from lidstone.regularizer.checks import report_overflow
from lidstone.regularizer.core import dense_dot, gradient_, losses, plain_losses
from lidstone.regularizer.loss import LossParts, SmoothedLoss
from lidstone.regularizer.targets import Plan, Targets

CHUNK_BYTES = 32 * 2**20


class LinearSmoothedCrossEntropy(SmoothedLoss):
    """Cross-entropy of `hidden @ weight.T + bias`, regularized by an n-gram model, in chunks of positions.

    >>> loss = LinearSmoothedCrossEntropy()
    >>> hidden, weight = torch.zeros(1, 3, 2, requires_grad=True), torch.zeros(4, 2, requires_grad=True)
    >>> round(loss(hidden, weight, torch.tensor([[1, 3, 0]])).total.item(), 4)
    1.3863
    """

    @torch.compiler.disable
    def forward(
        self,
        hidden: Tensor,  # (batch, time, d)
        weight: Tensor,  # (V, d)
        labels: Tensor,  # (batch, time)
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
        bias: Tensor | None = None,  # (V,)
    ) -> LossParts:
        """The loss of hidden states that predict the labels at the same positions; see SmoothedCrossEntropy."""
        if self.reduction == "none":
            raise InputError("the linear loss sums over positions", hint='use reduction="mean" or "sum"')
        if hidden.shape[:-1] != labels.shape or hidden.shape[-1] != weight.shape[-1]:
            raise InputError(
                f"hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)} and labels {tuple(labels.shape)} "
                "do not fit",
                hint="hidden is (batch, time, d), weight (V, d), labels (batch, time)",
            )
        self._check_vocabulary(len(weight), "output matrix")
        counted = self._check_labels(labels, len(weight))
        plan = self._plan(labels, histories, counted)
        flat = torch.where(counted, labels, 0).reshape(-1)
        scale = self._scale(counted, num_items)
        keep = counted.reshape(-1).nonzero()[:, 0]  # ignored positions cost nothing
        plan = None if plan is None else Plan(*(tensor[keep] for tensor in plan))
        states = hidden.reshape(-1, hidden.shape[-1])[keep]
        wanted = torch.is_grad_enabled()
        parts = _FusedLinear.apply(states, weight, bias, flat[keep], plan, self.targets, scale[keep], wanted)
        report_overflow(parts[0], hidden)
        return LossParts(*parts)


class _FusedLinear(torch.autograd.Function):
    """Loss and gradients in one sweep over the chunks; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        plan: Plan | None,
        targets: Targets | None,
        scale: Tensor,
        wanted: bool,
    ) -> tuple[Tensor, ...]:
        gradients = _Gradients(hidden, weight, bias, scale) if wanted and any(ctx.needs_input_grad[:3]) else None
        with torch.autocast(hidden.device.type, enabled=False):
            base = None if plan is None or targets is None else _Base(targets.base, weight, bias)
        sums = torch.zeros(4, device=hidden.device)
        rows = max(1, CHUNK_BYTES // (4 * len(weight)))
        for start in range(0, len(hidden), rows):
            chunk = slice(start, start + rows)
            part = None if plan is None else Plan(*(tensor[chunk] for tensor in plan))
            sums += _one_chunk(hidden, weight, bias, labels, part, targets, base, scale, chunk, gradients)
        if gradients is not None and base is not None:
            base.pull_weight(gradients)
        ctx.gradients = gradients
        total, *parts = sums.unbind()
        ctx.mark_non_differentiable(*parts)
        return total, *parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        found, ctx.gradients = ctx.gradients, None  # a second backward would scale them twice
        if found is None:
            raise InputError("the linear loss can be differentiated once", hint="call it again for another backward")
        factor = outputs[0] * found.unit
        return found.hidden.mul_(factor), found.weight.mul_(factor), found.scaled_bias(factor), *(None,) * 5


class _Gradients:
    """Gradients of hidden states, weight and bias, filled chunk by chunk.

    In float16 they are those of the loss divided by `unit`, the weight of a position: what many share would vanish.
    """

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, scale: Tensor) -> None:
        self.unit = scale.max() if len(scale) and _multiplied_in(hidden) == torch.float16 else scale.new_ones(())
        self.hidden = torch.empty_like(hidden)
        self.weight = torch.zeros_like(weight, dtype=torch.float32)
        self.bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)

    def add(self, chunk: slice, gradient: Tensor, hidden: Tensor, weight: Tensor) -> None:
        """Take the gradient of a chunk's logits, (rows, V)."""
        self.hidden[chunk] = gradient.to(weight.dtype) @ weight
        self.weight.addmm_(gradient.T, hidden[chunk].float())
        if self.bias is not None:
            self.bias += gradient.sum(0)

    def scaled_bias(self, factor: Tensor) -> Tensor | None:
        return None if self.bias is None else self.bias * factor


def _multiplied_in(hidden: Tensor) -> torch.dtype:
    """The type in which hidden states are multiplied here."""
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


class _Base:
    """The dense base, the same row for every position, which goes around the logits: base . W h = (base W) . h.

    So neither its dot products nor its gradient, the outer product of the positions' weights and the base, costs a
    pass over the logits.
    """

    def __init__(self, base: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.base = base
        self.image = base @ weight.float()
        self.offset = 0.0 if bias is None else dense_dot(bias.float()[None], base)
        self.pull = torch.zeros_like(self.image)  # sum of weights * hidden states
        self.total = torch.zeros((), device=base.device)  # sum of weights

    def dots(self, hidden: Tensor) -> Tensor:
        """<base, logits> of hidden states (rows, d)."""
        return hidden.float() @ self.image + self.offset

    def pull_hidden(self, gradients: _Gradients, chunk: slice, hidden: Tensor, weights: Tensor) -> None:
        """Subtract weights (rows,) times the base from the gradient of a chunk's hidden states."""
        gradients.hidden[chunk] -= torch.outer(weights, self.image).to(hidden.dtype)
        self.pull += (weights[:, None] * hidden[chunk]).sum(0)  # not a matrix product, which autocast would round
        self.total += weights.sum()

    def pull_weight(self, gradients: _Gradients) -> None:
        """Subtract the same from the gradients of weight and bias, for all chunks at once."""
        gradients.weight.addr_(self.base, self.pull, alpha=-1)
        if gradients.bias is not None:
            gradients.bias -= self.total * self.base


def _one_chunk(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    plan: Plan | None,
    targets: Targets | None,
    base: _Base | None,
    scale: Tensor,
    chunk: slice,
    gradients: _Gradients | None,
) -> Tensor:
    """The weighted sums of total, nll, plus and minus of one chunk; its gradients are added on the way."""
    logits = torch.nn.functional.linear(hidden[chunk], weight, bias).float()
    gold, share = labels[chunk], scale[chunk]
    with torch.autocast(logits.device.type, enabled=False):  # the projection may be in half precision, the loss not
        if plan is None or targets is None or base is None:
            found = plain_losses(logits, gold)
        else:
            found = losses(logits, gold, plan, targets, base.dots(hidden[chunk]))
    if gradients is not None:
        relative = share / gradients.unit
        gradients.add(chunk, gradient_(logits, gold, plan, targets, found, relative, base=False), hidden, weight)
        if plan is not None and base is not None:
            base.pull_hidden(gradients, chunk, hidden, relative * plan.plus * found.base_weight)
    return torch.stack([(part * share).sum() for part in found[:4]])
