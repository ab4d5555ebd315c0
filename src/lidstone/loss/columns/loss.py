"""The loss from some columns of the logits, with class weights, in plain tensor operations.

    total = mass lse - label z[y] - plus <rows, z> - minus <Z p-, z>

Each sum over words is a sum over the columns that are here, added up over the processes of `group`: one all-reduce of
the maximum, one of sums of exponentials, logits of the labels, products, and label probabilities. The gradient of a
column needs nothing from other processes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lidstone.loss.columns.table import Columns


class Batch(NamedTuple):
    """What is known of each position before the logits; every tensor is (positions,)."""

    labels: Tensor
    """valid ids everywhere"""
    states: Tensor
    """the node of the history"""
    plus: Tensor
    """gamma_plus, or 0 where the position is not regularized"""
    minus: Tensor
    """gamma_minus with its sign, or 0"""


def plan_batch(columns: Columns, labels: Tensor, contexts: Tensor, gamma_plus: float, gamma_minus: float) -> Batch:
    """Look up the histories of labels and contexts (batch, time); gamma_minus has its sign."""
    states, words = columns.states(contexts), labels.reshape(-1)
    used = (columns.usable[states] & columns.predicted[words]).float()
    return Batch(words, states, gamma_plus * used, gamma_minus * used)


def column_losses(logits: Tensor, batch: Batch, columns: Columns, group: Any = None) -> tuple[Tensor, ...]:
    """Total, nll, plus and minus of each position; logits (positions, columns). Only the total has a gradient."""
    found: tuple[Tensor, ...] = _ColumnLoss.apply(logits, batch, columns, group)  # type: ignore[no-untyped-call]
    return found


class _Sums(NamedTuple):
    """Sums over all words; every tensor is (positions,)."""

    exponentials: Tensor
    gold: Tensor
    rows: Tensor
    taken: Tensor
    label: Tensor
    """w p~(y|h)"""


class _ColumnLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, batch: Batch, columns: Columns, group: Any) -> tuple[Tensor, ...]:
        z = logits.detach().float()
        highest = z.amax(-1) if z.shape[-1] else z.new_full(z.shape[:1], -torch.inf)
        highest = _reduce(highest, group, maximum=True)
        highest = torch.where(highest.isfinite(), highest, 0.0)
        z = z - highest[:, None]  # the loss does not depend on an offset, and large ones would cost digits
        sums = _Sums(*_reduce(torch.stack(_local_sums(z, batch, columns)), group).unbind())
        lse = sums.exponentials.log()
        terms = _terms(batch, columns, sums)
        own = columns.weight[batch.labels]
        nll = own * (lse - sums.gold)
        plus = batch.plus * (terms.mass_plus * lse - sums.rows + terms.smoothed * sums.gold)
        taken = sums.taken if columns.ngram else terms.mass_minus * sums.gold
        minus = batch.minus * (terms.mass_minus * lse - taken)
        ctx.save_for_backward(logits, highest, lse, terms.mass, terms.label)
        ctx.batch, ctx.columns = batch, columns
        ctx.mark_non_differentiable(nll, plus, minus)
        return nll + plus + minus, nll, plus, minus

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        logits, highest, lse, mass, label = ctx.saved_tensors
        batch, columns = ctx.batch, ctx.columns
        silent = (scale == 0)[:, None]  # what does not count may be NaN or infinite
        shifted = logits.detach().float() - highest[:, None]
        gradient = (shifted - lse[:, None]).exp_().mul_((scale * mass)[:, None])
        *_, (_, base_weight) = columns.chain(batch.states)
        gradient -= torch.outer(scale * batch.plus * base_weight, columns.base)
        gradient -= torch.outer(scale * batch.minus, columns.base_minus)
        positions, numbers, factors = columns.entries(batch.states)
        values = (scale * batch.plus)[positions] * factors * columns.rows[numbers]
        if columns.ngram:
            values = values + (scale * batch.minus)[positions] * columns.minus[numbers]
        gradient.index_put_((positions, _words(columns, numbers)), -values, accumulate=True)
        here, place = _place(batch.labels, columns)
        gradient[torch.arange(len(here), device=here.device), place] -= torch.where(here, scale * label, 0.0)
        return gradient.masked_fill_(silent, 0.0).to(logits.dtype), None, None, None


class _Terms(NamedTuple):
    mass: Tensor
    label: Tensor
    mass_plus: Tensor
    """w summed over Z p+"""
    mass_minus: Tensor
    smoothed: Tensor
    """token: w p~(y); ngram: 0"""


def _terms(batch: Batch, columns: Columns, sums: _Sums) -> _Terms:
    """The coefficients of the docstring above, with the class weights in them."""
    own = columns.weight[batch.labels]
    mass_plus = columns.mass[batch.states]
    if columns.ngram:
        mass_minus, smoothed, label = columns.mass_minus[batch.states], torch.zeros_like(own), own
    else:
        smoothed = sums.label
        mass_plus, mass_minus = mass_plus - smoothed, own - smoothed
        label = own - batch.plus * smoothed + batch.minus * mass_minus
    mass = own + batch.plus * mass_plus + batch.minus * mass_minus
    return _Terms(mass, label, mass_plus, mass_minus, smoothed)


def _local_sums(z: Tensor, batch: Batch, columns: Columns) -> _Sums:
    here, place = _place(batch.labels, columns)
    gold = torch.where(here, z.gather(1, place[:, None])[:, 0], 0.0)
    finite = z.clamp(min=torch.finfo(z.dtype).min)  # a probability of 0 silences a logit of -inf
    *_, (_, base_weight) = columns.chain(batch.states)
    positions, numbers, factors = columns.entries(batch.states)
    gathered = z[positions, _words(columns, numbers)]
    rows = base_weight * (finite @ columns.base)
    rows = rows.index_add(0, positions, factors * columns.rows[numbers] * gathered)
    taken = finite @ columns.base_minus
    if columns.ngram:
        taken = taken.index_add(0, positions, columns.minus[numbers] * gathered)
    return _Sums(z.exp().sum(-1), gold, rows, taken, columns.probability(batch.labels, batch.states))


def _words(columns: Columns, numbers: Tensor) -> Tensor:
    """The column of the last word of each n-gram."""
    return columns.ends[numbers] % (columns.vocab.bos + 1) - columns.start


def _place(labels: Tensor, columns: Columns) -> tuple[Tensor, Tensor]:
    """Whether each label is one of these columns, and which."""
    here = (labels >= columns.start) & (labels < columns.stop)
    return here, torch.where(here, labels - columns.start, 0)


def _reduce(tensor: Tensor, group: Any, *, maximum: bool = False) -> Tensor:
    if group is not None:
        operation = torch.distributed.ReduceOp.MAX if maximum else torch.distributed.ReduceOp.SUM
        torch.distributed.all_reduce(tensor, operation, group=group)
    return tensor
