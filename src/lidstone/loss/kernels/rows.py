"""The smoothed rows of a batch in plain tensor code: each distinct history is expanded once, in few operations.

A history is a chain of nodes, from its longest known suffix down to its last word, and each node adds the n-grams
that extend it. `expand` lists the n-grams of the distinct histories and adds them into one dense row per history. How
many rows and n-grams there are is one number, for which the host waits once; once for all chunks of a batch too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from lidstone.loss.checks import check_ids
from lidstone.loss.kernels.choice import free_to_read
from lidstone.loss.kernels.lookup import Lookup, lookup
from lidstone.loss.plan import Facts, Table

_MANY = 2**40  # more n-grams than a batch can have: two numbers travel to the host as one


def find_histories(contexts: Tensor, table: Table, facts: Facts) -> Tensor:
    """The node of the longest known suffix of each position's history, or -1; (batch, time)."""
    if free_to_read(contexts.device):
        check_ids(contexts, "histories", len(table.tokens) - 2)
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


def distinct(states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct states, filled up with -1; the position of each state among them; and the last place that is used.

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
        return _base_alone(states, dense)
    listed = list_ngrams(states, given)
    return listed.which, dense_rows(listed, int(listed.size), dense, table, facts)  # the one time that the host waits


def expand_each(chunks: list[Tensor], table: Table, facts: Facts) -> Iterator[tuple[Tensor, Tensor]]:
    """`expand` of each chunk of states, one at a time; the host waits once, before the first."""
    given = lookup(table, facts)
    if facts.order == 1 or not all(len(states) for states in chunks):
        yield from (expand(states, table, facts) for states in chunks)
        return
    listed = [list_ngrams(states, given) for states in chunks]
    sizes = torch.stack([each.size for each in listed]).tolist()
    for each, size in zip(listed, sizes, strict=True):
        yield each.which, dense_rows(each, size, given.base, table, facts)


class Listed(NamedTuple):
    """The n-grams of distinct histories, in segments: one for each node of a chain. The host has not read how many."""

    which: Tensor
    """(positions,): the row of each position"""
    chains: Tensor
    """`Lookup.chains` of the distinct histories, filled up to (positions, n, 3)"""
    ends: Tensor
    """where each segment ends; (positions * n,)"""
    size: Tensor
    """the number of n-grams, and `_MANY` times the last row"""


def list_ngrams(states: Tensor, given: Lookup) -> Listed:
    """The segments of the distinct states among these."""
    known, which, last = distinct(states)
    chains = given.chains[known]
    ends = chains.view(-1, 3).unbind(1)[1].cumsum(0)
    return Listed(which, chains, ends, torch.add(ends[-1], last, alpha=_MANY))


def dense_rows(listed: Listed, size: int, dense: Tensor, table: Table, facts: Facts) -> Tensor:
    """The rows of listed histories on top of a dense base (V, C): (distinct states, V, C)."""
    last, ngrams = divmod(size, _MANY)
    weights = listed.chains.view(torch.float32)[..., 2]  # (positions, n), a view
    rows = (weights[: last + 1, -1:] * dense.view(1, -1)).view(-1, dense.shape[1])
    numbers = torch.arange(ngrams, device=dense.device)
    segments = torch.searchsorted(listed.ends, numbers, right=True)  # of which history and node
    node = (listed.chains.view(-1, 3).unbind(1)[0] - listed.ends)[segments] + numbers
    places = torch.add(table.words[node], segments // facts.order, alpha=len(dense))
    rows.index_add_(0, places, lookup(table, facts).values[node] * weights.view(-1)[segments, None])
    return rows.view(-1, *dense.shape)


def _base_alone(states: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(states), dense[None].repeat(min(1, len(states)), 1, 1)
