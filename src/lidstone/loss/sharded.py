"""Tensors that are divided among processes (DTensor): the output matrix is gathered, logits are refused.

FSDP leaves the output matrix sharded after the forward pass, which is when the linear loss needs it. All processes
gather it together, and its gradient goes back averaged over them, as FSDP averages all others. A tensor that is
sharded among processes with the same batch (tensor parallelism) has the same gradient in each, and their mean is right.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from lidstone.errors import InputError

T = TypeVar("T", Tensor, Tensor | None)


def is_sharded(tensor: Tensor | None) -> bool:
    """Whether this is a DTensor; not checked under torch.compile."""
    return not torch.compiler.is_compiling() and hasattr(tensor, "device_mesh")


def gathered(tensor: T) -> T:
    """The whole of a tensor, with a gradient that is averaged over the processes; others as they are."""
    if tensor is None or not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import Partial

    sharded: Any = tensor
    mesh = sharded.device_mesh
    gathered = sharded.full_tensor(grad_placements=[Partial()] * mesh.ndim)
    whole: T = _MeanGradient.apply(gathered, mesh.size())  # type: ignore[no-untyped-call]
    return whole


def refuse_sharded(logits: Tensor) -> None:
    """Refuse logits that are divided among processes."""
    if is_sharded(logits):
        raise InputError(
            f"the logits are divided among processes: {getattr(logits, 'placements', '')}",
            hint="sharded over the vocabulary: ld.VocabularyParallelCrossEntropy; over the batch: logits.to_local()",
        )


class _MeanGradient(torch.autograd.Function):
    """The identity; its gradient is divided, because what follows adds up the processes'."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, processes: int) -> Tensor:
        ctx.processes = processes
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient / ctx.processes, None
