"""Output projection and loss in chunks of positions: the gradient is taken on the way, and all logits are never held.

Each chunk is projected, its losses are taken, its logits turn into their gradient in place, and that is multiplied back
into the gradients of the hidden states and of the weight. Products are in the model's precision and accumulate in
float32; hidden states and table are read where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from lidstone.loss.checks import report_overflow
from lidstone.loss.kernels.cpu import dense_dot
from lidstone.loss.kernels.protocol import (
    HistoryRows,
    Kernels,
    PlannedBatch,
    Teacher,
    completed,
    computed_in,
    is_host_readable,
    kernels_for,
)
from lidstone.loss.kernels.tensors import history_rows

CHUNK_BYTES = 32 * 2**20  # on a CPU, about what its cache holds
SHARE_OF_FREE_MEMORY = 8  # elsewhere a chunk's logits take one part in so many


class OutputHead(NamedTuple):
    """An output projection and what is to be found for it."""

    weight: Tensor  # (V, d)
    bias: Tensor | None  # (V,)
    dtype: torch.dtype
    """in which hidden states are multiplied"""
    wants: Sequence[bool]
    """the gradients of hidden states, weight and bias"""


def linear_losses(
    hidden: Tensor,  # (positions, d)
    head: OutputHead,
    batch: PlannedBatch,
) -> tuple[Tensor, LinearGradients]:
    """The weighted sums of total, nll, plus and minus, (4,), and the gradients of the total."""
    labels, scale, plan, _, table, facts = batch
    kernels, gradients, base = kernels_for(hidden.device, facts), LinearGradients(hidden, head, scale), None
    if plan is not None and table is not None and kernels.BASE_AROUND_LOGITS:
        base = ProjectedBase(table.base, head)
    head = head._replace(
        weight=head.weight.to(head.dtype), bias=None if head.bias is None else head.bias.to(head.dtype)
    )
    # on a CPU, where looking costs nothing, ignored positions are in no chunk; forced kernels act as on their device
    skips = is_host_readable(hidden.device) and (kernels.BASE_AROUND_LOGITS or facts.dense)
    width = (
        len(head.weight) * (computed_in(head.dtype) if kernels.BASE_AROUND_LOGITS else head.dtype).itemsize
    )  # bytes of a row of logits
    sums, cut = scale.new_zeros(4, dtype=computed_in(head.dtype)), list(chunks(labels, width, skips))
    parts = [batch.at(chunk) for chunk in cut]
    rows: Iterator[HistoryRows | None] = repeat(None)
    if kernels.EXPANDS_ROWS and plan is not None and table is not None:
        rows = history_rows(parts)
    for chunk, part in zip(cut, parts, strict=True):
        states = hidden[chunk]
        if head.wants[1] and not skips:  # zeros for the product that gives the gradient of the weight
            states = states.masked_fill((part.labels < 0)[:, None], 0.0)
        sums += _one_chunk(kernels, chunk, states, part._replace(rows=next(rows)), head, base, gradients)
    if base is not None:
        base.pull_weight(gradients)
    if is_host_readable(hidden.device):
        report_overflow(sums[0], hidden.dtype)
    return sums, gradients


def chunks(labels: Tensor, width: int, skips: bool) -> Iterator[Any]:
    """Slices of the positions, whose logits take `width` bytes each; of those that are not ignored, if `skips`."""
    rows = max(1, chunk_bytes(labels.device) // width)
    if not skips:
        yield from (slice(start, start + rows) for start in range(0, len(labels), rows))
        return
    kept = (labels >= 0).nonzero()[:, 0]
    for start in range(0, len(kept), rows):
        yield slice(start, start + rows) if len(kept) == len(labels) else kept[start : start + rows]


def chunk_bytes(device: torch.device) -> int:
    """The memory for a chunk's logits: a share of what is free, cached by torch or not."""
    if device.type != "cuda":
        return CHUNK_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(CHUNK_BYTES, (free + unused) // SHARE_OF_FREE_MEMORY)


def _one_chunk(
    kernels: Kernels,
    chunk: Any,
    hidden: Tensor,
    batch: PlannedBatch,
    head: OutputHead,
    base: ProjectedBase | None,
    gradients: LinearGradients,
) -> Tensor:
    """The weighted sums of one chunk; its gradients are added on the way."""
    if isinstance(batch.plan, Teacher):
        batch = completed(batch, kernels)
    logits = linear(hidden.to(head.dtype), head.weight, head.bias)
    if kernels.BASE_AROUND_LOGITS:
        logits = logits.to(computed_in(head.dtype))
    found = kernels.losses(logits, batch, base_dots=None if base is None else base.dots(hidden))
    if any(head.wants):
        relative = batch._replace(scale=batch.scale / gradients.unit)
        gradient = kernels.gradient(logits, relative, found.saved, inplace=True, base=base is None)
        gradients.add(chunk, gradient, hidden, head)
        if base is not None:
            base.pull_hidden(gradients, chunk, hidden, relative.scale * batch.coefficients()[2] * found.saved[2])
    return torch.stack([torch.where(batch.labels >= 0, part * batch.scale, 0.0).sum() for part in found[:4]])


class LinearGradients:
    """Gradients of hidden states, weight and bias, filled chunk by chunk; empty where they are not wanted.

    In float16 they are those of the loss divided by `unit`, the weight of a position: what many share would vanish.
    """

    def __init__(self, hidden: Tensor, head: OutputHead, scale: Tensor) -> None:
        half = len(scale) and head.dtype == torch.float16
        unit = scale.max() if half else scale.new_ones(())
        self.unit = torch.where(unit > 0, unit, 1.0)  # where all labels are ignored
        dtype = computed_in(head.dtype)
        none = hidden.new_empty(0, dtype=dtype)
        wants_hidden, wants_weight, wants_bias = head.wants
        self.hidden = torch.zeros_like(hidden, memory_format=torch.contiguous_format) if wants_hidden else none
        self.weight = torch.zeros_like(head.weight, dtype=dtype) if wants_weight else none.clone()
        wants_bias = wants_bias and head.bias is not None
        self.bias = hidden.new_zeros(len(head.weight), dtype=dtype) if wants_bias else none.clone()

    def add(self, chunk: Any, gradient: Tensor, hidden: Tensor, head: OutputHead) -> None:
        """Take the gradient of a chunk's logits, (rows, V)."""
        if len(self.hidden):
            self.hidden[chunk] = (gradient.to(head.dtype) @ head.weight).to(self.hidden.dtype)
        if len(self.weight):
            add_product(self.weight, gradient, hidden)
        if len(self.bias):
            self.bias += gradient.sum(0, dtype=self.bias.dtype)


def add_product(total: Tensor, gradient: Tensor, hidden: Tensor) -> None:
    """Add gradient.T @ hidden to a matrix, float32 or float64, multiplied in the gradient's precision."""
    hidden = hidden.to(gradient.dtype)
    if gradient.dtype == total.dtype:
        total.addmm_(gradient.T, hidden)
    elif gradient.device.type == "cuda":
        total += torch.mm(gradient.T, hidden, out_dtype=torch.float32)
    else:
        total += gradient.T @ hidden


class ProjectedBase:
    """The dense base, the same row for every position, which goes around the logits: base . W h = (base W) . h.

    So neither its dot products nor its gradient, the outer product of the positions' weights and the base, costs a
    pass over the logits. Worth it on a CPU; a GPU's kernel reads the base beside the logits for nothing.
    """

    def __init__(self, base: Tensor, head: OutputHead) -> None:
        dtype = computed_in(head.dtype)
        self.base = base.to(dtype)
        self.image = self.base @ head.weight.to(dtype)
        self.offset = 0.0 if head.bias is None else dense_dot(head.bias.to(dtype)[None], self.base)
        self.pull = torch.zeros_like(self.image)  # sum of weights * hidden states
        self.total = self.image.new_zeros(())  # sum of weights

    def dots(self, hidden: Tensor) -> Tensor:
        """<base, logits> of hidden states (rows, d)."""
        return hidden.to(self.image.dtype) @ self.image + self.offset

    def pull_hidden(self, gradients: LinearGradients, chunk: Any, hidden: Tensor, weights: Tensor) -> None:
        """Subtract weights (rows,) times the base from the gradient of a chunk's hidden states."""
        if len(gradients.hidden):
            gradients.hidden[chunk] -= torch.outer(weights, self.image).to(gradients.hidden.dtype)
        self.pull += (weights[:, None] * hidden).sum(0)
        self.total += weights.sum()

    def pull_weight(self, gradients: LinearGradients) -> None:
        """Subtract the same from the gradients of weight and bias, for all chunks at once."""
        if len(gradients.weight):
            gradients.weight.addr_(self.base, self.pull, alpha=-1)
        if len(gradients.bias):
            gradients.bias -= self.total * self.base
