"""The loss with one table per fold of the training text, so that a sentence meets a table that has not seen it.

    target of a position of fold k:  (1 - gamma) onehot + gamma p~_k(.|history),    p~_k fitted without fold k

A fold's rows go through the ordinary loss with the labels of other folds ignored. Where each row of a batch belongs to
one fold this costs one pass over the logits; a row of several folds, as in packed text, is taken once per fold in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lidstone.errors import InputError
from lidstone.loss.checks import check_histories, check_shapes
from lidstone.loss.losses import SmoothedCrossEntropy, SmoothedLoss
from lidstone.loss.targets import shift_right
from lidstone.ngram.table import BackoffTable


class FoldedCrossEntropy(SmoothedLoss):
    """Cross-entropy on logits, regularized by the table of each position's fold.

    `folds` numbers the rows (batch,) or the labels (batch, time); `SmoothedLossMixin` takes it from the batch.
    With make=SparseTargetCrossEntropy the tables are the tails of a teacher, whose columns go to the call.

    >>> from lidstone import Vocabulary, WittenBell, count
    >>> vocab, halves = Vocabulary(size=4, eos=0), ([[1, 2]], [[3, 1]])
    >>> tables = [WittenBell().fit(count(halves[1 - fold], vocab, order=2)) for fold in (0, 1)]
    >>> loss = FoldedCrossEntropy(tables, gamma=0.3)
    >>> logits, labels = torch.zeros(2, 3, 4, requires_grad=True), torch.tensor([[1, 2, 0], [3, 1, 0]])
    >>> round(loss(logits, labels, folds=torch.tensor([0, 1])).total.item(), 4)        # uniform q: log 4
    1.3863
    """

    def __init__(
        self, tables: Sequence[BackoffTable], *, make: type[SmoothedLoss] = SmoothedCrossEntropy, **options: Any
    ) -> None:
        """Table k was fitted without fold k; `options` are those of `make` without counts."""
        own = {key: options[key] for key in ("ignore_index", "reduction", "schedule") if key in options}
        super().__init__(**own)
        if len(tables) < 2 or self.reduction == "none" or options.get("empirical", "token") != "token":
            raise InputError(
                f"folds need two tables or more, not {len(tables)}, the token as empirical distribution, and a sum",
                hint='pass one table per fold, empirical="token", and reduction="mean" or "sum"',
            )
        self.losses: Any = nn.ModuleList(make(table, **{**options, "reduction": "sum"}) for table in tables)

    @property
    def signature(self) -> dict[str, Any]:
        """All that determines this loss; `table` has the signatures of the tables, fold by fold."""
        signatures = [loss.signature for loss in self.losses]
        return {**signatures[0], "table": {"folds": [signature["table"] for signature in signatures]}}

    def never_predicted(self, labels: Tensor) -> Tensor:
        """Which labels no table predicts; a mask like labels."""
        return torch.stack([loss.never_predicted(labels) for loss in self.losses]).all(0)

    def forward(
        self,
        logits: Tensor,  # (batch, time, V)
        labels: Tensor,  # (batch, time)
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
        folds: Tensor | None = None,  # (batch,) or (batch, time)
        **columns: Tensor,  # of a teacher, (batch, time, k)
    ) -> Any:
        """As `make.forward`; the sum over the folds. Plain NLL in eval mode."""
        check_shapes(logits, labels)
        if num_items is None and self.reduction == "mean":
            num_items = (labels != self.ignore_index).sum().clamp(min=1)
        given = {"histories": histories, "num_items": num_items, **columns}
        if not self._training or not (labels != self.ignore_index).any():
            return self.losses[0](logits, labels, **given)
        owners = self._owners(labels, folds)
        first = self.losses[0].targets
        check_histories(labels, histories, first.order)
        if histories is None:
            histories = shift_right(self._gold(labels, logits.shape[-1]), first.vocab.bos)
        found = []
        for fold, loss in enumerate(self.losses):
            kept = (owners == fold) & (labels != self.ignore_index)
            rows = torch.nonzero(kept.any(1))[:, 0]
            own = torch.where(kept, labels, self.ignore_index)[rows]
            if len(rows):
                here = {name: column[rows] for name, column in {"histories": histories, **columns}.items()}
                found.append(loss(logits[rows], own, num_items=1 if num_items is None else num_items, **here))
        return found[0]._make(torch.stack(parts).sum() for parts in zip(*found, strict=True))

    def _owners(self, labels: Tensor, folds: Tensor | None) -> Tensor:
        """The fold of each label, (batch, time)."""
        if folds is None or folds.shape not in (labels.shape[:1], labels.shape):
            given = "no folds" if folds is None else f"folds of shape {tuple(folds.shape)}"
            raise InputError(
                f"{given} for labels of shape {tuple(labels.shape)}", hint="number the rows, or the labels, in `folds`"
            )
        owners = folds if folds.dim() == labels.dim() else folds[:, None].expand_as(labels)
        wrong = (labels != self.ignore_index) & ((owners < 0) | (owners >= len(self.losses)))
        if wrong.any():
            number = int(owners[wrong][0])
            raise InputError(f"fold {number} has no table: there are {len(self.losses)}", hint="number folds from 0 on")
        return owners
