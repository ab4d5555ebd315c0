"""The losses as torch operators, so that torch.compile and torch.export see one node where eager code runs a kernel.

    lidstone::gold           labels, with -1 for those that are ignored; refuses ids outside the vocabulary
    lidstone::plan           the coefficients of each position before the logits
    lidstone::rows           the rows of the distinct histories, for kernels that do not look n-grams up themselves
    lidstone::teacher        a teacher's words and probabilities; refuses what is no part of a distribution
    lidstone::completed      the teacher with its tail
    lidstone::losses         total, parts, and what the gradient needs
    lidstone::gradient       of the total with respect to the logits; lidstone::gradient_ in the memory of the logits
    lidstone::linear_losses  losses of hidden states, and the gradients of hidden states, weight and bias

Each has a fake kernel, which gives shapes alone; the losses have their gradient registered. A `PlannedBatch` goes in
packed. The gradients of the linear loss are computed together with it, while a chunk of logits is there; backward
scales them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from lidstone.errors import InputError
from lidstone.loss.checks import check_ids, check_teacher, report_overflow
from lidstone.loss.kernels import chunks, protocol
from lidstone.loss.kernels.protocol import (
    Coefficients,
    HistoryRows,
    PlannedBatch,
    PositionLosses,
    SparseTarget,
    Teacher,
    computed_in,
    is_host_readable,
    kernel_name,
    kernels_for,
)

EXCLUDED = -1e4  # a logit whose softmax is 0


@custom_op("lidstone::gold", mutates_args=())
def gold(labels: Tensor, ignore_index: int, size: int) -> Tensor:
    """Labels as int64, with -1 for those that are ignored. On a CPU ids outside the vocabulary are refused."""
    found = labels.long().masked_fill(labels == ignore_index, -1)
    if is_host_readable(labels.device):
        check_ids(torch.where(labels == ignore_index, 0, labels), "labels", size - 1, lowest=0)
    return found


@gold.register_fake
def _(labels: Tensor, ignore_index: int, size: int) -> Tensor:
    return labels.new_empty(labels.shape, dtype=torch.int64)


@custom_op("lidstone::plan", mutates_args=())
def plan(
    contexts: Tensor,  # (batch, time), the token before each label
    batch: Sequence[Tensor],  # without a plan
    facts: Sequence[int],
    group: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What is known of each position before the logits, as the fields of `Coefficients`."""
    given = PlannedBatch.unpacked(batch, facts, group)
    return kernels_for(contexts.device, given.facts).plan(contexts, given)


@plan.register_fake
def _(contexts: Tensor, *packed: Any) -> tuple[Tensor, ...]:
    given, positions = PlannedBatch.unpacked(*packed).facts, contexts.numel()
    read = 0 if kernel_name(contexts.device, given.dense) == "tensors" else positions  # not read off the rows
    sizes = positions, read, positions, positions if given.ngram else read, read
    types = torch.int64, torch.int64, torch.bool, torch.float32, torch.float32
    return tuple(contexts.new_empty(size, dtype=dtype) for size, dtype in zip(sizes, types, strict=True))


def planned(contexts: Tensor, batch: PlannedBatch) -> PlannedBatch:
    """The batch with `plan`."""
    return batch._replace(plan=Coefficients(*plan(contexts, *batch.packed())))


@custom_op("lidstone::rows", mutates_args=())
def rows(batch: Sequence[Tensor], facts: Sequence[int], group: str) -> tuple[Tensor, Tensor]:
    """The dense rows of the distinct states, as the fields of `HistoryRows`."""
    from lidstone.loss.kernels.tensors import expand

    return expand(PlannedBatch.unpacked(batch, facts, group))


@rows.register_fake
def _(*packed: Any) -> tuple[Tensor, ...]:
    given, histories = PlannedBatch.unpacked(*packed), torch.library.get_ctx().new_dynamic_size()
    assert given.table is not None
    shape = histories, given.table.base.shape[0], 2 if given.facts.ngram else 1
    return torch.empty_like(given.nodes[0]), given.table.base.new_empty(shape)


def with_rows(batch: PlannedBatch) -> PlannedBatch:
    """The batch with `rows`, for the kernels that need them."""
    if batch.plan is None or batch.table is None or kernel_name(batch.labels.device, batch.facts.dense) != "tensors":
        return batch
    return batch._replace(rows=HistoryRows(*rows(*batch.packed())))


@custom_op("lidstone::teacher", mutates_args=())
def teacher(
    ids: Tensor,  # (..., k), -1 where unused
    logprobs: Tensor,  # (..., k)
    labels: Tensor,  # (...), -1 where ignored
    size: int,
    normalise: bool,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Ids and probabilities, (positions, k); unused at ignored positions. On a CPU bad input is refused."""
    used = (ids >= 0) & (labels >= 0)[..., None]
    if is_host_readable(ids.device):
        check_teacher(ids.masked_fill((labels < 0)[..., None], -1), logprobs, size)
    logs = torch.where(used, logprobs.float(), -torch.inf) / temperature
    if normalise:
        whole = logs.logsumexp(-1, keepdim=True)
        logs = logs - whole.masked_fill(whole.isneginf(), 0.0)
    shape = labels.numel(), ids.shape[-1]
    return torch.where(used, ids.long(), -1).reshape(shape), logs.exp().reshape(shape)


@teacher.register_fake
def _(ids: Tensor, logprobs: Tensor, labels: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    shape = labels.numel(), ids.shape[-1]
    return ids.new_empty(shape, dtype=torch.int64), ids.new_empty(shape, dtype=torch.float32)


@custom_op("lidstone::completed", mutates_args=())
def completed(
    batch: Sequence[Tensor], facts: Sequence[int], group: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The teacher completed by its tail, as the fields of `SparseTarget` after the first two."""
    given = PlannedBatch.unpacked(batch, facts, group)
    target = protocol.completed(given, kernels_for(batch[0].device, given.facts)).plan
    assert isinstance(target, SparseTarget)
    return target[2:]


@completed.register_fake
def _(*packed: Any) -> tuple[Tensor, ...]:
    teacher = PlannedBatch.unpacked(*packed).plan
    assert isinstance(teacher, Teacher)
    return *map(torch.empty_like, (teacher.ids, teacher.probs)), *(torch.empty_like(teacher.gamma) for _ in range(4))


def with_target(batch: PlannedBatch) -> PlannedBatch:
    """The batch with `completed` in place of the teacher."""
    return batch._replace(plan=SparseTarget(*batch.nodes, *completed(*batch.packed())))


@custom_op("lidstone::losses", mutates_args=())
def losses(
    logits: Tensor,  # (batch, time, V)
    batch: Sequence[Tensor],
    facts: Sequence[int],
    group: str,
    inplace: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scaled total (positions,), scaled nll, plus and minus (3, positions), and what is saved (3, positions)."""
    given = PlannedBatch.unpacked(batch, facts, group)
    with torch.autocast(logits.device.type, enabled=False):
        found = kernels_for(logits.device, given.facts).losses(logits, given)
        if is_host_readable(logits.device) and not group:
            found = _settle_excluded(found, logits, given)
    parts = torch.stack([*found[1:4], found.total])
    scaled = (parts * given.scale).masked_fill_(given.scale == 0, 0.0)  # what does not count may be NaN
    if is_host_readable(logits.device):
        report_overflow(scaled[3], logits.dtype)
    scaled, saved = (each.to(computed_in(logits.dtype)) for each in (scaled, found.saved))
    return scaled[3].clone(), scaled[:3], saved


def _settle_excluded(found: PositionLosses, logits: Tensor, batch: PlannedBatch) -> PositionLosses:
    """Where words have logits of -inf: a target of 0 silences them, any other makes the loss infinite, never NaN."""
    lost = found.total.isnan() & ~found.nll.isnan()
    if not bool(lost.any()):
        return found
    excluded, kernels = logits.isneginf(), kernels_for(logits.device, batch.facts)
    z = logits.to(computed_in(logits.dtype)).masked_fill(excluded, EXCLUDED)
    again = kernels.losses(z, batch)
    target = -kernels.gradient(z, batch._replace(scale=torch.ones_like(again.nll)), again.saved)
    infinite = torch.where(excluded & (target != 0), target * torch.inf, 0.0).sum(-1).reshape(-1)
    total, plus = (
        torch.where(lost, a + infinite, b) for a, b in ((again.total, found.total), (again.plus, found.plus))
    )
    return found._replace(total=total, plus=plus, minus=torch.where(lost, again.minus, found.minus))


@losses.register_fake
def _(logits: Tensor, batch: Sequence[Tensor], *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    dtype = computed_in(logits.dtype)
    empty = [logits.new_empty((*rows, batch[0].shape[0]), dtype=dtype) for rows in ((), (3,), (3,))]
    return empty[0], empty[1], empty[2]


@custom_op("lidstone::gradient", mutates_args=())
def gradient(
    logits: Tensor, saved: Tensor, total: Tensor, batch: Sequence[Tensor], facts: Sequence[int], group: str
) -> Tensor:
    """With respect to the logits: total (positions,) times the gradient of each position's scaled loss."""
    return _gradient(logits, saved, total, PlannedBatch.unpacked(batch, facts, group))


def _gradient(logits: Tensor, saved: Tensor, total: Tensor, batch: PlannedBatch, inplace: bool = False) -> Tensor:
    batch = batch._replace(scale=total.float() * batch.scale)
    return kernels_for(logits.device, batch.facts).gradient(logits, batch, saved, inplace=inplace)


@gradient.register_fake
def _(logits: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _refuse_twice(ctx: Any, *unused: Tensor) -> None:
    raise InputError("the loss has no second derivative", hint="leave out create_graph=True")


gradient.register_autograd(_refuse_twice)


@custom_op("lidstone::gradient_", mutates_args=("logits",))
def gradient_(
    logits: Tensor, saved: Tensor, total: Tensor, batch: Sequence[Tensor], facts: Sequence[int], group: str
) -> None:
    """`gradient` in the memory of the logits."""
    _gradient(logits, saved, total, PlannedBatch.unpacked(batch, facts, group), inplace=True)


@gradient_.register_fake
def _(*inputs: Any) -> None:
    return None


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, batch, *ctx.facts, ctx.inplace = inputs
    ctx.save_for_backward(logits, output[2], *batch)
    ctx.set_materialize_grads(False)  # of the parts, which have none


def _backward(ctx: Any, total: Tensor | None, *unused: Tensor) -> tuple[Any, ...]:
    logits, saved, *batch = ctx.saved_tensors
    if total is None:  # nothing depends on the total
        return None, [None] * len(batch), None, None, None
    found, arguments = logits.detach(), (saved, total, batch, *ctx.facts)
    # while torch.compile traces, it plans the memory itself; gradcheck reads its float64 logits again
    if ctx.inplace and type(logits) is Tensor and logits.dtype != torch.float64:
        gradient_(found, *arguments)
    else:
        found = gradient(logits, *arguments)
    return found, [None] * len(batch), None, None, None


losses.register_autograd(_backward, setup_context=_save)


@custom_op("lidstone::linear_losses", mutates_args=())
def linear_losses(
    hidden: Tensor,  # (positions, d)
    weight: Tensor,  # (V, d)
    bias: Tensor | None,  # (V,)
    batch: Sequence[Tensor],
    facts: Sequence[int],
    group: str,
    dtype: torch.dtype,
    wants: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Scaled sums of total, nll, plus and minus, (4,); the unit of the gradients; and the three gradients."""
    head, given = chunks.OutputHead(weight.detach(), bias, dtype, wants), PlannedBatch.unpacked(batch, facts, group)
    with torch.autocast(hidden.device.type, enabled=False):
        sums, found = chunks.linear_losses(hidden, head, given)
    return sums, found.unit.clone(), found.hidden, found.weight, found.bias


@linear_losses.register_fake
def _(hidden: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    *_, given_type, wants = rest
    dtype = computed_in(given_type)
    none = hidden.new_empty(0, dtype=dtype)
    sums, unit = hidden.new_empty(4, dtype=dtype), hidden.new_empty((), dtype=torch.float32)
    shapes = hidden.shape, weight.shape, weight.shape[:1]
    types = hidden.dtype, dtype, dtype
    given = wants[0], wants[1], wants[2] and bias is not None
    made = [
        hidden.new_empty(shape, dtype=dtype) if want else torch.empty_like(none)
        for want, shape, dtype in zip(given, shapes, types, strict=True)
    ]
    return sums, unit, *made


def _save_linear(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.number = len(inputs[3])
    wanted = zip(inputs[:3], inputs[-1], strict=True)
    ctx.types = [leaf.dtype if leaf is not None and wants else None for leaf, wants in wanted]
    ctx.save_for_backward(*output[1:])
    ctx.used = False


def _backward_linear(ctx: Any, sums: Tensor, *unused: Tensor) -> tuple[Any, ...]:
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # by create_graph=True
        _refuse_twice(ctx)
    if ctx.used:
        raise InputError("the linear loss can be differentiated once", hint="call it again for another backward")
    unit, *gradients = ctx.saved_tensors
    factor = sums[0] * unit
    # then the gradients are scaled where they are; gradcheck asks for those of float64 again
    ctx.used = type(unit) is Tensor and sums.dtype != torch.float64
    made = [_scaled(g, factor, t, ctx.used) for g, t in zip(gradients, ctx.types, strict=True)]
    return *made, [None] * ctx.number, *[None] * 4


def _scaled(gradient: Tensor, factor: Tensor, dtype: torch.dtype | None, inplace: bool) -> Tensor | None:
    if dtype is None:
        return None
    return (gradient.mul_(factor) if inplace else gradient * factor).to(dtype)


linear_losses.register_autograd(_backward_linear, setup_context=_save_linear)
