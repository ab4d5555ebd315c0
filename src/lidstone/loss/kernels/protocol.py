"""What the kernels of the loss exchange, and which of them run on a device. Numbers are those of docs/theory.md.

Write q for the model, y for the label, h for the history. All four combinations of form and empirical distribution are

    loss = mass * lse(z) - label * z[y] - plus * <rows, z> - minus * <Z p-, z>                                  (6)

    empirical   Z           mass                  label                          rows      p-
    token       1 - p~(y)   1 + (g+ +- g-) Z      1 - g+ p~(y) +- g- Z           p~        (in `label`)
    ngram       Z(h)        1 + (g+ +- g-) Z      1                              Z p+      Z p-

with + for the published form and - for the exact one. Rows are sparse values on top of a multiple of one dense row, the
base. So a batch is planned once: the node of each history, Z and p~(y). A label that the table never predicts has plain
NLL: mass 1, label 1, plus and minus 0.

A teacher's top words, completed by a tail (`SparseTarget`), are k more values on top of a multiple of the same rows:

    loss = mass * lse(z) - (1 - gamma) z[y] - gamma (tail * <p~, z> + sum_k values_k z[ids_k])

    cpu       compiled loops                                    on a CPU
    triton    one program per row of logits                     on CUDA and ROCm, where Triton is installed
    tensors   plain tensor code                                 everywhere else; class weights, parts of V

`LIDSTONE_KERNELS=tensors`, or `with using("tensors")`, overrides the choice for every device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from lidstone.errors import InputError

KERNELS = ("cpu", "triton", "tensors")
HOST_READABLE = ("cpu",)  # devices whose numbers the host reads without waiting
ROOM = 1e-3  # the least probability that a tail leaves to the words that a teacher does not name
_forced: list[str] = []


class TableTensors(NamedTuple):
    """A table as tensors, in the order in which the operators take them.

    Node -1, "no history", reads the last element of `suffixes`, `rows`, `backoffs` and `zs`, which stands for it.
    """

    first: Tensor
    """children of node i are first[i]:first[i+1]"""
    words: Tensor
    """the last word of each node"""
    suffixes: Tensor
    """the history without its oldest word"""
    rows: Tensor
    """the sparse part of p~; ngram: of the orders below the top only"""
    backoffs: Tensor
    base: Tensor
    """the dense part of p~; (V,), or the columns that are here"""
    tokens: Tensor
    """each id as a token of a history: boundaries are `<s>`; the last element stands for an unknown token"""
    predicted: Tensor
    """which words the table predicts at all; others, as labels, have plain NLL; (V,)"""
    plus: Tensor
    """ngram: the sparse part of Z p+, one per slot"""
    minus: Tensor
    """ngram: Z p-, one per slot"""
    dense_minus: Tensor
    """ngram at order 1: Z p-, (V,)"""
    zs: Tensor
    """ngram: Z of each node that is a whole history, -1 of others"""
    levels: Tensor
    """ngram: the first node of each order"""
    shifts: Tensor
    """ngram: node - shift is the slot of a follower of a whole history, by the history's length"""
    strengths: Tensor
    """gamma_plus, and gamma_minus with its sign, at this step of the schedule"""
    weight: Tensor
    """class weights, which rows, base, plus and minus are multiplied by, (V,); empty: none"""


class TableFacts(NamedTuple):
    """What the kernels need of a table besides its tensors."""

    order: int = 1
    ngram: bool = False
    """is the empirical distribution that of the n-grams?"""
    steps: int = 0
    """how many halvings find a word among the children of any node"""
    start: int = 0
    """the id of the first column of the logits"""
    dense: bool = False
    """only the tensor kernels have class weights and parts of the vocabulary"""
    group: str = ""
    """the name of the process group whose processes have parts of the vocabulary; "": all of it is here"""


class Coefficients(NamedTuple):
    """What is known of each position before the logits; every tensor is (positions,).

    The tensor kernels leave out what they read off the rows: `shifts`, `label_smoothed`, and in token form `z`.
    """

    states: Tensor
    """the node of the history's longest known suffix, or -1"""
    shifts: Tensor
    """ngram: node - shift is the slot of a follower; -1 where the history is not whole"""
    known: Tensor
    """whether the table has the label (ngram: and the history); where not, the loss is plain NLL"""
    z: Tensor
    """Z, the mass that smoothing moves"""
    label_smoothed: Tensor
    """token: p~(y); ngram: 0"""

    def strengths(self, table: TableTensors) -> tuple[Tensor, Tensor]:
        """`plus` and `minus` of each position: the strengths of this step, 0 where plain."""
        return table.strengths[0] * self.known, table.strengths[1] * self.known


class Teacher(NamedTuple):
    """The words that a teacher names at each position, as they are given."""

    states: Tensor
    """as in `Coefficients`"""
    shifts: Tensor
    ids: Tensor
    """(positions, k); -1: unused"""
    probs: Tensor
    """(positions, k), float32; 0 where unused"""
    gamma: Tensor
    """(positions,): the teacher's share of the target"""
    entropy: Tensor
    """(positions,): of the tail's row p~(.|h)"""


class SparseTarget(NamedTuple):
    """In place of `Coefficients` a completed teacher, sum_k values_k onehot(ids_k) + tail p~(.|h)."""

    states: Tensor
    """as in `Coefficients`"""
    shifts: Tensor
    ids: Tensor
    """(positions, k)"""
    values: Tensor
    """(positions, k): t - tail p~(id|h), which with the row is t; 0 where unused"""
    tail: Tensor
    """(positions,): alpha, the multiple of the row"""
    mass: Tensor
    """(positions,): what the teacher sums to"""
    gamma: Tensor
    """(positions,): the teacher's share of the target, 0 where there is none"""
    entropy: Tensor
    """(positions,): of the teacher, - sum_w t(w) log t(w)"""

    def total(self, nll: Tensor, cross: Tensor) -> Tensor:
        """(1 - gamma) nll + gamma cross, where a share of 0 silences what is infinite."""
        own = torch.where(self.gamma < 1, (1 - self.gamma) * nll, 0.0)
        return own + torch.where(self.gamma > 0, self.gamma * cross, 0.0)

    def coefficients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of softmax, label and row in the gradient."""
        label = 1 - self.gamma
        return torch.addcmul(label, self.gamma, self.mass), label, self.gamma * self.tail


class HistoryRows(NamedTuple):
    """The dense rows of a batch's distinct histories, for tensor kernels."""

    which: Tensor
    """(positions,): the row of each position"""
    values: Tensor
    """(histories, V, 1): p~; ngram: (histories, V, 2), Z p+ and Z p-"""


class PlannedBatch(NamedTuple):
    """What is known of a batch before its logits: what the kernels and the operators take with them."""

    labels: Tensor
    """(positions,), -1 where ignored"""
    scale: Tensor
    """(positions,): what each loss is multiplied by in the total"""
    plan: Coefficients | Teacher | SparseTarget | None = None
    """None: plain cross-entropy"""
    rows: HistoryRows | None = None
    """None where the kernels look n-grams up themselves"""
    table: TableTensors | None = None
    facts: TableFacts = TableFacts()

    def at(self, positions: Any) -> PlannedBatch:
        """Some of the positions, without rows; coefficients that the kernels leave out stay empty."""
        plan = self.plan
        if plan is not None:
            plan = type(plan)(*(tensor[positions] if len(tensor) else tensor for tensor in plan))
        return PlannedBatch(self.labels[positions], self.scale[positions], plan, None, self.table, self.facts)

    @property
    def nodes(self) -> tuple[Tensor, Tensor]:
        """The node of each history, and its slot shift."""
        assert self.plan is not None
        return self.plan[0], self.plan[1]

    def coefficients(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of softmax, label, row and Z p- in the gradient; (positions,)."""
        if isinstance(self.plan, SparseTarget):
            mass, label, row = self.plan.coefficients()
            return mass, label, row, torch.zeros_like(row)
        if self.table is None or not isinstance(self.plan, Coefficients):
            one = torch.ones_like(self.labels, dtype=torch.float32)
            return one, one, torch.zeros_like(one), torch.zeros_like(one)
        (plus, minus), z = self.plan.strengths(self.table), self.plan.z
        label = 1.0 - plus * self.plan.label_smoothed
        return 1.0 + (plus + minus) * z, label if self.facts.ngram else label + minus * z, plus, minus

    def packed(self) -> tuple[list[Tensor], list[int], str]:
        """As the operators take it: tensors, whole numbers, and the name of the process group."""
        plan, rows, table = (tuple(part or ()) for part in (self.plan, self.rows, self.table))
        tensors = [self.labels, self.scale, *plan, *rows, *table]
        return tensors, [*map(int, self.facts[:-1]), len(plan), len(rows)], self.facts.group

    @classmethod
    def unpacked(cls, tensors: Sequence[Tensor], facts: Sequence[int], group: str = "") -> PlannedBatch:
        """Undo `packed`. The kinds of plans are told apart by their length."""
        order, ngram, steps, start, dense, plans, rows = facts
        plan, rest = tensors[2 : 2 + plans], tensors[2 + plans :]
        return cls(
            tensors[0],
            tensors[1],
            {len(kind._fields): kind for kind in (Coefficients, Teacher, SparseTarget)}[plans](*plan)
            if plans
            else None,
            HistoryRows(*rest[:rows]) if rows else None,
            TableTensors(*rest[rows:]) if rest[rows:] else None,
            TableFacts(order, bool(ngram), steps, start, bool(dense), group),
        )


class PositionLosses(NamedTuple):
    """Per position; `total` is the sum of the three parts."""

    total: Tensor
    nll: Tensor
    plus: Tensor
    minus: Tensor
    saved: Tensor
    """what the gradient needs of the forward pass: (3, positions), the kernels' own"""


class Kernels(Protocol):
    """A module with kernels."""

    BASE_AROUND_LOGITS: bool
    """whether the linear loss takes products with the base from hidden states, with `base_dots=` and `base=`"""
    EXPANDS_ROWS: bool
    """whether `losses` and `gradient` need the rows of `history_rows`; others look n-grams up themselves"""

    def plan(self, contexts: Tensor, batch: PlannedBatch) -> Coefficients:
        """The coefficients of a batch without a plan; contexts (batch, time) hold the token before each label.

        A negative context is unknown and cuts the history (see `text/history.py`).
        """

    def losses(self, logits: Tensor, batch: PlannedBatch, base_dots: Tensor | None = None) -> PositionLosses:
        """The loss of each position of logits (..., V) and its parts; plain negative log-likelihood without a plan.

        `base_dots` is base . z of each position, where the caller knows it.
        """

    def gradient(
        self, logits: Tensor, batch: PlannedBatch, saved: Tensor, *, inplace: bool = False, base: bool = True
    ) -> Tensor:
        """Of scale * losses with respect to logits (..., V), in their type, and in their memory if `inplace`.

        base=False leaves out the share of the dense base, scale * plus * base_weight * base, which is then the
        caller's.
        """

    def scatter(self, total: Tensor, batch: PlannedBatch, plus: Tensor, minus: Tensor) -> None:
        """Subtract plus (positions,) * rows + minus * Z p- from numbers (positions, V), in place; not the base."""

    def probabilities(self, ids: Tensor, batch: PlannedBatch) -> Tensor:
        """p~(id|h) of ids (positions, k), none negative."""


def completed(batch: PlannedBatch, kernels: Kernels) -> PlannedBatch:
    """A batch with a teacher, with its tail; without a table the teacher is what its words are.

        alpha = (1 - sum_k t_k) / (1 - sum_k p~(id_k|h))

    Where the tail leaves at most `ROOM` to other words, the teacher's own are normalised instead.
    """
    assert isinstance(batch.plan, Teacher)
    states, shifts, ids, probs, gamma, row_entropy = batch.plan
    used, total, entr = ids >= 0, probs.sum(-1), torch.special.entr
    ids = ids.clamp(min=0)
    if batch.table is None:
        tail, values, mass, entropy = torch.zeros_like(total), probs.clone(), total, entr(probs).sum(-1)
    else:
        kept = torch.where(used, kernels.probabilities(ids, batch), 0.0)
        room = 1 - kept.sum(-1)
        wide = room > ROOM
        tail = torch.where(wide, (1 - total).clamp(min=0) / room, 0.0)
        probs = torch.where((wide | (total == 0))[:, None], probs, probs / total[:, None])
        values, mass = probs - tail[:, None] * kept, torch.addcmul(probs.sum(-1), tail, room)
        unnamed = tail * (row_entropy - entr(kept).sum(-1)) + entr(tail) * room
        entropy = entr(probs).sum(-1) + torch.where(tail > 0, unnamed, 0.0)
    target = SparseTarget(states, shifts, ids, values, tail, mass, torch.where(mass > 0, gamma, 0.0), entropy)
    return batch._replace(plan=target)


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The type in which the losses of logits are computed: float32; float64 of float64, as `gradcheck` needs.

    Triton's kernels compute everything in float32.
    """
    return torch.float64 if dtype == torch.float64 else torch.float32


def kernel_name(device: torch.device, dense: bool = False) -> str:
    """The name of the kernels for a device; `dense`: as in `TableFacts`.

    >>> kernel_name(torch.device("cpu")), kernel_name(torch.device("mps"))
    ('cpu', 'tensors')
    """
    forced = _forced[-1] if _forced else os.environ.get("LIDSTONE_KERNELS", "")
    if forced:
        _check_name(forced)
    if dense:
        return "tensors"
    if forced or device.type == "cpu":
        return forced or "cpu"
    return "triton" if device.type == "cuda" and has_triton() else "tensors"


def kernels_for(device: torch.device, facts: TableFacts) -> Kernels:
    """The kernels of a table on a device."""
    return cast(Kernels, import_module(f"lidstone.loss.kernels.{kernel_name(device, facts.dense)}"))


def is_host_readable(device: torch.device) -> bool:
    """Whether the host reads numbers of this device without waiting: ids and losses are checked there alone."""
    return device.type in HOST_READABLE and kernel_name(device) != "triton"


@contextmanager
def using(name: str) -> Iterator[None]:
    """Run these kernels on whatever device inside the block."""
    _check_name(name)
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


@cache
def has_triton() -> bool:
    """Is Triton installed?"""
    return find_spec("triton") is not None


def _check_name(name: str) -> None:
    if name not in KERNELS:
        raise InputError(f"there are no kernels named {name!r}", hint=f"choose from {', '.join(KERNELS)}")
