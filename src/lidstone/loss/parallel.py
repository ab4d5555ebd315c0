"""`VocabularyParallelCrossEntropy`: the loss where each process holds the logits of a part of the vocabulary.

As `torch.distributed.tensor.parallel.loss_parallel` is for `F.cross_entropy`: the output layer is parallel over its
columns, no process ever has all logits, and each keeps its own columns of base and n-grams. Value and gradient are
those of `SmoothedCrossEntropy` on all logits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lidstone.errors import InputError
from lidstone.loss import operators
from lidstone.loss.checks import check_kinds, check_numbers, check_transforms
from lidstone.loss.losses import LossParts, SmoothedLoss
from lidstone.loss.targets import Columns
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable


class VocabularyParallelCrossEntropy(SmoothedLoss):
    """Cross-entropy on logits (batch, time, part of V), regularized by an n-gram model.

    `group` is the process group that shares the vocabulary, all processes unless given. The parts are those of
    `torch.chunk`, as for a DTensor; `columns=(start, stop)` names others. Labels are the same in all of them. Other
    options are those of `SmoothedCrossEntropy`.

    >>> from lidstone import Vocabulary, WittenBell, count
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> table = WittenBell().fit(count([[1, 2]], Vocabulary(size=4, eos=0), order=2))
    >>> loss = VocabularyParallelCrossEntropy(table, gamma=0.3)
    >>> logits = torch.zeros(1, 2, 4, requires_grad=True)  # of all four ids: this is the only process
    >>> round(loss(logits, torch.tensor([[1, 2]])).total.item(), 4)  # uniform q: log 4
    1.3863
    >>> torch.distributed.destroy_process_group()
    """

    def __init__(
        self,
        table: BackoffTable,
        counts: Counts | None = None,
        *,
        group: Any = None,
        columns: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        if options.get("weight") is not None:
            raise InputError("logits sharded over the vocabulary take no class weights", hint="leave weight= out")
        check_kinds(table, counts)
        group = group if group is not None else torch.distributed.group.WORLD
        if group is None:
            raise InputError(
                "there is no process group to share the vocabulary",
                hint="call torch.distributed.init_process_group first, or use SmoothedCrossEntropy",
            )
        self.group, self.columns = group, slice(*(columns or shard_of(table.vocab.size, group)))  # read by `_columns`
        super().__init__(table, counts, **options)

    def _columns(self, table: BackoffTable) -> Columns:
        return Columns(self.columns.start, self.columns.stop, self.group.group_name)

    def forward(
        self,
        logits: Tensor,  # (batch, time, columns), or a DTensor (batch, time, V) sharded over V
        labels: Tensor,  # (batch, time), the same in each process of the group
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
    ) -> LossParts:
        """The loss of all logits, in each process; see SmoothedCrossEntropy."""
        check_transforms()
        check_numbers(logits)
        logits, labels = local_part(logits, labels)
        width, size = self.columns.stop - self.columns.start, 0 if self.targets is None else self.targets.vocab.size
        if logits.shape != (*labels.shape, width):
            raise InputError(
                f"logits of shape {tuple(logits.shape)} do not fit labels of shape {tuple(labels.shape)}: "
                f"this process has the {width} ids from {self.columns.start} to {self.columns.stop - 1}",
                hint="give the logits of these ids, or name yours: columns=(start, stop)",
            )
        gold = self._gold(labels, size)
        return self._losses(logits, gold, num_items, operators.with_rows(self._planned(gold, histories, num_items)))


def shard_of(size: int, group: Any) -> tuple[int, int]:
    """The part of 0..size-1 that torch.chunk, and so a DTensor, gives to this process of the group."""
    rank, parts = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    width = -(-size // parts)
    return min(rank * width, size), min((rank + 1) * width, size)


def local_part(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """What this process holds of DTensors; other tensors as they are."""
    from torch.distributed.tensor import DTensor

    if isinstance(labels, DTensor):
        labels = labels.to_local()
    return (logits.to_local() if isinstance(logits, DTensor) else logits), labels
