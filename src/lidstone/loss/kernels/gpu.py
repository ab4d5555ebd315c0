"""The loss on CUDA and ROCm: allocates, and launches the Triton programs. The host never waits for the device.

With `TRITON_INTERPRET=1` in the environment before Triton is imported, the programs run on CPU tensors, slowly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from lidstone.loss.kernels.gpu_programs import gradient_program, losses_program, plan_program
from lidstone.loss.kernels.tensors import scatter as scatter
from lidstone.loss.plan import Facts, Losses, Plan, Saved, Table

BASE_AROUND_LOGITS = False
POSITIONS_AT_ONCE = 128  # of the search for histories
NGRAMS_AT_ONCE = 512  # of the lists of a row


def plan(labels: Tensor, contexts: Tensor, table: Table, facts: Facts) -> Plan:
    """Coefficients of all positions; see `cpu_loops.plan`."""
    number = labels.numel()
    nodes = [labels.new_empty(number, dtype=torch.int64) for _ in range(2)]
    found = Plan(*nodes, *(labels.new_empty(number, dtype=torch.float32) for _ in range(6)))
    arrays = (table.first, table.words, table.suffixes, table.rows, table.backoffs, table.base, table.tokens)
    ngram = (table.predicted.view(torch.uint8), table.zs, table.shifts, table.strengths)
    if not number:
        return found
    with on_device(labels):
        plan_program[(blocks(number, POSITIONS_AT_ONCE),)](
            labels.contiguous(), contexts.contiguous(), *found, number, contexts.shape[-1], *arrays, *ngram,
            facts.steps, len(table.base), ORDER=facts.order, NGRAM=facts.ngram, BLOCK=POSITIONS_AT_ONCE,
            num_warps=4, enable_fp_fusion=True,
        )  # fmt: skip
    return found


def listed(plans: Sequence[Plan | None], table: Table | None, facts: Facts) -> Iterator[dict[str, Any]]:
    """No list of n-grams: the programs look them up themselves."""
    return ({} for _ in plans)


def losses(
    logits: Tensor,  # (batch, time, V) or (positions, V)
    labels: Tensor,  # (positions,), negative where ignored
    plan: Plan | None,
    table: Table | None,
    facts: Facts,
) -> Losses:
    """The loss of each position and its parts; plain negative log-likelihood without a plan."""
    z = rows_of(logits.detach())
    total, nll, plus, minus, *rest = (z.new_empty(len(labels), dtype=torch.float32) for _ in range(7))
    found = Losses(total, nll, plus, minus, Saved(*rest))
    coefficients = ("states", "shifts", "plus", "minus", "z", "label_smoothed")
    if not len(labels):
        return found
    with on_device(z):
        losses_program[(len(labels),)](
            z, labels, *found[:4], *found.saved, z.shape[1], *z.stride()[:2], z.shape[2],
            *_fields(plan, coefficients, z), *_arrays(table, z), **launch(z.shape[2], plan, facts),
        )  # fmt: skip
    return found


def gradient(
    logits: Tensor,  # (batch, time, V) or (positions, V)
    labels: Tensor,
    plan: Plan | None,
    saved: Saved,
    scale: Tensor,  # (positions,)
    table: Table | None,
    facts: Facts,
    *,
    inplace: bool = False,
) -> Tensor:
    """The gradient of scale * losses, in the type of the logits, and in their memory if `inplace`."""
    out = logits.detach() if inplace else torch.empty_like(logits, memory_format=torch.contiguous_format)
    z, made = rows_of(logits.detach()), rows_of(out)
    coefficients = ("states", "shifts", "mass", "label", "plus", "minus")
    if not len(labels):
        return out
    with on_device(z):
        gradient_program[(len(labels),)](
            z, made, labels, scale.contiguous(), *(each.contiguous() for each in saved), z.shape[1],
            *z.stride()[:2], *made.stride()[:2], z.shape[2],
            *_fields(plan, coefficients, z), *_arrays(table, z), **launch(z.shape[2], plan, facts),
        )  # fmt: skip
    return out if made.data_ptr() == out.data_ptr() else out.copy_(made.view_as(out))


def rows_of(logits: Tensor) -> Tensor:
    """Logits as (batch, time, V) with adjacent columns; a view of what is cut from contiguous logits."""
    z = logits[None] if logits.dim() == 2 else logits
    return z if z.stride(-1) == 1 or z.shape[-1] == 1 else z.contiguous()


def launch(size: int, plan: Any, facts: Facts) -> dict[str, Any]:
    """The constants of a program: short rows are read in one block, long ones in blocks of 4,096."""
    block = min(4096, 1 << max(size - 1, 1).bit_length())
    warps = max(1, min(8, block // 512))
    order, ngram = (1, False) if plan is None else (facts.order, facts.ngram)
    constants = {"ORDER": order, "NGRAM": ngram, "BLOCK": block, "LIST": min(NGRAMS_AT_ONCE, block)}
    return {"PLAIN": plan is None, **constants, "num_warps": warps, "enable_fp_fusion": True}


def blocks(number: int, size: int) -> int:
    """How many blocks of this size hold so many positions.

    >>> blocks(5, 4)
    2
    """
    return -(-number // size)


def on_device(tensor: Tensor) -> AbstractContextManager[Any]:
    """Launch where the tensor is."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _fields(plan: Plan | None, names: tuple[str, ...], like: Tensor) -> list[Tensor]:
    return [like if plan is None else getattr(plan, name).contiguous() for name in names]


def _arrays(table: Table | None, like: Tensor) -> list[Tensor]:
    """The table's tensors that a row needs; without a plan they are not read."""
    names = ("first", "words", "suffixes", "rows", "backoffs", "base", "plus", "minus", "dense_minus")
    return [like if table is None else getattr(table, name) for name in names]
