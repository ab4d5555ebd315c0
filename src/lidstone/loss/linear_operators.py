"""The loss of hidden states as a torch operator: projection and loss in chunks, and the gradients with them.

    lidstone::linear_losses  losses, and the gradients of hidden states, weight and bias

The gradients are computed together with the loss, while a chunk of logits is there; backward scales them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from lidstone.errors import InputError
from lidstone.loss.kernels.chunks import Head
from lidstone.loss.kernels.chunks import linear_losses as chunked
from lidstone.loss.operators import plan_of, table_and_facts


@custom_op("lidstone::linear_losses", mutates_args=())
def linear_losses(
    hidden: Tensor,  # (positions, d)
    weight: Tensor,  # (V, d)
    bias: Tensor | None,  # (V,)
    labels: Tensor,  # (positions,), -1 where ignored
    scale: Tensor,  # (positions,), of each position in the total
    plan: Sequence[Tensor],
    table: Sequence[Tensor],
    order: int,
    ngram: bool,
    steps: int,
    dtype: torch.dtype,
    hidden_gradient: bool,
    weight_gradient: bool,
    bias_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Weighted sums of total, nll, plus and minus, (4,); the unit of the gradients; and the three gradients."""
    head = Head(weight.detach(), bias, dtype, (hidden_gradient, weight_gradient, bias_gradient))
    with torch.autocast(hidden.device.type, enabled=False):
        sums, found = chunked(hidden, head, labels, scale, plan_of(plan), *table_and_facts(table, order, ngram, steps))
    return sums, found.unit.clone(), found.hidden, found.weight, found.bias


@linear_losses.register_fake
def _(hidden: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    wants = rest[-3:]
    none = hidden.new_empty(0, dtype=torch.float32)
    sums, unit = hidden.new_empty(4, dtype=torch.float32), hidden.new_empty((), dtype=torch.float32)
    shapes = hidden.shape, weight.shape, weight.shape[:1]
    types = hidden.dtype, torch.float32, torch.float32
    given = wants[0], wants[1], wants[2] and bias is not None
    made = [
        hidden.new_empty(shape, dtype=dtype) if want else torch.empty_like(none)
        for want, shape, dtype in zip(given, shapes, types, strict=True)
    ]
    return sums, unit, *made


def _save_linear(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.sizes = len(inputs[5]), len(inputs[6])
    wanted = zip(inputs[:3], inputs[-3:], strict=True)
    ctx.types = [leaf.dtype if leaf is not None and wants else None for leaf, wants in wanted]
    ctx.save_for_backward(*output[1:])
    ctx.used = False


def _backward_linear(ctx: Any, sums: Tensor, *unused: Tensor) -> tuple[Any, ...]:
    if ctx.used:
        raise InputError("the linear loss can be differentiated once", hint="call it again for another backward")
    unit, *gradients = ctx.saved_tensors
    factor = sums[0] * unit
    ctx.used = type(unit) is Tensor  # then the gradients are scaled where they are
    made = [_scaled(g, factor, t, ctx.used) for g, t in zip(gradients, ctx.types, strict=True)]
    return *made, None, None, *([None] * size for size in ctx.sizes), *[None] * 7


def _scaled(gradient: Tensor, factor: Tensor, dtype: torch.dtype | None, inplace: bool) -> Tensor | None:
    if dtype is None:
        return None
    return (gradient.mul_(factor) if inplace else gradient * factor).to(dtype)


linear_losses.register_autograd(_backward_linear, setup_context=_save_linear)
