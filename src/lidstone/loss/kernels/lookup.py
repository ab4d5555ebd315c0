"""What plain tensor code reads in place of parts of a table: the chain of each history, the values of its n-grams.

It depends on the table alone and is made once a device: 8 bytes for each n-gram (ngram: 16), and 12 times the order
for each that can be a history.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.weak import WeakTensorKeyDictionary

from lidstone.loss.plan import Facts, Table

_lookups: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


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


def chain(states: Tensor, table: Table, facts: Facts) -> tuple[Tensor, Tensor]:
    """Each history's nodes, longest first (positions, n-1); their weights, and that of the base, (positions, n)."""
    nodes = [states]
    for _ in range(2, facts.order):
        nodes.append(table.suffixes[nodes[-1]].long())
    if facts.order == 1:
        return states.new_empty(len(states), 0), torch.ones_like(states, dtype=torch.float32)[:, None]
    listed = torch.stack(nodes, 1)
    return listed, pad(table.backoffs[listed].cumprod(1), (1, 0), value=1.0)
