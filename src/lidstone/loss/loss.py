"""`SmoothedCrossEntropy`: cross-entropy regularized by a smoothed n-gram distribution, as cheap as label smoothing.

With the defaults (exact form, token empirical) the target of a position is (1 - gamma) onehot + gamma p~(.|history):
label smoothing whose uniform distribution is replaced by an n-gram model that has read the training text.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lidstone.errors import VocabularyMismatch
from lidstone.loss import operators
from lidstone.loss.checks import (
    at_least_one_item,
    check_call,
    check_choices,
    check_counts,
    check_histories,
    check_kinds,
    check_label_type,
    check_shapes,
    strengths_of,
)
from lidstone.loss.columns.weighted import ClassWeights, weighted_columns, weighted_loss
from lidstone.loss.constant_tensors import ConstantTensors
from lidstone.loss.kernels.choice import kernel_name
from lidstone.loss.plan import Empirical, Form
from lidstone.loss.schedule import CONSTANT, Schedule
from lidstone.loss.sharded import refuse_sharded
from lidstone.loss.targets import Targets, shift_right
from lidstone.ngram.counts import Counts
from lidstone.ngram.formats.validate import check_normalised
from lidstone.ngram.table import BackoffTable

if TYPE_CHECKING:
    from typing_extensions import Self

Reduction = Literal["mean", "sum", "none"]


class LossParts(NamedTuple):
    """What a loss is made of: total = nll + plus + minus. Only `total` carries a gradient."""

    total: Tensor
    """what to minimise"""
    nll: Tensor
    """the plain negative log-likelihood"""
    plus: Tensor
    """gamma_plus times Z H(p+, q)"""
    minus: Tensor
    """the gamma_minus term with its sign: subtracted in the exact form, added in the published one"""


class SmoothedLoss(nn.Module):
    """What the losses on logits and on hidden states share: the table, the strengths, the checks."""

    def __init__(
        self,
        table: BackoffTable | None = None,
        counts: Counts | None = None,
        *,
        gamma: float | None = None,
        gamma_plus: float | None = None,
        gamma_minus: float | None = None,
        form: Form = "exact",
        empirical: Empirical = "token",
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        schedule: Schedule = CONSTANT,
        weight: ClassWeights | None = None,
        allow_unnormalised: bool = False,
        inplace_gradient: bool = False,
    ) -> None:
        """Take p~ from `table`; without one this is plain cross-entropy.

        gamma sets both strengths. `counts` of the training text are needed with empirical="ngram" only. `weight` holds
        one class weight per id, as in `F.cross_entropy`; it acts in training. A table whose probabilities are further
        than 1e-3 from summing to one is refused unless `allow_unnormalised`. inplace_gradient=True writes the gradient
        into the memory of the logits in the backward pass: it saves a tensor of their size, but the logits must not be
        read afterwards.
        """
        super().__init__()
        check_kinds(table, counts)
        self.gamma_plus, self.gamma_minus = strengths_of(table, gamma, gamma_plus, gamma_minus, form)
        check_choices(form=(form, Form), empirical=(empirical, Empirical), reduction=(reduction, Reduction))
        check_counts(table, counts, empirical, form)
        if table is not None and not allow_unnormalised:
            check_normalised(table)
        self.form: Form = form
        self.empirical: Empirical = empirical
        self.ignore_index, self.reduction, self.schedule = ignore_index, reduction, schedule
        self.inplace_gradient = inplace_gradient
        self.targets = None if table is None else Targets(table, counts, empirical)
        self.weighted = None if weight is None else weighted_columns(table, counts, empirical, weight)
        self.progress = 0.0

    @property
    def progress(self) -> float:
        """How much of the training is done, from 0 to 1; read by the schedule."""
        return self._progress

    @progress.setter
    def progress(self, done: float) -> None:
        """Set the strengths of this step, as a tensor, so that compiled code need not be compiled again."""
        self._progress = done
        if self.targets is not None:
            strength, sign = self.schedule(done), 1.0 if self.form == "published" else -1.0
            self.targets.set_strengths(strength * self.gamma_plus, sign * (strength * self.gamma_minus))

    @property
    def signature(self) -> dict[str, Any]:
        """All that determines this loss."""
        return {
            "table": None if self.targets is None else self.targets.signature,
            "gamma_plus": self.gamma_plus,
            "gamma_minus": self.gamma_minus,
            "form": self.form,
            "empirical": self.empirical,
            "schedule": str(self.schedule),
            **({} if self.weighted is None else {"weight": self.weighted.weight.tolist()}),
        }

    def extra_repr(self) -> str:
        """The strengths and the form, for print(loss)."""
        strengths = f"gamma_plus={self.gamma_plus}, gamma_minus={self.gamma_minus}"
        return f"{strengths}, form={self.form}, empirical={self.empirical}"

    def never_predicted(self, labels: Tensor) -> Tensor:
        """Which labels the table never predicts, so that their positions have the plain NLL; a mask like labels."""
        if self.targets is None:
            return torch.zeros_like(labels, dtype=torch.bool)
        counted = labels != self.ignore_index
        known = torch.where(counted, labels, 0).long().clamp(0, self.targets.vocab.size - 1)  # the loss checks ids
        return counted & ~self.targets.predicted[known]

    def share(self, path: str | Path) -> Self:
        """Map the table's tensors from a file, which is written if it is not there, and return the loss.

        Processes of one machine that share the same path, ranks or workers of a data loader, then have the table in
        memory once. A pickle of the loss holds the file's name in place of the tensors.
        """
        for number, part in enumerate(part for part in self.modules() if isinstance(part, ConstantTensors)):
            part.share(f"{path}.{number}" if number else path)
        return self

    @property
    def _regularizing(self) -> bool:
        return self.training and torch.is_grad_enabled() and self.targets is not None

    def _plan(self, labels: Tensor, histories: Tensor | None, operator: Any = operators.plan) -> list[Tensor]:
        """Coefficients of all positions, the fields of `Plan`; none where this is plain cross-entropy."""
        if not self._regularizing or self.targets is None:
            return []
        check_histories(labels, histories, self.targets.order)
        known = _as_rows(labels)
        contexts = shift_right(known, self.targets.vocab.bos) if histories is None else _as_rows(histories)
        return list(operator(known, contexts, *self._table))

    @property
    def _table(self) -> tuple[Any, ...]:
        """The table and its facts, as the operators take them."""
        return ([], 0, False, 0) if self.targets is None else (list(self.targets.table), *self.targets.facts)

    def _check_vocabulary(self, size: int, what: str) -> None:
        if self.targets is not None and size != self.targets.vocab.size:
            raise VocabularyMismatch(
                f"the table has {self.targets.vocab.size} ids, the {what} {size}",
                hint=f"make the vocabulary with the model's size: Vocabulary.from_tokenizer(tokenizer, size={size})",
            )

    def _gold(self, labels: Tensor, size: int) -> Tensor:
        """Labels with -1 for those that are ignored; those outside the vocabulary are refused."""
        check_label_type(labels)
        found: Tensor = operators.gold(labels, self.ignore_index, size)
        return found

    def _scale(self, counted: Tensor, num_items: Tensor | int | float | None) -> Tensor:
        """The weight of each position in the total; (positions,)."""
        weight = counted.reshape(-1)
        if num_items is not None:
            return weight.float() / at_least_one_item(num_items, weight.device)
        return weight / weight.sum(dtype=torch.float32).clamp(min=1) if self.reduction == "mean" else weight.float()


class SmoothedCrossEntropy(SmoothedLoss):
    """Cross-entropy on logits, regularized by an n-gram model.

    >>> from lidstone import KneserEssenNey, Vocabulary, count
    >>> vocab = Vocabulary(size=4, eos=0)
    >>> counts = count([[1, 2, 3], [1, 3]], vocab, order=2)
    >>> loss = SmoothedCrossEntropy(KneserEssenNey(discount=0.5).fit(counts), counts, gamma=0.1)
    >>> logits, labels = torch.zeros(1, 3, 4, requires_grad=True), torch.tensor([[1, 3, 0]])
    >>> round(loss(logits, labels).total.item(), 4)             # uniform q: log 4 whatever the target
    1.3863
    """

    def forward(
        self,
        logits: Tensor,  # (batch, time, V), or (V,); (positions, V) with histories
        labels: Tensor,  # (batch, time), or (); (positions,) with histories
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
        **others: Any,
    ) -> LossParts:
        """The loss of logits that score the labels at the same positions.

        `histories` holds for each label the token before it (the model's input there); negative where unknown. Without
        it the labels themselves serve: a row begins a sentence, and an ignored label is unknown as history.
        `num_items` divides the sum, as `num_items_in_batch` of the Trainer does. Under no_grad or in eval mode the
        total is the plain NLL.
        """
        check_call(logits, others, "compute_loss_func=ld.trainer_loss(loss)")
        refuse_sharded(logits)
        size = logits.shape[-1]
        self._check_vocabulary(size, "logits")
        check_shapes(logits, labels)
        gold = self._gold(labels, size)
        if self.weighted is not None and self.training and torch.is_grad_enabled():
            return weighted_loss(self, self.weighted, logits, labels, histories, num_items)
        plan, rows = self._plan_and_rows(gold, histories)
        total, parts, _ = operators.losses(
            _as_rows_of_logits(logits),
            gold.reshape(-1),
            self._scale(gold >= 0, num_items),
            plan,
            rows,
            *self._table,
            self.inplace_gradient,
        )
        parts = parts.detach()
        if self.reduction == "none" and num_items is None:
            return LossParts(total.view(labels.shape), *(part.view(labels.shape) for part in parts.unbind()))
        return LossParts(total.sum(), *parts.sum(-1).unbind())

    def _plan_and_rows(self, labels: Tensor, histories: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """Coefficients of all positions, or rows of their histories where kernels do not look them up themselves."""
        if kernel_name(labels.device) != "tensors":
            return self._plan(labels, histories), []
        return [], self._plan(labels, histories, operators.rows)


def _as_rows_of_logits(logits: Tensor) -> Tensor:
    """Logits of any shape as (batch, time, V); a view of what has at most three dimensions."""
    return logits.reshape(math.prod(logits.shape[:-2]), *logits.shape[-2:]) if logits.dim() > 1 else logits[None, None]


def _as_rows(ids: Tensor) -> Tensor:
    """Ids of any shape as (rows, time)."""
    return ids.reshape(math.prod(ids.shape[:-1]), ids.shape[-1]) if ids.dim() else ids.reshape(1, 1)
