"""The loss in plain tensor code, for every device without kernels of its own, in few operations whatever the batch.

The distinct histories of a batch become dense rows, p~ of each or Z p+ and Z p-: sparse values on top of a multiple of
the base. Then the loss is the product of each position's log-probabilities with its row, and the gradient subtracts
that row from the softmax. The rows take at most the memory of the logits in float32, and less the more positions share
a history. How many rows and n-grams there are is one number, for which the host waits once a batch.

Two options, which other kernels do not have. With class weights w the target of a position is w(word) * target(word):
the table's values are multiplied before, and the mass of a row is its sum. Where the vocabulary is divided among
processes, each has the rows of its own columns, and one exchange adds up the sums over words (`_add_up`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.nn.functional import pad
from torch.utils.weak import WeakTensorKeyDictionary

from lidstone.loss.checks import check_ids
from lidstone.loss.kernels.protocol import (
    Coefficients,
    HistoryRows,
    PlannedBatch,
    PositionLosses,
    SparseTarget,
    TableFacts,
    TableTensors,
    computed_in,
    is_host_readable,
)

BASE_AROUND_LOGITS = False
EXPANDS_ROWS = True
_MANY = 2**40  # more n-grams than a batch can have: two numbers travel to the host as one
_lookups: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def plan(contexts: Tensor, batch: PlannedBatch) -> Coefficients:
    """The coefficients of each position; see `Kernels.plan`."""
    table, facts = batch.table, batch.facts
    assert table is not None
    states = find_histories(contexts, table, facts).reshape(-1)
    # where a history is not whole, its rows are 0, and so is Z
    z = lookup(table, facts).zs[states] if facts.ngram else table.base.new_empty(0)
    known = table.predicted[batch.labels]
    return Coefficients(states, states.new_empty(0), known, z, table.base.new_empty(0))


def losses(logits: Tensor, batch: PlannedBatch, base_dots: Tensor | None = None) -> PositionLosses:
    """The loss of each position and its parts; see `Kernels.losses`."""
    labels, _, plan, rows, table, facts = batch
    scores = logits.detach().reshape(-1, logits.shape[-1]).to(computed_in(logits.dtype))
    logs = torch.log_softmax(scores, -1)
    if facts.group:
        logs.masked_fill_(logs.isnan(), -torch.inf)  # all columns here are masked; NaN of the logits come with `lse`
    places, here = _places(labels, scores.shape[1], facts)
    gold = logs.gather(1, places)[:, 0]  # log q(y)
    if isinstance(plan, SparseTarget):
        return _taught(logs, gold, rows, plan)
    if plan is None or rows is None or table is None:
        one, none = torch.ones_like(gold), torch.zeros_like(gold)
        share, (gold,), _ = _add_up(scores, facts, here, [gold], [], [])
        return PositionLosses(-gold, -gold, none, none, torch.stack([_times(one, share), _times(-one, here), none]))
    own = rows.values[rows.which].to(logs.dtype)
    smoothed = [] if facts.ngram else [_times(own[..., 0].gather(1, places)[:, 0], here)]
    masses = rows.values.sum(1)[rows.which].unbind(1) if facts.dense else ()
    logs.clamp_(min=torch.finfo(logs.dtype).min)  # a zero of a row silences a logit of -inf
    products = list(own.mul_(logs[:, :, None]).sum(1).unbind(1))
    share, (gold, *products), added = _add_up(scores, facts, here, [gold, *products], [*masses], [*smoothed, *masses])
    return _parts(batch, gold, products, added, (share, here))


def _taught(logs: Tensor, gold: Tensor, rows: HistoryRows | None, target: SparseTarget) -> PositionLosses:
    """The losses with a teacher, of log-probabilities (positions, V)."""
    logs.clamp_(min=torch.finfo(logs.dtype).min)  # a zero of the target silences a logit of -inf
    cross = -(target.values * logs.gather(1, target.ids)).sum(-1)
    if rows is not None:
        product = rows.values[rows.which][..., 0].to(logs.dtype).mul_(logs).sum(-1)
        cross -= torch.where(target.tail > 0, target.tail * product, 0.0)
    mass, label, row = target.coefficients()
    saved = torch.stack([mass, -label, row])
    return PositionLosses(target.total(-gold, cross), -gold, cross, cross - target.entropy, saved)


def _parts(
    batch: PlannedBatch,
    gold: Tensor,  # (positions,), log q(y)
    products: list[Tensor],  # of row and log-probabilities
    added: list[Tensor],  # token: p~(y); then, with class weights, the sums of the rows
    divided: tuple[Tensor | None, Tensor | None],  # share and here, as `_add_up` and `_places` give them
) -> PositionLosses:
    """The parts, and for the gradient the coefficients of softmax, label and row.

    Class weights w make sums over words of w(word) * target(word) of what is 1 and Z without them.
    """
    labels, _, plan, _, table, facts = batch
    assert isinstance(plan, Coefficients) and table is not None
    (plus, minus), nll, weighted = plan.strengths(table), -gold, len(table.weight) > 0
    one = lookup(table, facts).one
    own, whole = (table.weight[labels.clamp(min=0)], added[-1]) if weighted else (one, one)  # of onehot and p~
    if facts.ngram:
        z_plus, z_minus = (added[-2], added[-1]) if weighted else (plan.z, plan.z)
        given, taken = -products[0], -products[1]
    else:
        z_plus = whole - added[0]
        z_minus = own - added[0] if weighted else z_plus
        given, taken = -torch.addcmul(products[0], added[0], nll), z_minus * nll
    mass = torch.addcmul(torch.addcmul(own, plus, z_plus), minus, z_minus)
    if facts.ngram:
        label, row = -own.expand_as(mass), plan.known
    else:
        label, row = (plus * whole if weighted else plus) - mass, plus
    nll, plus, minus = own * nll if weighted else nll, plus * given, minus * taken  # (6) of docs/theory.md
    mass, label = (_times(each, factor) for each, factor in zip((mass, label), divided, strict=True))
    return PositionLosses(nll + plus + minus, nll, plus, minus, torch.stack([mass, label, row]))


def gradient(logits: Tensor, batch: PlannedBatch, saved: Tensor, *, inplace: bool = False, base: bool = True) -> Tensor:
    """The gradient of scale * losses; see `Kernels.gradient`. Saved were the coefficients of softmax, label and row."""
    labels, scale, plan, rows, table, facts = batch
    found = torch.softmax(logits.detach().reshape(-1, logits.shape[-1]), -1, dtype=computed_in(logits.dtype))
    mass, label, row = (saved * scale).to(found.dtype).unbind()  # of (7) in docs/theory.md
    found.mul_(mass[:, None]).masked_fill_((mass == 0)[:, None], 0.0)  # what does not count may be NaN
    if rows is not None and table is not None:
        found.addcmul_(_target(rows, table, facts)[rows.which].to(found.dtype), row[:, None], value=-1)
    found.scatter_add_(1, _places(labels, found.shape[1], facts)[0], label[:, None])
    if isinstance(plan, SparseTarget):
        found.scatter_add_(1, plan.ids, ((-scale * plan.gamma)[:, None] * plan.values).to(found.dtype))
    return logits.copy_(found.view_as(logits)) if inplace else found.view_as(logits).to(logits.dtype)


def _target(rows: HistoryRows, table: TableTensors, facts: TableFacts) -> Tensor:
    """Each row's share of the target: token: p~; ngram: gamma_plus Z p+ + gamma_minus Z p- with its sign."""
    if not facts.ngram:
        return rows.values[..., 0]
    return (rows.values.view(-1, 2) @ table.strengths).view(rows.values.shape[:2])


def scatter(total: Tensor, batch: PlannedBatch, plus: Tensor, minus: Tensor) -> None:
    """Subtract sparse rows from numbers; see `Kernels.scatter`."""
    which, values = expand(batch, base=False)
    for rows, strength in zip(values.unbind(2), (plus, minus), strict=False):
        total.addcmul_(rows[which], strength[:, None], value=-1)


def probabilities(ids: Tensor, batch: PlannedBatch) -> Tensor:
    """p~(id|h) of ids (positions, k), read off the rows; see `Kernels.probabilities`."""
    assert batch.rows is not None
    return batch.rows.values[batch.rows.which[:, None], ids, 0]


def _times(tensor: Tensor, factor: Tensor | None) -> Tensor:
    return tensor if factor is None else tensor * factor


def _places(labels: Tensor, width: int, facts: TableFacts) -> tuple[Tensor, Tensor | None]:
    """The column of each label, (positions, 1), and whether it is one of these columns; None: all are here."""
    if not facts.group:
        return labels.clamp(min=0)[:, None], None
    places = labels - facts.start
    return places.clamp(0, width - 1)[:, None], ((places >= 0) & (places < width)).float()


def _add_up(
    scores: Tensor,  # (positions, columns)
    facts: TableFacts,
    here: Tensor | None,
    logged: list[Tensor],  # sums over words of value * log q, with q normalised over these columns; the label's first
    masses: list[Tensor],  # the sums of these values; the label's is `here`
    plain: list[Tensor],  # other sums
) -> tuple[Tensor | None, list[Tensor], list[Tensor]]:
    """The share of these columns in the softmax, and sums over all words, from all processes.

    Each process knows log q up to its own log-sum-exp: q is lower by lse_here - lse_all there.
    """
    if here is None:
        return None, logged, plain
    lse = torch.logsumexp(scores, -1)
    empty = lse.isneginf()  # all columns are masked
    packed = torch.stack([lse, logged[0].masked_fill(empty, 0.0) * here, *logged[1:], here, *masses, *plain])
    find: Callable[[str], Any] = distributed_c10d._resolve_process_group  # type: ignore[attr-defined,assignment]
    group = find(facts.group)
    everyone = [torch.empty_like(packed) for _ in range(group.size())]
    torch.distributed.all_gather(everyone, packed, group=group)
    gathered = torch.stack(everyone)  # (processes, sums, positions)
    whole = gathered[:, 0].logsumexp(0)
    lower = (gathered[:, :1] - whole).masked_fill(gathered[:, :1].isneginf(), 0.0)
    count = len(logged)
    sums = (gathered[:, 1 : 1 + count] + gathered[:, 1 + count : 1 + 2 * count] * lower).sum(0)
    return (lse - whole).exp(), list(sums.unbind()), list(gathered[:, 1 + 2 * count :].sum(0).unbind())


def find_histories(contexts: Tensor, table: TableTensors, facts: TableFacts) -> Tensor:
    """The node of the longest known suffix of each position's history (`text.history`), or -1; (batch, time)."""
    if is_host_readable(contexts.device):
        check_ids(contexts, "histories", len(table.tokens) - 2)
    if facts.order == 1 or not contexts.numel():
        return torch.full_like(contexts, -1)
    gram = state = token = lookup(table, facts).tokens[contexts.clamp(min=-1)]
    for length in range(2, facts.order):  # gram: the node of the last tokens, so many
        found, missing = search(pad(gram, (1, -1), value=-1), token, table, facts)
        state = torch.where(missing, state, found)
        gram = found.masked_fill_(missing, -1) if length + 1 < facts.order else found
    return state


def search(nodes: Tensor, words: Tensor, table: TableTensors, facts: TableFacts) -> tuple[Tensor, Tensor]:
    """The child of each node with this word, and where there is none."""
    keys = lookup(table, facts).keys
    wanted = torch.add(words, nodes, alpha=len(table.predicted) + 1)
    found = torch.searchsorted(keys, wanted)
    return found, keys[found] != wanted


def distinct(states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct states, filled up with -1; the position of each state among them; and the last place that is used.

    >>> distinct(torch.tensor([7, 3, 7]))
    (tensor([ 3,  7, -1]), tensor([1, 0, 1]), tensor(1))
    """
    ascending, order = states.sort()
    places = pad((ascending[1:] != ascending[:-1]).cumsum(0), (1, 0))
    which = order.new_empty(order.shape).scatter_(0, order, places)
    return torch.full_like(states, -1).scatter_(0, places, ascending), which, places[-1]


def expand(batch: PlannedBatch, base: bool = True) -> HistoryRows:
    """The row of each position, and the rows, (distinct states, V, C); base=False leaves the base out."""
    states, table, facts = batch.nodes[0], batch.table, batch.facts
    assert table is not None
    given = lookup(table, facts)
    dense = given.base if base else torch.zeros_like(given.base)
    if facts.order == 1 or not len(states):
        return HistoryRows(torch.zeros_like(states), dense[None].repeat(min(1, len(states)), 1, 1))
    listed = list_ngrams(states, given)
    return HistoryRows(listed.which, dense_rows(listed, int(listed.size), dense, given))  # the one time the host waits


def history_rows(batches: Sequence[PlannedBatch]) -> Iterator[HistoryRows]:
    """`expand` of each chunk of a batch, one at a time; the host waits once, before the first."""
    table, facts = batches[0].table, batches[0].facts
    assert table is not None
    if facts.order == 1 or not all(len(batch.labels) for batch in batches):
        yield from map(expand, batches)
        return
    given = lookup(table, facts)
    listed = [list_ngrams(batch.nodes[0], given) for batch in batches]
    sizes = torch.stack([each.size for each in listed]).tolist()
    for each, size in zip(listed, sizes, strict=True):
        yield HistoryRows(each.which, dense_rows(each, size, given.base, given))


class NgramSegments(NamedTuple):
    """The n-grams of distinct histories, in segments: one for each node of a chain. The host has not read how many."""

    which: Tensor
    """(positions,): the row of each position"""
    chains: Tensor
    """`Lookup.chains` of the distinct histories, filled up to (positions, n, 3)"""
    ends: Tensor
    """where each segment ends; (positions * n,)"""
    size: Tensor
    """the number of n-grams, and `_MANY` times the last row"""


def list_ngrams(states: Tensor, given: Lookup) -> NgramSegments:
    """The segments of the distinct states among these."""
    known, which, last = distinct(states)
    chains = given.chains[known]
    ends = chains.view(-1, 3).unbind(1)[1].cumsum(0)
    return NgramSegments(which, chains, ends, torch.add(ends[-1], last, alpha=_MANY))


def dense_rows(listed: NgramSegments, size: int, dense: Tensor, given: Lookup) -> Tensor:
    """The rows of listed histories on top of a dense base (V, C): (distinct states, V, C)."""
    last, ngrams = divmod(size, _MANY)
    weights = listed.chains.view(torch.float32)[..., 2]  # (positions, n), a view
    rows = (weights[: last + 1, -1:] * dense.view(1, -1)).view(-1, dense.shape[1])
    numbers = torch.arange(ngrams, device=dense.device)
    segments = torch.searchsorted(listed.ends, numbers, right=True)  # of which history and node
    node = (listed.chains.view(-1, 3).unbind(1)[0] - listed.ends)[segments] + numbers
    places = torch.add(given.places[node], segments // weights.shape[1], alpha=len(dense))
    rows.index_add_(0, places, given.values[node] * weights.view(-1)[segments, None])
    return rows.view(-1, *dense.shape)


class Lookup(NamedTuple):
    """What plain tensor code reads in place of parts of a `TableTensors`. Of C columns, token has one, ngram two.

    It depends on the table alone and is made once a device: 4 bytes for each n-gram (ngram: 8), and 8 bytes and 12
    times the order for each that can be a history.
    """

    keys: Tensor
    """parent and word of every node that can be a history as one ascending number, with one more at the end"""
    tokens: Tensor
    """`TableTensors.tokens` as int64"""
    chains: Tensor
    """(histories + 1, n, 3), int32: for each node of a history's chain, longest first, where its children end, their
    number, and the bits of its weight; the last stands for the base, without children"""
    places: Tensor
    """the column of each n-gram's last word; any where its values are 0, for the column is not here"""
    values: Tensor
    """(n-grams, C): the sparse value of each n-gram in its row of p~; ngram: of Z p+ and of Z p-"""
    base: Tensor
    """(V, C): the dense base in the same columns"""
    zs: Tensor
    """ngram: Z of each history, 0 of one that is not whole"""
    one: Tensor


def lookup(table: TableTensors, facts: TableFacts) -> Lookup:
    """The lookup of a table, made once a device."""
    if table.words not in _lookups:
        _lookups[table.words] = _made(table, facts)
    found: Lookup = _lookups[table.words]
    return found


def _made(table: TableTensors, facts: TableFacts) -> Lookup:
    sparse = values_of_ngrams(table) if facts.ngram and facts.order > 1 else table.rows[:, None]
    minus = table.dense_minus if len(table.dense_minus) else torch.zeros_like(table.base)
    base = torch.stack([table.base, minus], 1) if facts.ngram else table.base[:, None].clone()
    one = torch.ones((), device=base.device)
    tokens, zs = table.tokens.long(), table.zs.clamp(min=0)
    part = len(base) < len(table.predicted)
    places = (table.words - facts.start).clamp(0, len(base) - 1) if part else table.words
    return Lookup(child_keys(table), tokens, chains_of_histories(table, facts), places, sparse, base, zs, one)


def child_keys(table: TableTensors) -> Tensor:
    """`Lookup.keys`."""
    counts = (table.first[1:] - table.first[:-1]).long()
    parents = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    unigrams, histories = len(table.predicted) + 1, len(counts)
    parents = parents[: max(histories - unigrams, 0)]
    keys = torch.add(table.words[unigrams : unigrams + len(parents)], parents, alpha=unigrams)
    return pad(pad(keys, (unigrams, 0), value=-(2**62)), (0, 1), value=2**62)


def chains_of_histories(table: TableTensors, facts: TableFacts) -> Tensor:
    """`Lookup.chains`; the last stands for node -1. A history that is not whole has nothing in ngram form."""
    states = torch.arange(len(table.backoffs), device=table.words.device)
    states[-1] = -1
    nodes, weights = chain(states, table, facts)
    first, ends = pad(table.first, (0, 1), value=len(table.words))[nodes], table.first[nodes + 1]
    lengths = (ends - first).masked_fill_(nodes < 0, 0)
    whole = (table.zs >= 0)[:, None] if facts.ngram else torch.ones_like(states, dtype=torch.bool)[:, None]
    columns = pad(ends, (0, 1)), pad(lengths * whole, (0, 1)), (weights * whole).view(torch.int32)
    return torch.stack(columns, 2)


def values_of_ngrams(table: TableTensors) -> Tensor:
    """`Lookup.values` in ngram form.

    An n-gram follows a whole history or none: the suffixes of a whole history are shorter and lack its `<s>`. So its
    values do not depend on the history under which it is listed.
    """
    last = torch.full_like(table.levels[:1], len(table.words))
    ends = torch.cat([table.levels[2:], last]) - table.shifts[1:]  # of the slots, by the length of the history
    shifts = torch.repeat_interleave(table.shifts[1:], ends.diff(prepend=torch.zeros_like(last)))
    nodes = torch.arange(len(table.plus), device=shifts.device) + shifts
    rows = pad(table.rows[:-1], (0, len(table.words) - len(table.rows) + 1))
    columns = rows.index_copy(0, nodes, table.plus), torch.zeros_like(rows).index_copy(0, nodes, table.minus)
    return torch.stack(columns, 1)


def chain(states: Tensor, table: TableTensors, facts: TableFacts) -> tuple[Tensor, Tensor]:
    """Each history's nodes, longest first (positions, n-1); their weights, and that of the base, (positions, n)."""
    nodes = [states]
    for _ in range(2, facts.order):
        nodes.append(table.suffixes[nodes[-1]].long())
    if facts.order == 1:
        return states.new_empty(len(states), 0), torch.ones_like(states, dtype=torch.float32)[:, None]
    listed = torch.stack(nodes, 1)
    return listed, pad(table.backoffs[listed].cumprod(1), (1, 0), value=1.0)
