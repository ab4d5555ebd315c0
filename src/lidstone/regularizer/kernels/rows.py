"""The smoothed rows of a batch in plain tensor code: each distinct history is expanded once, in few operations.

A history is a chain of nodes, from its longest known suffix down to its last word, and each node brings the n-grams
that extend it. `expand` lists the n-grams of the distinct histories and adds them into one dense row per history. How
many rows and n-grams there are is one number, for which the host waits once.

What depends on the table alone is made once a device (`Lookup`): 8 bytes for each n-gram (ngram: 16), and 12 times the
order for each that can be a history.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.weak import WeakTensorKeyDictionary

from lidstone.regularizer.plan import Facts, Table

_lookups: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_MANY = 2**40  # more n-grams than a batch can have: two numbers travel to the host as one


class Lookup(NamedTuple):
    """What plain tensor code reads in place of parts of a `Table`. Of C columns, token has one, ngram two."""

    keys: Tensor
    """parent and word of every node as one ascending number, with one more than any at the end"""
    tokens: Tensor
    """`Table.tokens` as int64"""
    chains: Tensor
    """(histories + 1, n, 3), int32: for each node of a history's chain, longest first, where its children end, their
    number, and the bits of its weight; the last stands for the base, without children"""
    values: Tensor
    """(n-grams, C): the sparse value of each n-gram in its row of p~; ngram: of Z p+ and of Z p-"""
    base: Tensor
    """(V, C): the dense base in the same columns"""
    zs: Tensor
    """ngram: Z of each history, 0 of one that is not whole"""
    one: Tensor


def lookup(table: Table, facts: Facts) -> Lookup:
    """The lookup of a table, made once a device."""
    if table.words not in _lookups:
        _lookups[table.words] = _made(table, facts)
    found: Lookup = _lookups[table.words]
    return found


def _made(table: Table, facts: Facts) -> Lookup:
    sparse = values_of_ngrams(table) if facts.ngram and facts.order > 1 else table.rows[:, None]
    minus = table.dense_minus if len(table.dense_minus) else torch.zeros_like(table.base)
    base = torch.stack([table.base, minus], 1) if facts.ngram else table.base[:, None].clone()
    one = torch.ones((), device=base.device)
    tokens, zs = table.tokens.long(), table.zs.clamp(min=0)
    return Lookup(child_keys(table), tokens, chains_of_histories(table, facts), sparse, base, zs, one)


def child_keys(table: Table) -> Tensor:
    """Parent and word of every node as one ascending number, with one more than any at the end."""
    counts = (table.first[1:] - table.first[:-1]).long()
    parents = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    inner = torch.add(table.words[len(table.base) + 1 :], parents, alpha=len(table.base) + 1)
    return pad(pad(inner, (len(table.base) + 1, 0), value=-(2**62)), (0, 1), value=2**62)


def chains_of_histories(table: Table, facts: Facts) -> Tensor:
    """`Lookup.chains`; the last stands for node -1. A history that is not whole has nothing in ngram form."""
    states = torch.arange(len(table.backoffs), device=table.words.device)
    states[-1] = -1
    nodes, weights = chain(states, table, facts)
    first, ends = pad(table.first, (0, 1), value=len(table.words))[nodes], table.first[nodes + 1]
    lengths = (ends - first).masked_fill_(nodes < 0, 0)
    whole = (table.zs >= 0)[:, None] if facts.ngram else torch.ones_like(states, dtype=torch.bool)[:, None]
    columns = pad(ends, (0, 1)), pad(lengths * whole, (0, 1)), (weights * whole).view(torch.int32)
    return torch.stack(columns, 2)


def values_of_ngrams(table: Table) -> Tensor:
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


def find_histories(contexts: Tensor, table: Table, facts: Facts) -> Tensor:
    """The node of the longest known suffix of each position's history, or -1; (batch, time)."""
    if facts.order == 1 or not contexts.numel():
        return torch.full_like(contexts, -1)
    gram = state = token = lookup(table, facts).tokens[contexts.clamp(min=-1)]
    for length in range(2, facts.order):  # gram: the node of the last tokens, so many
        found, missing = search(pad(gram, (1, -1), value=-1), token, table, facts)
        state = torch.where(missing, state, found)
        gram = found.masked_fill_(missing, -1) if length + 1 < facts.order else found
    return state


def search(nodes: Tensor, words: Tensor, table: Table, facts: Facts) -> tuple[Tensor, Tensor]:
    """The child of each node with this word, and where there is none."""
    keys = lookup(table, facts).keys
    wanted = torch.add(words, nodes, alpha=len(table.base) + 1)
    found = torch.searchsorted(keys, wanted)
    return found, keys[found] != wanted


def chain(states: Tensor, table: Table, facts: Facts) -> tuple[Tensor, Tensor]:
    """Each history's nodes, longest first (positions, n-1); their weights, and that of the base, (positions, n)."""
    nodes = [states]
    for _ in range(2, facts.order):
        nodes.append(table.suffixes[nodes[-1]].long())
    if facts.order == 1:
        return states.new_empty(len(states), 0), torch.ones_like(states, dtype=torch.float32)[:, None]
    listed = torch.stack(nodes, 1)
    return listed, pad(table.backoffs[listed].cumprod(1), (1, 0), value=1.0)


def distinct(states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct states, filled up with -1; where each state stands among them; and the last place that is used.

    >>> distinct(torch.tensor([7, 3, 7]))
    (tensor([ 3,  7, -1]), tensor([1, 0, 1]), tensor(1))
    """
    ascending, order = states.sort()
    places = pad((ascending[1:] != ascending[:-1]).cumsum(0), (1, 0))
    which = order.new_empty(order.shape).scatter_(0, order, places)
    return torch.full_like(states, -1).scatter_(0, places, ascending), which, places[-1]


def expand(states: Tensor, table: Table, facts: Facts, base: bool = True) -> tuple[Tensor, Tensor]:
    """The row of each state, (positions,), and the rows, (distinct states, V, C); base=False leaves the base out."""
    given = lookup(table, facts)
    dense = given.base if base else torch.zeros_like(given.base)
    if facts.order == 1 or not len(states):
        return torch.zeros_like(states), dense[None].repeat(min(1, len(states)), 1, 1)
    known, which, last = distinct(states)
    chains = given.chains[known]
    stops, lengths, _ = chains.view(-1, 3).unbind(1)
    weights = chains.view(torch.float32)[..., 2]  # (positions, n), a view
    ends = lengths.cumsum(0)
    number, ngrams = divmod(int(torch.add(ends[-1], last, alpha=_MANY)), _MANY)  # the one time that the host waits
    rows = (weights[: number + 1, -1:] * dense.view(1, -1)).view(-1, dense.shape[1])
    numbers = torch.arange(ngrams, device=states.device)
    segments = torch.searchsorted(ends, numbers, right=True)  # of which history and node
    node = (stops - ends)[segments] + numbers
    places = torch.add(table.words[node], segments // facts.order, alpha=len(dense))
    rows.index_add_(0, places, given.values[node] * weights.view(-1)[segments, None])
    return which, rows.view(-1, *dense.shape)
