"""`VocabularyParallelCrossEntropy`: the loss where each process holds the logits of a part of the vocabulary.

As `torch.distributed.tensor.parallel.loss_parallel` is for `F.cross_entropy`: the output layer is parallel over its
columns, no process ever has all logits, and each keeps its own columns of base and n-grams. Value and gradient are
those of `SmoothedCrossEntropy` on all logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lidstone.errors import InputError
from lidstone.loss.checks import (
    check_choices,
    check_counts,
    check_kinds,
    check_transforms,
    strengths_of,
)
from lidstone.loss.columns.table import Columns
from lidstone.loss.columns.weighted import weighted_loss
from lidstone.loss.loss import LossParts, SmoothedLoss
from lidstone.loss.plan import Empirical, Form
from lidstone.ngram.counts import Counts
from lidstone.ngram.formats.validate import check_normalised
from lidstone.ngram.table import BackoffTable


class VocabularyParallelCrossEntropy(SmoothedLoss):
    """Cross-entropy on logits (batch, time, part of V), regularized by an n-gram model.

    `group` is the process group that shares the vocabulary, all processes unless given. The parts are those of
    `torch.chunk`, as for a DTensor; `columns=(start, stop)` names others. Labels are the same in all of them.
    """

    def __init__(
        self,
        table: BackoffTable,
        counts: Counts | None = None,
        *,
        gamma: float | None = None,
        gamma_plus: float | None = None,
        gamma_minus: float | None = None,
        form: Form = "exact",
        empirical: Empirical = "token",
        group: Any = None,
        columns: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        if options.get("weight") is not None:
            raise InputError("logits sharded over the vocabulary take no class weights", hint="leave weight= out")
        super().__init__(**options)
        check_kinds(table, counts)
        if table is not None and not options.get("allow_unnormalised", False):
            check_normalised(table)
        self.gamma_plus, self.gamma_minus = strengths_of(table, gamma, gamma_plus, gamma_minus, form)
        check_choices(form=(form, Form), empirical=(empirical, Empirical))
        check_counts(table, counts, empirical, form)
        self.form, self.empirical = form, empirical
        self.group = group if group is not None else torch.distributed.group.WORLD
        if self.group is None:
            raise InputError(
                "there is no process group to share the vocabulary",
                hint="call torch.distributed.init_process_group first, or use SmoothedCrossEntropy",
            )
        start, stop = columns or shard_of(table.vocab.size, self.group)
        self.columns = Columns(table, counts, empirical, start, stop, np.ones(table.vocab.size))

    @property
    def signature(self) -> dict[str, Any]:
        """All that determines this loss; the same as on all logits."""
        return {**super().signature, "table": self.columns.signature}

    def never_predicted(self, labels: Tensor) -> Tensor:
        """Which labels the table never predicts, so that their positions have the plain NLL; a mask like labels."""
        counted = labels != self.ignore_index
        return counted & ~self.columns.predicted[torch.where(counted, labels, 0)]

    def forward(
        self,
        logits: Tensor,  # (batch, time, columns), or a DTensor (batch, time, V) sharded over V
        labels: Tensor,  # (batch, time), the same in each process of the group
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
    ) -> LossParts:
        """The loss of all logits, in each process; see SmoothedCrossEntropy."""
        check_transforms()
        logits, labels = local_part(logits, labels)
        width = self.columns.stop - self.columns.start
        if logits.shape != (*labels.shape, width):
            raise InputError(
                f"logits of shape {tuple(logits.shape)} do not fit labels of shape {tuple(labels.shape)}: "
                f"this process has the {width} ids from {self.columns.start} to {self.columns.stop - 1}",
                hint="give the logits of these ids, or name yours: columns=(start, stop)",
            )
        self.columns.vocab.check_ids(labels[labels != self.ignore_index].cpu().numpy())
        return weighted_loss(self, self.columns, logits, labels, histories, num_items)


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
