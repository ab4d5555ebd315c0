"""Class weights, as `F.cross_entropy(weight=)` has them: the target of a position times one weight per word.

    loss = - sum_w weight[w] target(w) log q(w),      the mean divides by the sum of weight[label]

With them a loss takes the plain tensor operations of `column_loss` in place of the fused ones; it is slower, and as
sparse. They act in training alone: in evaluation the loss is the plain negative log-likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lidstone.errors import InputError
from lidstone.loss.checks import at_least_one_item, check_histories, check_ids
from lidstone.loss.columns.loss import Batch, column_losses, plan_batch
from lidstone.loss.columns.table import Columns
from lidstone.loss.plan import Empirical
from lidstone.loss.targets import shift_right
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from lidstone.loss.loss import LossParts, SmoothedLoss

ClassWeights = Tensor | Sequence[float]
_CHUNK = 32 * 2**20  # bytes of logits at a time


def weighted_columns(
    table: BackoffTable | None, counts: Counts | None, empirical: Empirical, weight: ClassWeights
) -> Columns:
    """All columns of the table, times the class weights."""
    values = torch.as_tensor(weight, dtype=torch.float64).detach().cpu().numpy()
    table = table or _no_table(len(values))
    if values.shape != (table.vocab.size,):
        raise InputError(
            f"weight has shape {values.shape}, the table {table.vocab.size} ids", hint="give one weight per id"
        )
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise InputError("class weights must be finite and not negative", hint="0 leaves a word out of the loss")
    return Columns(table, counts, empirical, 0, table.vocab.size, values)


def weighted_loss(
    loss: SmoothedLoss, columns: Columns, logits: Tensor, labels: Tensor, histories: Tensor | None, num_items: Any
) -> LossParts:
    """The parts of logits (..., columns); with class weights, or of a shard of the vocabulary (`loss.group`)."""
    counted, batch = planned(loss, columns, labels, histories)
    with torch.autocast(logits.device.type, enabled=False):
        found = column_losses(logits.reshape(-1, logits.shape[-1]), batch, columns, getattr(loss, "group", None))
    scale = _scale(loss, columns, counted, batch, num_items)
    weighted = [torch.where(scale > 0, part * scale, 0.0) for part in found]
    if loss.reduction == "none" and num_items is None:
        return _parts([part.reshape(labels.shape) for part in weighted])
    return _parts([part.sum() for part in weighted])


def weighted_linear_loss(
    loss: SmoothedLoss,
    columns: Columns,
    head: tuple[Tensor, Tensor, Tensor | None],  # hidden (..., d), weight (V, d), bias (V,)
    labels: Tensor,
    histories: Tensor | None,
    num_items: Any,
) -> LossParts:
    """The parts of hidden states; logits are made chunk by chunk, and again for the gradient."""
    from lidstone.loss.linear_loss import product_type

    counted, batch = planned(loss, columns, labels, histories)
    scale = _scale(loss, columns, counted, batch, num_items)
    keep = counted.reshape(-1).nonzero()[:, 0]
    hidden, scale, batch = head[0].reshape(-1, head[0].shape[-1])[keep], scale[keep], _take(batch, keep)

    def chunk_sums(states: Tensor, weight: Tensor, bias: Tensor | None, part: Batch, share: Tensor) -> Tensor:
        kind = product_type(states)
        logits = torch.nn.functional.linear(states.to(kind), weight.to(kind), None if bias is None else bias.to(kind))
        with torch.autocast(logits.device.type, enabled=False):
            return torch.stack([(one * share).sum() for one in column_losses(logits, part, columns)])

    total, rows = hidden.new_zeros(4, dtype=torch.float32), max(1, _CHUNK // (4 * len(head[1])))
    for chunk in torch.split(torch.arange(len(keep), device=keep.device), rows):
        arguments = hidden[chunk], *head[1:], _take(batch, chunk), scale[chunk]
        total = total + checkpoint(chunk_sums, *arguments, use_reentrant=False)
    return _parts(list(total.unbind()))


def planned(loss: SmoothedLoss, columns: Columns, labels: Tensor, histories: Tensor | None) -> tuple[Tensor, Batch]:
    """Which labels count, and the batch; nothing is regularized in evaluation."""
    check_histories(labels, histories, columns.order)
    if histories is not None and histories.device.type == "cpu":
        check_ids(histories, "histories", columns.vocab.bos)
    counted = labels != loss.ignore_index
    known = torch.where(counted, labels.long(), -1)
    rows = known.reshape(known.shape[:-1].numel(), known.shape[-1]) if known.dim() else known.reshape(1, 1)
    contexts = shift_right(rows, columns.vocab.bos) if histories is None else histories.reshape(rows.shape).long()
    active = loss.schedule(loss.progress) if loss.training and torch.is_grad_enabled() else 0.0
    minus = loss.gamma_minus if loss.form == "published" else -loss.gamma_minus
    return counted, plan_batch(columns, rows.clamp(min=0), contexts, active * loss.gamma_plus, active * minus)


def _scale(loss: SmoothedLoss, columns: Columns, counted: Tensor, batch: Batch, num_items: Any) -> Tensor:
    """The factor of each position in the total; its class weight is in its loss already."""
    scale = counted.reshape(-1).float()
    if num_items is not None:
        return scale / at_least_one_item(num_items, scale.device)
    if loss.reduction != "mean":
        return scale
    total = (scale * columns.weight[batch.labels]).sum()
    return scale / torch.where(total > 0, total, 1.0)


def _take(batch: Batch, chosen: Tensor) -> Batch:
    return Batch(*(tensor[chosen] for tensor in batch))


def _parts(parts: list[Tensor]) -> LossParts:
    from lidstone.loss.loss import LossParts

    return LossParts(parts[0], *(part.detach() for part in parts[1:]))


def _no_table(size: int) -> BackoffTable:
    """A table of order 1, for weights without one."""
    nodes = np.arange(size + 1, dtype=np.int32)
    trie = Trie(np.array([0, size + 1]), nodes, np.full(size + 1, -1, np.int32), np.array([size + 1], np.int32))
    base = np.full(size, 1 / size)
    return BackoffTable(Vocabulary(size=size, eos=0), trie, base, np.zeros(size + 1), np.zeros(0), {})
