"""Cross-entropy with a teacher that is stored as its most probable words: distillation without a dense target.

    target(w) = (1 - gamma) onehot(y) + gamma t(w)

A truncated teacher is like a table of counts without its unseen words, and a tail completes it as Katz' back-off does:

    t(w) = t_k                          for the k words that are named
    t(w) = alpha p~(w|h)                for all others,     alpha = (1 - sum_k t_k) / (1 - sum_k p~(id_k|h))

So the target is alpha times a row that the kernels know, and k values on top of it: t_k - alpha p~(id_k|h).
`SmoothedCrossEntropy` is the case in which the teacher names no words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.loss import operators
from lidstone.loss.checks import check_choices, check_histories, check_kinds
from lidstone.loss.kernels.protocol import PlannedBatch, Teacher
from lidstone.loss.losses import Reduction, SmoothedLoss
from lidstone.loss.targets import ConstantTensors, history_entropies, table_of_base
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import unigrams
from lidstone.ngram.table import BackoffTable

Rule = Literal["drop", "renormalize", "uniform", "unigram"]
Tail = Rule | BackoffTable | Tensor | Sequence[float] | NDArray[Any]


class TeacherParts(NamedTuple):
    """What a loss with a teacher is made of: total = (1 - gamma) nll + gamma cross_entropy.

    Only `total` has a gradient.

    >>> loss, ids = SparseTargetCrossEntropy(gamma=0.5), torch.tensor([[[1, 2]]])
    >>> logits, labels = torch.zeros(1, 1, 3, requires_grad=True), torch.tensor([[1]])
    >>> parts = loss(logits, labels, ids, torch.tensor([[[0.5, 0.5]]]).log())
    >>> round(parts.total.item(), 4), round(parts.kl.item(), 4)  # uniform q: log 3, and log 3 - log 2
    (1.0986, 0.4055)
    """

    total: Tensor
    """what to minimise"""
    nll: Tensor
    """the plain negative log-likelihood of the labels"""
    cross_entropy: Tensor
    """- sum_w t(w) log q(w), t being the completed teacher; 0 without a teacher"""
    kl: Tensor
    """sum_w t(w) log(t(w) / q(w)): the cross-entropy less the teacher's entropy"""


class SparseTargetLoss(SmoothedLoss):
    """What the losses with a teacher have in common: the tail, the teacher's share, the checks."""

    def __init__(
        self,
        tail: Tail = "drop",
        *,
        gamma: float = 0.5,
        temperature: float = 1.0,
        counts: Counts | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        allow_unnormalised: bool = False,
        inplace_gradient: bool = False,
    ) -> None:
        """Complete the teacher by `tail`, and give it the share `gamma` of the target.

        "drop": the other words have 0, and the teacher sums to what its words have. "renormalize": its words are
        divided by their sum. "uniform": the rest is the same for all other words. "unigram": it follows the relative
        frequencies of `counts`. A BackoffTable: it follows p~(.|history). A distribution (V,): it follows that one.

        Where the tail leaves at most 0.001 to other words, as where all words are named, the teacher's words are
        divided by their sum. A position at which the teacher names no words has the whole tail as its teacher; with
        "drop" and "renormalize" it has the plain cross-entropy.

        A temperature T takes t_k^(1/T), divided by their sum, and is for tail="renormalize" alone: how probable the
        words are that were not stored would have to be known to soften any other. The model's logits are not divided.
        """
        rule, table = (None, tail) if isinstance(tail, BackoffTable) else (tail, None)
        if rule is not None and isinstance(rule, str):
            check_choices(tail=(rule, Rule))
        check_kinds(table, counts)
        super().__init__(
            table,
            gamma=None if table is None else 1.0,  # of the rows; the share is the teacher's
            ignore_index=ignore_index,
            reduction=reduction,
            allow_unnormalised=allow_unnormalised,
            inplace_gradient=inplace_gradient,
        )
        self.gamma, self.temperature = checked_share(gamma), checked_temperature(temperature, tail)
        self.tail = rule if isinstance(rule, str) else "table" if table is not None else "distribution"
        base = np.empty(0)
        if self.tail == "distribution":
            base = checked_distribution(rule)
        elif self.tail == "unigram":
            if counts is None:
                raise InputError('tail="unigram" needs the counts of the training text', hint="pass counts=")
            base = unigrams(counts)
        self.fixed = ConstantTensors()
        self.fixed._keep("base", base, torch.float32)
        self.fixed._keep("entropies", np.zeros(1) if table is None else history_entropies(table), torch.float32)

    @property
    def signature(self) -> dict[str, Any]:
        """All that determines this loss."""
        table = None if self.targets is None else self.targets.signature
        base = self.fixed.constants()["base"].tolist()
        return {
            "tail": self.tail,
            "table": table,
            "gamma": self.gamma,
            "temperature": self.temperature,
            **({"distribution": base} if base else {}),
        }

    def extra_repr(self) -> str:
        """The tail and the share, for print(loss)."""
        return f"tail={self.tail}, gamma={self.gamma}, temperature={self.temperature}"

    def never_predicted(self, labels: Tensor) -> Tensor:
        """No label is left out: the teacher has its share wherever it is given."""
        return torch.zeros_like(labels, dtype=torch.bool)

    def _check_vocabulary(self, size: int, what: str) -> None:
        super()._check_vocabulary(size, what)
        given = len(self.fixed.constants()["base"])
        if given and given != size:
            raise VocabularyMismatch(f"the tail has {given} ids, the {what} {size}", hint="give one number per id")

    def _taught(
        self,
        gold: Tensor,
        ids: Tensor | None,
        logprobs: Tensor | None,
        histories: Tensor | None,
        num_items: Any,
        size: int,
    ) -> PlannedBatch:
        """What is known before the logits, with the teacher as it is given; no plan without a teacher."""
        batch = PlannedBatch(gold.reshape(-1), self._scale_of_labels(gold, num_items))
        if ids is None or logprobs is None:
            if self._training or ids is not None or logprobs is not None:
                raise InputError("the teacher is missing", hint="pass ids and logprobs, each (batch, time, k)")
            return batch
        check_teacher_shapes(gold, ids, logprobs, size)
        words, probs = operators.teacher(
            ids, logprobs.detach(), gold, size, self.tail == "renormalize", self.temperature
        )
        batch, entropies = self._with_tail(batch, size)
        states, none = self._states(gold, histories, batch), torch.full_like(batch.labels, -1)
        gamma = torch.full_like(batch.labels, self.gamma if self._training else 0.0, dtype=torch.float32)
        return batch._replace(plan=Teacher(states, none, words, probs, gamma, entropies[states]))

    def _with_tail(self, batch: PlannedBatch, size: int) -> tuple[PlannedBatch, Tensor]:
        """The batch with the tail's table, and the entropies of its rows; no table where words are left out."""
        constants, device = self.fixed.constants(), batch.labels.device
        if self.targets is not None:
            return batch._replace(table=self.targets.table, facts=self.targets.facts), constants["entropies"]
        if self.tail in ("drop", "renormalize"):
            return batch, constants["entropies"]
        base = torch.full((size,), 1 / size, device=device) if self.tail == "uniform" else constants["base"]
        return batch._replace(table=table_of_base(base)), torch.special.entr(base).sum()[None]

    def _states(self, gold: Tensor, histories: Tensor | None, batch: PlannedBatch) -> Tensor:
        """The node of each position's history."""
        if self.targets is None:
            return torch.full_like(batch.labels, -1)
        check_histories(gold, histories, self.targets.order)
        return operators.planned(self._contexts(gold, histories, self.targets.vocab.bos), batch).nodes[0]


class SparseTargetCrossEntropy(SparseTargetLoss):
    """Cross-entropy on logits with a teacher that is given as its k most probable words.

    >>> loss = SparseTargetCrossEntropy("uniform", gamma=0.5)
    >>> logits, labels = torch.zeros(1, 1, 4, requires_grad=True), torch.tensor([[3]])
    >>> ids, logprobs = torch.tensor([[[2, -1]]]), torch.tensor([[[0.5, 0.0]]]).log()    # 2: 1/2; others: 1/6 each
    >>> parts = loss(logits, labels, ids, logprobs)
    >>> round(parts.total.item(), 4), round(parts.kl.item(), 4)       # log 4; log 4 - (log 2 + log 6) / 2
    (1.3863, 0.1438)
    >>> parts.total.backward(); logits.grad.mul(12).round().tolist()  # 3 - 12 target; target = 1/12, 1/12, 3/12, 7/12
    [[[2.0, 2.0, 0.0, -4.0]]]
    """

    def forward(
        self,
        logits: Tensor,  # (batch, time, V)
        labels: Tensor,  # (batch, time)
        ids: Tensor | None = None,  # (batch, time, k)
        logprobs: Tensor | None = None,  # (batch, time, k)
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
        **others: Any,
    ) -> TeacherParts:
        """The loss of logits that score the labels at the same positions.

        `ids` are the words that the teacher names at each position, each once, -1 for unused places; `logprobs` their
        natural log-probabilities, whose probabilities sum to at most 1 (1.01, for rounding). `histories` are needed by
        a table as those of SmoothedCrossEntropy; so is `num_items`. Under no_grad or in eval mode the total is the
        plain NLL, and the teacher may be left out.
        """
        gold = self._gold_of_logits(
            logits, labels, others, "call the loss in compute_loss, with the columns of the teacher"
        )
        batch = operators.with_rows(self._taught(gold, ids, logprobs, histories, num_items, logits.shape[-1]))
        batch = batch if batch.plan is None else operators.with_target(batch)
        return TeacherParts(*self._losses(logits, gold, num_items, batch))


class LinearSparseTargetCrossEntropy(SparseTargetLoss):
    """`SparseTargetCrossEntropy` of `hidden @ weight.T + bias`, never holding all logits.

    >>> loss = LinearSparseTargetCrossEntropy("renormalize", gamma=1.0)
    >>> hidden, weight = torch.zeros(1, 1, 2, requires_grad=True), torch.zeros(4, 2, requires_grad=True)
    >>> parts = loss(hidden, weight, torch.tensor([[3]]), torch.tensor([[[1, 2]]]), torch.tensor([[[-1.0, -1.0]]]))
    >>> round(parts.total.item(), 4), round(parts.kl.item(), 4)       # log 4, log 4 - log 2
    (1.3863, 0.6931)
    """

    def forward(
        self,
        hidden: Tensor,  # (batch, time, d)
        weight: Tensor,  # (V, d)
        labels: Tensor,  # (batch, time)
        ids: Tensor | None = None,  # (batch, time, k)
        logprobs: Tensor | None = None,  # (batch, time, k)
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
        bias: Tensor | None = None,  # (V,)
    ) -> TeacherParts:
        """The loss of hidden states that predict the labels at the same positions; see SparseTargetCrossEntropy."""
        gold = self._gold_of_hidden(hidden, weight, labels)
        batch = self._taught(gold, ids, logprobs, histories, num_items, len(weight))
        return TeacherParts(*self._linear_losses(hidden, weight, bias, batch))


def check_teacher_shapes(labels: Tensor, ids: Tensor, logprobs: Tensor, size: int) -> None:
    """Refuse a teacher of another shape or type than (..., k) for labels (...)."""
    if ids.shape != logprobs.shape or ids.shape[:-1] != labels.shape or ids.dim() != labels.dim() + 1:
        raise InputError(
            f"the teacher's ids {tuple(ids.shape)} and logprobs {tuple(logprobs.shape)} do not fit labels "
            f"{tuple(labels.shape)}",
            hint="ids and logprobs are (batch, time, k), aligned with the labels: shift them as you shift the labels",
        )
    if ids.shape[-1] > size:
        raise InputError(
            f"the teacher names {ids.shape[-1]} words of a vocabulary of {size}", hint="check the teacher's tokenizer"
        )
    if ids.dtype not in (torch.int64, torch.int32, torch.int16) or not logprobs.is_floating_point():
        raise InputError(
            f"ids are {ids.dtype} and logprobs {logprobs.dtype}", hint="give integers with a sign, and floats"
        )


def checked_share(gamma: float) -> float:
    """The teacher's share of the target."""
    if not 0 <= gamma <= 1:
        raise InputError(f"gamma must be from 0 to 1, not {gamma}", hint="it is the teacher's share of the target")
    return float(gamma)


def checked_temperature(temperature: float, tail: Tail) -> float:
    """A temperature that the tail can have."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise InputError(f"temperature must be above 0, not {temperature}", hint="1.0 leaves the teacher as it is")
    if temperature != 1 and not (isinstance(tail, str) and tail == "renormalize"):
        raise InputError(
            f"temperature={temperature} is not defined for a teacher whose other words are not stored",
            hint='use tail="renormalize", or soften the teacher before its top words are taken',
        )
    return float(temperature)


def checked_distribution(tail: Any) -> NDArray[np.float64]:
    """A distribution over the vocabulary, as given; (V,)."""
    try:
        values: NDArray[np.float64] = torch.as_tensor(tail, dtype=torch.float64).detach().cpu().numpy()
    except (TypeError, ValueError, RuntimeError):
        choices = ", ".join(get_args(Rule))
        raise InputError(
            f"{type(tail).__name__} was given where a tail is expected", hint=f"choose from {choices}, or give a table"
        ) from None
    if values.ndim != 1 or not len(values) or not (values >= 0).all() or not abs(values.sum() - 1) <= 1e-3:
        raise InputError("the tail is not a distribution over the vocabulary", hint="give V numbers that sum to one")
    return values
