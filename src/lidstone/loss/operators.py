"""The losses as torch operators, so that torch.compile and torch.export see one node where eager code runs a kernel.

    lidstone::gold        labels, with -1 for those that are ignored; refuses ids outside the vocabulary
    lidstone::plan        the history of each position and its coefficients (see `plan`)
    lidstone::rows        in place of a plan, the rows of the distinct histories; on devices without kernels
    lidstone::losses      total, parts, and what the gradient needs
    lidstone::gradient    of the total with respect to the logits; lidstone::gradient_ in the memory of the logits

Each has a fake kernel, which gives shapes alone; `losses` has its gradient registered. A table goes in as tensors.
The loss of hidden states is in `linear_operators`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from lidstone.loss.checks import check_ids, report_overflow
from lidstone.loss.kernels.choice import free_to_read, kernel_name, kernels_for
from lidstone.loss.plan import Facts, Plan, Rows, Saved, Table


@custom_op("lidstone::gold", mutates_args=())
def gold(labels: Tensor, ignore_index: int, size: int) -> Tensor:
    """Labels as int64, with -1 for those that are ignored. On a CPU ids outside the vocabulary are refused."""
    found = labels.long().masked_fill(labels == ignore_index, -1)
    if free_to_read(labels.device):
        check_ids(torch.where(labels == ignore_index, 0, labels), "labels", size - 1, lowest=0)
    return found


@gold.register_fake
def _(labels: Tensor, ignore_index: int, size: int) -> Tensor:
    return labels.new_empty(labels.shape, dtype=torch.int64)


@custom_op("lidstone::plan", mutates_args=())
def plan(
    labels: Tensor,  # (batch, time), -1 where ignored
    contexts: Tensor,  # (batch, time), the token before each
    table: Sequence[Tensor],
    order: int,
    ngram: bool,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The coefficients of each position, as the fields of `Plan`."""
    found: Plan = kernels_for(labels.device).plan(labels, contexts, Table(*table), Facts(order, ngram, steps))
    return found


@plan.register_fake
def _(
    labels: Tensor, contexts: Tensor, table: Sequence[Tensor], order: int, ngram: bool, steps: int
) -> tuple[Tensor, ...]:
    nodes = [labels.new_empty(labels.numel(), dtype=torch.int64) for _ in range(2)]
    return (*nodes, *(labels.new_empty(labels.numel(), dtype=torch.float32) for _ in range(6)))


@custom_op("lidstone::rows", mutates_args=())
def rows(
    labels: Tensor,  # (batch, time), -1 where ignored
    contexts: Tensor,  # (batch, time), the token before each
    table: Sequence[Tensor],
    order: int,
    ngram: bool,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The dense rows of the distinct histories, as the fields of `Rows`."""
    from lidstone.loss.kernels.tensors import rows_of_batch

    return rows_of_batch(labels, contexts, Table(*table), Facts(order, ngram, steps))


@rows.register_fake
def _(
    labels: Tensor, contexts: Tensor, table: Sequence[Tensor], order: int, ngram: bool, steps: int
) -> tuple[Tensor, ...]:
    histories, positions = torch.library.get_ctx().new_dynamic_size(), labels.numel()
    values = labels.new_empty(histories, Table(*table).base.shape[0], 2 if ngram else 1, dtype=torch.float32)
    which, known = (labels.new_empty(positions, dtype=dtype) for dtype in (torch.int64, torch.bool))
    return which, values, known, labels.new_empty(positions if ngram else 0, dtype=torch.float32)


@custom_op("lidstone::losses", mutates_args=())
def losses(
    logits: Tensor,  # (batch, time, V)
    labels: Tensor,  # (positions,), -1 where ignored
    weight: Tensor,  # (positions,), of each position in the total
    plan: Sequence[Tensor],  # the fields of `Plan`; none for plain cross-entropy
    rows: Sequence[Tensor],  # the fields of `Rows`; none where kernels look rows up themselves
    table: Sequence[Tensor],
    order: int,
    ngram: bool,
    steps: int,
    inplace: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted total (positions,), weighted nll, plus and minus (3, positions), and `Saved` (3, positions)."""
    with torch.autocast(logits.device.type, enabled=False):
        found = kernels_for(logits.device).losses(
            logits, labels, plan_of(plan), *table_and_facts(table, order, ngram, steps), **_rows(rows)
        )
    parts = torch.stack([*found[1:4], found.total])
    weighted = (parts * weight).masked_fill_(weight == 0, 0.0)  # what does not count may be NaN
    if free_to_read(logits.device):
        report_overflow(weighted[3], logits.dtype)
    saved = found.saved if isinstance(found.saved, Tensor) else torch.stack(found.saved)
    return weighted[3].clone(), weighted[:3], saved


@losses.register_fake
def _(logits: Tensor, labels: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    empty = [logits.new_empty((*rows, labels.shape[0]), dtype=torch.float32) for rows in ((), (3,), (3,))]
    return empty[0], empty[1], empty[2]


@custom_op("lidstone::gradient", mutates_args=())
def gradient(
    scale: Tensor,  # (positions,)
    logits: Tensor,
    labels: Tensor,
    plan: Sequence[Tensor],
    rows: Sequence[Tensor],
    saved: Tensor,
    table: Sequence[Tensor],
    order: int,
    ngram: bool,
    steps: int,
) -> Tensor:
    """Scale times the gradient of each position's loss with respect to its logits."""
    return _gradient(scale, logits, labels, plan, rows, saved, table, order, ngram, steps)


@gradient.register_fake
def _(scale: Tensor, logits: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@custom_op("lidstone::gradient_", mutates_args=("logits",))
def gradient_(
    scale: Tensor,
    logits: Tensor,
    labels: Tensor,
    plan: Sequence[Tensor],
    rows: Sequence[Tensor],
    saved: Tensor,
    table: Sequence[Tensor],
    order: int,
    ngram: bool,
    steps: int,
) -> None:
    """`gradient` in the memory of the logits."""
    _gradient(scale, logits, labels, plan, rows, saved, table, order, ngram, steps, inplace=True)


@gradient_.register_fake
def _(scale: Tensor, logits: Tensor, *rest: Any) -> None:
    return None


def _gradient(
    scale: Tensor,
    logits: Tensor,
    labels: Tensor,
    plan: Sequence[Tensor],
    rows: Sequence[Tensor],
    saved: Tensor,
    table: Sequence[Tensor],
    *facts: Any,
    **options: bool,
) -> Tensor:
    kernel = kernels_for(logits.device).gradient
    values = plan_of(plan), _saved(saved), scale, *table_and_facts(table, *facts)
    found: Tensor = kernel(logits, labels, *values, **options, **_rows(rows))
    return found


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, labels, weight, plan, rows, table, *ctx.facts, ctx.inplace = inputs
    ctx.sizes = len(plan), len(rows), len(table)
    ctx.save_for_backward(logits, labels, weight, output[2], *plan, *rows, *table)
    ctx.set_materialize_grads(False)  # of the parts, which have none


def _backward(ctx: Any, total: Tensor, *unused: Tensor) -> tuple[Any, ...]:
    logits, labels, weight, saved, *rest = ctx.saved_tensors
    plans, rows, _ = ctx.sizes
    lists = rest[:plans], rest[plans : plans + rows], saved, rest[plans + rows :]
    scale = total.float() * weight
    if ctx.inplace and type(logits) is Tensor:  # while torch.compile traces, it plans the memory itself
        found = logits.detach()
        gradient_(scale, found, labels, *lists, *ctx.facts)
    else:
        found = gradient(scale, logits, labels, *lists, *ctx.facts)
    return found, None, None, *([None] * size for size in ctx.sizes), *[None] * 4


losses.register_autograd(_backward, setup_context=_save)


def plan_of(tensors: Sequence[Tensor]) -> Plan | None:
    """The plan of these tensors; None for plain cross-entropy."""
    return Plan(*tensors) if tensors else None


def _saved(saved: Tensor) -> Saved | Tensor:
    return saved if kernel_name(saved.device) == "tensors" else Saved(*saved.unbind())


def _rows(tensors: Sequence[Tensor]) -> dict[str, Rows]:
    return {"rows": Rows(*tensors)} if tensors else {}


def table_and_facts(table: Sequence[Tensor], order: int, ngram: bool, steps: int) -> tuple[Table | None, Facts]:
    """The last arguments of the kernels; no table for plain cross-entropy."""
    return (Table(*table) if table else None), Facts(order, ngram, steps)
