"""A smoothed loss and its gradient on a CPU: torch for the dense passes, compiled loops for the n-grams.

    losses  = mass * lse - label * z[y] - plus * (rows . z + base_weight * base . z) - minus * (Z p- . z)
    dlosses = mass * softmax(z) - label * onehot(y) - plus * (rows + base_weight * base) - minus * Z p-

One pass over the logits for the log-sum-exp, one for the gradient, and a gather and a scatter of the n-grams that
exist: neither a (positions, V) target nor a second log-softmax. Everything is float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from lidstone.loss.kernels.cpu_loops import dot, scatter
from lidstone.loss.kernels.cpu_loops import plan as plan
from lidstone.loss.plan import Facts, Losses, Plan, Saved, Table

BASE_AROUND_LOGITS = True
"""the linear loss takes the products with the base from hidden states, not from logits"""
ROWS_AT_ONCE = 64  # so that a block of logits stays in the cache between the passes over it
FAR = 128.0  # rows whose log-sum-exp is larger are shifted: below it float32 loses less than 1e-5 of a loss


def listed(plans: Sequence[Plan | None], table: Table | None, facts: Facts) -> Iterator[dict[str, Any]]:
    """No list of n-grams: the loops look them up themselves."""
    return ({} for _ in plans)


def losses(
    logits: Tensor,  # (..., V)
    labels: Tensor,  # (positions,), negative where ignored
    plan: Plan | None,
    table: Table,
    facts: Facts,
    base_dots: Tensor | None = None,  # base . z of each position, where the caller knows it
) -> Losses:
    """The loss of each position and its parts; plain negative log-likelihood without a plan."""
    z = logits.detach().reshape(-1, logits.shape[-1]).float().contiguous()
    z, shift, lse = _near(z)
    gold = z.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    nll, none = lse - gold, torch.zeros_like(lse)
    if plan is None:
        return Losses(nll, nll, none, none, Saved(shift, lse, none))
    rows, taken, base_weight = dot(z, plan, table, facts)
    if base_dots is None or bool(shift.any()):
        base_dots = dense_dot(z, table.base)
    smoothed = rows + base_weight * base_dots
    plus = plan.plus * (plan.z * lse - smoothed + plan.label_smoothed * gold)
    if not facts.ngram:
        taken = plan.z * gold
    elif len(table.dense_minus):
        taken = dense_dot(z, table.dense_minus)
    minus = plan.minus * (plan.z * lse - taken)
    return Losses(nll + plus + minus, nll, plus, minus, Saved(shift, lse, base_weight))


def gradient(
    logits: Tensor,  # (..., V)
    labels: Tensor,
    plan: Plan | None,
    saved: Saved,
    scale: Tensor,  # (positions,)
    table: Table,
    facts: Facts,
    *,
    base: bool = True,
    inplace: bool = False,
) -> Tensor:
    """The gradient of scale * losses, in the type of the logits, and in their memory if `inplace`.

    base=False leaves out the share of the dense base, scale * plus * base_weight * base, which is then the caller's.
    """
    ours = inplace and logits.dtype == torch.float32 and logits.is_contiguous()
    z = logits.detach() if ours else logits.detach().to(torch.float32, copy=True).contiguous()
    z = z.view(-1, logits.shape[-1])
    if bool(saved.shift.any()):
        z.sub_(saved.shift[:, None])
    _gradient_(z, labels.clamp(min=0), plan, saved, scale, table, facts, base)
    return logits.copy_(z.view_as(logits)) if inplace and not ours else z.view_as(logits).to(logits.dtype)


def _gradient_(
    z: Tensor, labels: Tensor, plan: Plan | None, saved: Saved, scale: Tensor, table: Table, facts: Facts, base: bool
) -> None:
    """Turn logits (positions, V) less their shift into the gradient."""
    mass = scale if plan is None else scale * plan.mass
    weights = None if plan is None or not base else scale * plan.plus * saved.base_weight
    shift = saved.lse - mass.abs().log()  # |mass| * softmax = exp(z - lse + log |mass|)
    silent = mass == 0  # what does not count may be NaN or infinite
    shift[silent], z[silent] = torch.inf, 0.0
    negative = bool((mass < 0).any())  # a total that is to grow, such as -loss
    for start in range(0, len(z), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        z[block].sub_(shift[block, None]).exp_()
        if negative:
            z[block].mul_(mass[block, None].sign())
        if weights is not None:
            z[block].addr_(weights[block], table.base, alpha=-1)
    if plan is not None:
        if len(table.dense_minus):
            z.addr_(scale * plan.minus, table.dense_minus, alpha=-1)
        scatter(z, plan, table, facts, scale)
    label = scale if plan is None else scale * plan.label
    z.scatter_add_(1, labels[:, None], -label[:, None])


def _near(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits with far rows shifted to a log-sum-exp of about 0, the shift, and the log-sum-exp of the result.

    `lse - z[y]` of two numbers near 1e5 has an error of 1e-2 in float32; rows near 0 keep every bit.
    """
    lse = _logsumexp(z)
    far = (lse.abs() > FAR) & lse.isfinite()
    if not bool(far.any()):
        return z, torch.zeros_like(lse), lse
    shift = torch.where(far, lse, 0.0)
    z = z - shift[:, None]
    return z, shift, _logsumexp(z)


def _logsumexp(logits: Tensor) -> Tensor:
    """Log sum exp of each row, block by block: what torch writes down on the way stays in the cache."""
    if not len(logits):
        return logits.new_zeros(0)
    return torch.cat([torch.logsumexp(block, -1) for block in torch.split(logits, ROWS_AT_ONCE)])


def dense_dot(logits: Tensor, row: Tensor) -> Tensor:
    """Each position's logits times one dense row, where a zero of the row silences a logit of -inf (a masked id)."""
    product = logits @ row
    if product.isnan().any():
        product = logits.clamp(min=torch.finfo(logits.dtype).min) @ row
    return product
