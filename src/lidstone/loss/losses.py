"""Cross-entropy regularized by a smoothed n-gram distribution, as cheap as label smoothing.

`SmoothedCrossEntropy` takes logits, `LinearSmoothedCrossEntropy` hidden states and the output matrix. With the defaults
(exact form, token empirical) the target of a position is (1 - gamma) onehot + gamma p~(.|history): label smoothing
whose uniform distribution is replaced by an n-gram model that has read the training text.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.loss import operators
from lidstone.loss.checks import (
    ClassWeights,
    Empirical,
    Form,
    at_least_one_item,
    check_call,
    check_choices,
    check_counts,
    check_histories,
    check_kinds,
    check_label_type,
    check_numbers,
    check_shapes,
    check_transforms,
    checked_weights,
    strengths_of,
)
from lidstone.loss.kernels.protocol import PlannedBatch, kernel_name
from lidstone.loss.schedule import CONSTANT, Schedule
from lidstone.loss.targets import Columns, ConstantTensors, Targets, shift_right
from lidstone.ngram.counts import Counts
from lidstone.ngram.formats.validate import check_normalised
from lidstone.ngram.table import BackoffTable

if TYPE_CHECKING:
    from typing_extensions import Self

Reduction = Literal["mean", "sum", "none"]
T = TypeVar("T", Tensor, Tensor | None)


class LossParts(NamedTuple):
    """What a loss is made of: total = nll + plus + minus. Only `total` carries a gradient.

    >>> from lidstone import Vocabulary, WittenBell, count
    >>> table = WittenBell().fit(count([[1, 2]], Vocabulary(size=3, eos=0), order=2))
    >>> parts = SmoothedCrossEntropy(table, gamma=0.5)(torch.zeros(1, 2, 3, requires_grad=True), torch.tensor([[1, 2]]))
    >>> torch.isclose(parts.total, parts.nll + parts.plus + parts.minus).item()
    True
    """

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
        weights = None if weight is None else checked_weights(weight, None if table is None else table.vocab.size)
        columns = None if table is None else self._columns(table)
        self.targets = None if table is None else Targets(table, counts, empirical, weights, columns)
        self.class_weights: ConstantTensors | None = None
        if weights is not None:
            self.class_weights = ConstantTensors()
            self.class_weights._keep("weight", weights, torch.float32)
        self.progress = 0.0

    def _columns(self, table: BackoffTable) -> Columns | None:
        """The words whose logits are here; None: all."""
        return None

    @property
    def progress(self) -> float:
        """How much of the training is done, from 0 to 1; read by the schedule."""
        return self._progress

    @progress.setter
    def progress(self, done: float) -> None:
        """Set the strengths of this step, as a tensor, so that compiled code need not be compiled again."""
        self._progress = done
        for part in self.modules():
            if isinstance(part, SmoothedLoss) and part is not self:  # the loss of a fold
                part.progress = done
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
            **({} if self.class_weights is None else {"weight": self.class_weights.constants()["weight"].tolist()}),
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
    def _training(self) -> bool:
        return self.training and torch.is_grad_enabled()

    def _planned(self, gold: Tensor, histories: Tensor | None, num_items: Any) -> PlannedBatch:
        """What is known before the logits; without a plan where this is plain cross-entropy."""
        batch, targets = PlannedBatch(gold.reshape(-1), self._scale_of_labels(gold, num_items)), self.targets
        if targets is None or not self._training:
            return batch._replace(facts=targets.facts) if targets and targets.facts.group else batch
        check_histories(gold, histories, targets.order)
        contexts = self._contexts(gold, histories, targets.vocab.bos)
        return operators.planned(contexts, batch._replace(table=targets.table, facts=targets.facts))

    def _contexts(self, gold: Tensor, histories: Tensor | None, bos: int) -> Tensor:
        """The token before each label; (rows, time)."""
        return shift_right(_as_rows(gold), bos) if histories is None else _as_rows(histories)

    def _losses(self, logits: Tensor, gold: Tensor, num_items: Any, batch: PlannedBatch) -> LossParts:
        """The parts of logits (..., columns)."""
        if self.inplace_gradient and _may_overlap(logits):
            logits = logits.contiguous()  # what shares memory has room for one gradient
        total, parts, _ = operators.losses(_as_rows_of_logits(logits), *batch.packed(), self.inplace_gradient)
        parts = parts.detach()
        if self.reduction == "none" and num_items is None:
            return LossParts(total.view(gold.shape), *(part.view(gold.shape) for part in parts.unbind()))
        return LossParts(total.sum(), *parts.sum(-1).unbind())

    def _gold_of_logits(self, logits: Tensor, labels: Tensor, others: dict[str, Any], remedy: str) -> Tensor:
        """`_gold` of a loss on logits; what does not fit is refused."""
        check_call(logits, others, remedy)
        is_gradcheck = logits.dtype == torch.float64 and logits.requires_grad and logits.is_leaf
        if is_gradcheck and kernel_name(logits.device) == "triton":
            warnings.warn(
                "Triton's kernels compute the loss of float64 logits in float32, too coarse for gradcheck: "
                "move them to a CPU, or set LIDSTONE_KERNELS=tensors",
                stacklevel=3,
            )
        refuse_sharded(logits)
        check_shapes(logits, labels)
        self._check_vocabulary(logits.shape[-1], "logits")
        return self._gold(labels, logits.shape[-1])

    def _gold_of_hidden(self, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        """`_gold` of a linear loss; shapes that do not fit are refused."""
        check_transforms()
        check_numbers(hidden, weight)
        if self.reduction == "none":
            raise InputError("the linear loss sums over positions", hint='use reduction="mean" or "sum"')
        if hidden.shape[:-1] != labels.shape or hidden.shape[-1] != weight.shape[-1]:
            raise InputError(
                f"hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)} and labels {tuple(labels.shape)} "
                "do not fit",
                hint="hidden is (batch, time, d), weight (V, d), labels (batch, time)",
            )
        self._check_vocabulary(len(weight), "output matrix")
        return self._gold(labels, len(weight))

    def _linear_losses(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, batch: PlannedBatch) -> LossParts:
        """The parts of hidden states."""
        leaves = (hidden, gathered(weight), gathered(bias))
        wants = [torch.is_grad_enabled() and leaf is not None and leaf.requires_grad for leaf in leaves]
        states = hidden.reshape(-1, hidden.shape[-1])
        sums, *_ = operators.linear_losses(states, *leaves[1:], *batch.packed(), product_type(hidden), wants)
        total, *parts = sums.unbind()
        return LossParts(total, *(part.detach() for part in parts))

    def _check_vocabulary(self, size: int, what: str) -> None:
        if self.targets is not None and size != self.targets.vocab.size:
            raise VocabularyMismatch(
                f"the table has {self.targets.vocab.size} ids, the {what} {size}",
                hint=f"make the vocabulary with the model's size: Vocabulary.from_tokenizer(tokenizer, size={size}), "
                "and count with it, or read an ARPA file with it: ld.read_arpa(path, vocab)",
            )

    def _gold(self, labels: Tensor, size: int) -> Tensor:
        """Labels with -1 for those that are ignored; those outside the vocabulary are refused."""
        check_label_type(labels)
        found: Tensor = operators.gold(labels, self.ignore_index, size)
        return found

    def _scale_of_labels(self, gold: Tensor, num_items: Any) -> Tensor:
        """`_scale` with class weights: the mean divides by the sum of weight[label].

        With a table the kernels multiply by the weights; without one, weight[label] is all that they change.
        """
        if self.class_weights is None or not self._training:
            return self._scale(gold >= 0, num_items)
        own = self.class_weights.constants()["weight"][gold.reshape(-1).clamp(min=0)]
        scale = self._scale(gold >= 0, num_items, own)
        return scale if self.targets is not None else scale * own

    def _scale(self, counted: Tensor, num_items: Tensor | int | float | None, own: Tensor | None = None) -> Tensor:
        """The weight of each position in the total; (positions,). A mean counts each position as often as `own`."""
        weight = counted.reshape(-1)
        if num_items is not None:
            return weight.float() / at_least_one_item(num_items, weight.device)
        if self.reduction != "mean":
            return weight.float()
        if own is None:
            return weight / weight.sum(dtype=torch.float32).clamp(min=1)
        total = (weight * own).sum()
        return weight / torch.where(total > 0, total, 1.0)


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
        it the labels themselves serve: a row begins a sentence, and an ignored label is unknown as history. So give the
        inputs, `histories=inputs`, where rows begin anywhere (packed blocks).
        `num_items` divides the sum, as `num_items_in_batch` of the Trainer does. Under no_grad or in eval mode the
        total is the plain NLL.
        """
        gold = self._gold_of_logits(logits, labels, others, "compute_loss_func=ld.trainer_loss(loss)")
        return self._losses(logits, gold, num_items, operators.with_rows(self._planned(gold, histories, num_items)))


class LinearSmoothedCrossEntropy(SmoothedLoss):
    """Cross-entropy of `hidden @ weight.T + bias`, regularized by an n-gram model, never holding all logits.

    Positions are taken in chunks: project a chunk, take its losses, turn its logits into their gradient in place, and
    multiply that back into the gradients of the hidden states and of the weight. In two dense lines,

        logits = hidden @ weight.T + bias
        total  = SmoothedCrossEntropy(...)(logits, labels, histories).total

    >>> loss = LinearSmoothedCrossEntropy()
    >>> hidden, weight = torch.zeros(1, 3, 2, requires_grad=True), torch.zeros(4, 2, requires_grad=True)
    >>> round(loss(hidden, weight, torch.tensor([[1, 3, 0]])).total.item(), 4)
    1.3863
    """

    def forward(
        self,
        hidden: Tensor,  # (batch, time, d)
        weight: Tensor,  # (V, d)
        labels: Tensor | None = None,  # (batch, time)
        histories: Tensor | None = None,
        num_items: Tensor | int | float | None = None,
        bias: Tensor | None = None,  # (V,)
        **others: Any,
    ) -> LossParts:
        """The loss of hidden states that predict the labels at the same positions; see SmoothedCrossEntropy."""
        if labels is None or others:  # as when the Trainer calls the loss itself
            hint = (
                "with a Trainer use SmoothedLossMixin and smoothed_loss=; compute_loss_func= gives it no hidden states"
            )
            raise InputError("the linear loss needs hidden states, the output matrix and labels", hint=hint)
        gold = self._gold_of_hidden(hidden, weight, labels)
        return self._linear_losses(hidden, weight, bias, self._planned(gold, histories, num_items))


def product_type(hidden: Tensor) -> torch.dtype:
    """The type in which hidden states are multiplied here."""
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def _as_rows_of_logits(logits: Tensor) -> Tensor:
    """Logits of any shape as (batch, time, V); a view of what has at most three dimensions."""
    return logits.reshape(math.prod(logits.shape[:-2]), *logits.shape[-2:]) if logits.dim() > 1 else logits[None, None]


def _may_overlap(tensor: Tensor) -> bool:
    """Whether numbers of a tensor may share memory, as those of expanded and unfolded ones do."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _as_rows(ids: Tensor) -> Tensor:
    """Ids of any shape as (rows, time)."""
    return ids.reshape(math.prod(ids.shape[:-1]), ids.shape[-1]) if ids.dim() else ids.reshape(1, 1)


def is_sharded(tensor: Tensor | None) -> bool:
    """Whether this is a DTensor; not checked under torch.compile."""
    return not torch.compiler.is_compiling() and hasattr(tensor, "device_mesh")


def gathered(tensor: T) -> T:
    """The whole of a DTensor, with a gradient that is averaged over the processes; others as they are.

    FSDP leaves the output matrix sharded after the forward pass, which is when the linear loss needs it. All processes
    gather it together, and its gradient goes back averaged over them, as FSDP averages all others. A tensor that is
    sharded among processes with the same batch (tensor parallelism) has the same gradient in each: their mean is right.
    """
    if tensor is None or not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import Partial

    sharded: Any = tensor
    mesh = sharded.device_mesh
    full = sharded.full_tensor(grad_placements=[Partial()] * mesh.ndim)
    whole: T = _MeanGradient.apply(full, mesh.size())  # type: ignore[no-untyped-call]
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
