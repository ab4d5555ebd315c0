"""The loss in plain tensor code, for every device without kernels of its own, in few operations whatever the batch.

One history is a chain of nodes, from its longest known suffix down to its last word, and each node brings the n-grams
that extend it. `expand_histories` lists them for all positions: that their number must be known is the one time that
the host waits for the device. Then the loss is a gather, the gradient an indexed addition.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.weak import WeakTensorKeyDictionary

from lidstone.regularizer.plan import Entries, Facts, Losses, Plan, Saved, Table

BASE_AROUND_LOGITS = False
_keys: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def plan(labels: Tensor, contexts: Tensor, table: Table, facts: Facts) -> Plan:
    """Coefficients of all positions; see `cpu_loops.plan`."""
    states, words = find_histories(contexts, table, facts).reshape(-1), labels.reshape(-1)
    known = table.predicted[words]
    shifts = torch.full_like(states, -1)
    if facts.ngram:
        z = table.zs[states]
        known, smoothed = known & (z >= 0), torch.zeros_like(z)
        if facts.order > 1:
            lengths = torch.bucketize(states, table.levels, right=True)
            shifts = torch.where(z >= 0, table.shifts[lengths], shifts)
        z = z.clamp_(min=0.0)
    else:
        smoothed = probability(words, states, table, facts)
        z = 1.0 - smoothed
    plus, minus = table.strengths[0] * known, table.strengths[1] * known
    mass = torch.addcmul(torch.ones_like(z), plus + minus, z)
    label = torch.ones_like(z) if facts.ngram else mass - plus  # the rest of the target is plus * p~, whose sum is plus
    return Plan(states, shifts, mass, label, plus, minus, z, smoothed)


def find_histories(contexts: Tensor, table: Table, facts: Facts) -> Tensor:
    """The node of the longest known suffix of each position's history, or -1; (batch, time)."""
    if facts.order == 1:
        return torch.full_like(contexts, -1)
    token = table.tokens[contexts.clamp(min=-1)].long()
    gram = state = token  # the node of the last k tokens, for k = 1, 2, ..
    for _ in range(2, facts.order):
        gram = children(pad(gram, (1, -1), value=-1), token, table)
        state = torch.maximum(state, gram)  # a longer n-gram has a larger node
    return state


def children(nodes: Tensor, words: Tensor, table: Table) -> Tensor:
    """The child of each node with this word, or -1."""
    keys = child_keys(table)
    wanted = torch.add(words, nodes, alpha=len(table.base) + 1)
    found = torch.searchsorted(keys, wanted)
    return found.masked_fill_(keys[found] != wanted, -1)


def child_keys(table: Table) -> Tensor:
    """Parent and word of every node as one ascending number, with one more than any at the end; made once a device."""
    if table.words not in _keys:
        counts = (table.first[1:] - table.first[:-1]).long()
        parents = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
        inner = torch.add(table.words[len(table.base) + 1 :], parents, alpha=len(table.base) + 1)
        _keys[table.words] = pad(pad(inner, (len(table.base) + 1, 0), value=-(2**62)), (0, 1), value=2**62)
    return _keys[table.words]


def chain(states: Tensor, table: Table, facts: Facts) -> tuple[Tensor, Tensor]:
    """Each history's nodes, longest first (positions, n-1); their weights, and that of the base, (positions, n)."""
    nodes = [states]
    for _ in range(2, facts.order):
        nodes.append(table.suffixes[nodes[-1]].long())
    if facts.order == 1:
        return states.new_empty(len(states), 0), torch.ones_like(states, dtype=torch.float32)[:, None]
    listed = torch.stack(nodes, 1)
    return listed, pad(table.backoffs[listed].cumprod(1), (1, 0), value=1.0)


def probability(words: Tensor, states: Tensor, table: Table, facts: Facts) -> Tensor:
    """p~(word | state) of each position."""
    nodes, weights = chain(states, table, facts)
    sparse = (table.rows[children(nodes, words[:, None], table)] * weights[:, :-1]).sum(1)
    return sparse + weights[:, -1] * table.base[words]


def expand_histories(states: Tensor, shifts: Tensor, table: Table, facts: Facts) -> Entries:
    """The n-grams of each position's history and its suffixes."""
    nodes, weights = chain(states, table, facts)
    first = table.first[nodes].long()
    lengths = (table.first[nodes + 1] - first).clamp_(min=0)  # negative for node -1, whose neighbour is the first
    lengths = (lengths * (shifts >= 0)[:, None] if facts.ngram else lengths).reshape(-1)
    ends = lengths.cumsum(0)
    number = int(ends[-1]) if len(ends) else 0  # the one time that the host waits
    segments = torch.repeat_interleave(lengths, output_size=number)
    node = (first.reshape(-1) + lengths - ends)[segments] + torch.arange(number, device=states.device)
    positions = segments // max(facts.order - 1, 1)
    words, weight, base_weight = table.words[node].long(), weights[:, :-1].reshape(-1)[segments], weights[:, -1].clone()
    if not facts.ngram:
        return Entries(positions, words, table.rows[node] * weight, weight.new_empty(0), base_weight)
    top = segments % max(facts.order - 1, 1) == 0
    slots = torch.where(top, node - shifts[positions], 0)
    rows = table.rows[node.masked_fill(top, -1)] * weight
    return Entries(positions, words, torch.where(top, table.plus[slots], rows), table.minus[slots] * top, base_weight)


def listed(plan: Plan | None, table: Table | None, facts: Facts) -> dict[str, Entries]:
    """The n-grams that `losses` and `gradient` need."""
    if plan is None or table is None:
        return {}
    return {"entries": expand_histories(plan.states, plan.shifts, table, facts)}


def scatter(total: Tensor, plan: Plan, table: Table, facts: Facts, scale: Tensor) -> None:
    """Subtract scale * (plus * rows + minus * Z p-) from numbers (positions, V), in place; not the base."""
    subtract_entries(total, expand_histories(plan.states, plan.shifts, table, facts), plan, scale)


def subtract_entries(total: Tensor, entries: Entries, plan: Plan, scale: Tensor) -> None:
    """Subtract each listed n-gram's share of the target."""
    values = (scale * plan.plus)[entries.positions] * entries.plus
    if len(entries.minus):
        values += (scale * plan.minus)[entries.positions] * entries.minus
    places = torch.add(entries.words, entries.positions, alpha=total.shape[1])
    total.view(-1).index_add_(0, places, values, alpha=-1)


def losses(
    logits: Tensor,  # (..., V)
    labels: Tensor,  # (positions,), negative where ignored
    plan: Plan | None,
    table: Table,
    facts: Facts,
    entries: Entries | None = None,
) -> Losses:
    """The loss of each position and its parts; plain negative log-likelihood without a plan."""
    logs = torch.log_softmax(logits.detach().reshape(-1, logits.shape[-1]).float(), -1)
    gold = logs.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    nll, none = -gold, torch.zeros_like(gold)
    if plan is None or entries is None:
        return Losses(nll, nll, none, none, Saved(none, none, none))
    found = logs[entries.positions, entries.words]
    rows = none.index_add(0, entries.positions, entries.plus * found)
    logs.clamp_(min=torch.finfo(logs.dtype).min)  # a zero of the base silences a logit of -inf
    rows.addcmul_(entries.base_weight, logs @ table.base)
    plus = plan.plus * (plan.label_smoothed * gold - rows)
    if not facts.ngram:
        taken = plan.z * gold
    elif len(table.dense_minus):
        taken = logs @ table.dense_minus
    else:
        taken = none.index_add(0, entries.positions, entries.minus * found)
    minus = -plan.minus * taken
    return Losses(nll + plus + minus, nll, plus, minus, Saved(none, none, none))


def gradient(
    logits: Tensor,  # (..., V)
    labels: Tensor,
    plan: Plan | None,
    saved: Saved,
    scale: Tensor,  # (positions,)
    table: Table,
    facts: Facts,
    *,
    entries: Entries | None = None,
    inplace: bool = False,
) -> Tensor:
    """The gradient of scale * losses, in the type of the logits, and in their memory if `inplace`."""
    found = torch.softmax(logits.detach().reshape(-1, logits.shape[-1]).float(), -1)
    mass, label = (scale, scale) if plan is None else (scale * plan.mass, scale * plan.label)
    found.mul_(mass[:, None]).masked_fill_((mass == 0)[:, None], 0.0)  # what does not count may be NaN
    if plan is not None and entries is not None:
        subtract_entries(found, entries, plan, scale)
        found.addr_(scale * plan.plus * entries.base_weight, table.base, alpha=-1)
        if len(table.dense_minus):
            found.addr_(scale * plan.minus, table.dense_minus, alpha=-1)
    found.scatter_add_(1, labels.clamp(min=0)[:, None], -label[:, None])
    return logits.copy_(found.view_as(logits)) if inplace else found.view_as(logits).to(logits.dtype)
