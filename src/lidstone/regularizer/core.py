"""The one place where a smoothed loss and its gradient are computed from logits; both losses call it.

    losses  = mass * lse - label * z[y] - plus * (rows . z + base_weight * base . z) - minus * (Z p- . z)
    dlosses = mass * softmax(z) - label * onehot(y) - plus * (rows + base_weight * base) - minus * Z p-

One pass over the logits for the log-sum-exp, one for the gradient, and a gather and a scatter of the n-grams that
exist: neither a (positions, V) target nor a second log-softmax. Everything is float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lidstone.regularizer.sparse_rows import dot, scatter
from lidstone.regularizer.targets import Plan, Targets

ROWS_AT_ONCE = 64  # so that a block of logits stays in the cache between the passes over it


class Losses(NamedTuple):
    """Per position; `total` is the sum of the three parts."""

    total: Tensor
    nll: Tensor
    plus: Tensor
    minus: Tensor
    lse: Tensor
    base_weight: Tensor


def plain_losses(logits: Tensor, labels: Tensor) -> Losses:
    """Negative log-likelihood alone: no table, or evaluation."""
    lse = _logsumexp(logits)
    nll = lse - logits.gather(1, labels[:, None])[:, 0]
    none = torch.zeros_like(nll)
    return Losses(nll.clone(), nll, none, none, lse, none)  # autograd must be able to tell total from nll


def losses(logits: Tensor, labels: Tensor, plan: Plan, targets: Targets, base_dots: Tensor) -> Losses:
    """The regularized loss of each position and its parts; logits (positions, V) float32, base_dots base . z."""
    lse = _logsumexp(logits)
    gold = logits.gather(1, labels[:, None])[:, 0]
    rows, taken, base_weight = dot(logits, plan, targets)
    smoothed = rows + base_weight * base_dots
    if len(targets.dense_minus):
        taken = dense_dot(logits, targets.dense_minus)
    nll = lse - gold
    plus = plan.plus * (plan.z * lse - smoothed + plan.label_smoothed * gold)
    if targets.empirical == "token":
        taken = plan.z * gold
    minus = plan.minus * (plan.z * lse - taken)
    return Losses(nll + plus + minus, nll, plus, minus, lse, base_weight)


def gradient_(
    logits: Tensor,
    labels: Tensor,
    plan: Plan | None,
    targets: Targets | None,
    found: Losses,
    scale: Tensor,
    *,
    base: bool = True,
) -> Tensor:
    """Turn logits (positions, V) into scale * dlosses/dlogits, in place, and return them.

    base=False leaves out the share of the dense base, scale * plus * base_weight * base, which is then the caller's.
    """
    mass = scale if plan is None else scale * plan.mass
    weights = None if plan is None or not base else scale * plan.plus * found.base_weight
    shift = found.lse - mass.abs().log()  # |mass| * softmax = exp(z - lse + log |mass|)
    silent = mass == 0  # what does not count may be NaN or infinite
    shift[silent], logits[silent] = torch.inf, 0.0
    negative = bool((mass < 0).any())  # a total that is to grow, such as -loss
    for start in range(0, len(logits), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        logits[block].sub_(shift[block, None]).exp_()
        if negative:
            logits[block].mul_(mass[block, None].sign())
        if weights is not None and targets is not None:
            logits[block].addr_(weights[block], targets.base, alpha=-1)
    if plan is not None and targets is not None:
        if len(targets.dense_minus):
            logits.addr_(scale * plan.minus, targets.dense_minus, alpha=-1)
        scatter(logits, plan, targets, scale)
    label = scale if plan is None else scale * plan.label
    return logits.scatter_add_(1, labels[:, None], -label[:, None])


def _logsumexp(logits: Tensor) -> Tensor:
    """Log sum exp of each row, block by block: what torch writes down on the way stays in the cache."""
    if not len(logits):
        return logits.new_zeros(0)
    return torch.cat([torch.logsumexp(block, -1) for block in logits.split(ROWS_AT_ONCE)])


def dense_dot(logits: Tensor, row: Tensor) -> Tensor:
    """Each position's logits times one dense row, where a zero of the row silences a logit of -inf (a masked id)."""
    product = logits @ row
    if product.isnan().any():
        product = logits.clamp(min=torch.finfo(logits.dtype).min) @ row
    return product
