"""The loss in plain tensor code, for every device without kernels of its own, in few operations whatever the batch.

The distinct histories of a batch become dense rows (`rows`), p~ of each or Z p+ and Z p-. Then the loss is the product
of each position's log-probabilities with its row, and the gradient subtracts that row from the softmax. The rows take
at most the memory of the logits in float32, and less the more positions share a history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from lidstone.loss.kernels.lookup import chain, lookup
from lidstone.loss.kernels.rows import expand, expand_each, find_histories, search
from lidstone.loss.plan import Facts, Losses, Plan, Rows, Table

BASE_AROUND_LOGITS = False


def plan(labels: Tensor, contexts: Tensor, table: Table, facts: Facts) -> Plan:
    """Coefficients of all positions, without rows; see `cpu_loops.plan`."""
    states, words = find_histories(contexts, table, facts).reshape(-1), labels.reshape(-1)
    known, shifts = table.predicted[words], torch.full_like(states, -1)
    if facts.ngram:
        z, smoothed = table.zs[states], torch.zeros_like(known, dtype=torch.float32)
        if facts.order > 1:
            lengths = torch.bucketize(states, table.levels, right=True)
            shifts = torch.where(z >= 0, table.shifts[lengths], shifts)
        known, z = known & (z >= 0), z.clamp(min=0.0)
    else:
        smoothed = probability(words, states, table, facts)
        z = 1.0 - smoothed
    plus, minus = table.strengths[0] * known, table.strengths[1] * known
    mass = 1.0 + (plus + minus) * z
    label = torch.ones_like(z) if facts.ngram else mass - plus  # the rest of the target is plus * p~, whose sum is plus
    return Plan(states, shifts, mass, label, plus, minus, z, smoothed)


def probability(words: Tensor, states: Tensor, table: Table, facts: Facts) -> Tensor:
    """p~(word | state) of each position."""
    nodes, weights = chain(states, table, facts)
    found, missing = search(nodes, words[:, None], table, facts)
    sparse = (table.rows[found.masked_fill_(missing, -1)] * weights[:, :-1]).sum(1)
    return sparse + weights[:, -1] * table.base[words]


def rows_of_batch(labels: Tensor, contexts: Tensor, table: Table, facts: Facts) -> Rows:
    """What `losses` and `gradient` need of a batch in place of a plan."""
    states = find_histories(contexts, table, facts).reshape(-1)
    z = lookup(table, facts).zs[states] if facts.ngram else table.base.new_empty(0)
    return Rows(*expand(states, table, facts), table.predicted[labels.reshape(-1)], z)


def listed(plans: Sequence[Plan | None], table: Table | None, facts: Facts) -> Iterator[dict[str, Rows]]:
    """The same for chunks of positions with a plan: the rows of one at a time, after one wait for all."""
    known = [plan for plan in plans if plan is not None]
    if table is None or not known:
        yield from ({} for _ in plans)
        return
    for plan, expanded in zip(known, expand_each([plan.states for plan in known], table, facts), strict=True):
        regularized = (plan.plus != 0) | (plan.minus != 0)  # where strengths are 0, it does not matter
        yield {"rows": Rows(*expanded, regularized, plan.z)}


def scatter(total: Tensor, plan: Plan, table: Table, facts: Facts, scale: Tensor) -> None:
    """Subtract scale * (plus * rows + minus * Z p-) from numbers (positions, V), in place; not the base."""
    which, values = expand(plan.states, table, facts, base=False)
    for rows, strength in zip(values.unbind(2), (plan.plus, plan.minus), strict=False):
        total.addcmul_(rows[which], (scale * strength)[:, None], value=-1)


def losses(
    logits: Tensor,  # (..., V)
    labels: Tensor,  # (positions,), negative where ignored
    plan: Plan | None,
    table: Table | None,
    facts: Facts,
    rows: Rows | None = None,
) -> Losses:
    """The loss of each position and its parts; plain negative log-likelihood without rows."""
    logs = torch.log_softmax(logits.detach().reshape(-1, logits.shape[-1]).float(), -1)
    words = labels.clamp(min=0)[:, None]
    nll = -logs.gather(1, words)[:, 0]
    if rows is None or table is None:
        none = torch.zeros_like(nll)
        return Losses(nll, nll, none, none, nll.new_zeros(3, len(nll)))
    own = rows.values[rows.which]
    smoothed = None if facts.ngram else own[..., 0].gather(1, words)[:, 0]
    logs.clamp_(min=torch.finfo(logs.dtype).min)  # a zero of a row silences a logit of -inf
    products = own.mul_(logs[:, :, None]).sum(1)
    return _losses(nll, products, smoothed, rows, table, facts)


def _losses(
    nll: Tensor,
    products: Tensor,  # (positions, C), of row and log-probabilities
    smoothed: Tensor | None,  # (positions,), p~(y); None: ngram
    rows: Rows,
    table: Table,
    facts: Facts,
) -> Losses:
    """The parts, and for the gradient the coefficients of softmax, label and row."""
    plus, minus = table.strengths[0] * rows.known, table.strengths[1] * rows.known
    if smoothed is None:
        z, (given, taken) = rows.z, products.neg_().unbind(1)
    else:
        z = 1.0 - smoothed
        given, taken = torch.addcmul(products[:, 0], smoothed, nll).neg_(), z * nll
    mass = torch.addcmul(lookup(table, facts).one, plus + minus, z)
    label, row = (torch.full_like(z, -1.0), rows.known) if facts.ngram else (plus - mass, plus)
    plus, minus = plus * given, minus * taken
    return Losses(nll + plus + minus, nll, plus, minus, torch.stack([mass, label, row]))


def gradient(
    logits: Tensor,  # (..., V)
    labels: Tensor,
    plan: Plan | None,
    saved: Tensor,  # (3, positions)
    scale: Tensor,  # (positions,)
    table: Table | None,
    facts: Facts,
    *,
    rows: Rows | None = None,
    inplace: bool = False,
) -> Tensor:
    """The gradient of scale * losses, in the type of the logits, and in their memory if `inplace`."""
    found = torch.softmax(logits.detach().reshape(-1, logits.shape[-1]).float(), -1)
    mass, label, row = (scale, -scale, scale) if rows is None else (saved * scale).unbind()
    found.mul_(mass[:, None]).masked_fill_((mass == 0)[:, None], 0.0)  # what does not count may be NaN
    if rows is not None and table is not None:
        found.addcmul_(_target(rows, table, facts)[rows.which], row[:, None], value=-1)
    found.scatter_add_(1, labels.clamp(min=0)[:, None], label[:, None])
    return logits.copy_(found.view_as(logits)) if inplace else found.view_as(logits).to(logits.dtype)


def _target(rows: Rows, table: Table, facts: Facts) -> Tensor:
    """Each row's share of the target: token: p~; ngram: gamma_plus Z p+ + gamma_minus Z p- with its sign."""
    if not facts.ngram:
        return rows.values[..., 0]
    return (rows.values.view(-1, 2) @ table.strengths).view(rows.values.shape[:2])
