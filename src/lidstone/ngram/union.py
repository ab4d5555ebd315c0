"""Put a table and counts on one trie, where they come from different texts or one from an ARPA file.

The common trie is the union of both sets of n-grams, which is closed since both are. What is new to one side says
nothing there: an inserted n-gram has rows 0 and count 0, an inserted history has backoff 1 and passes through. So
both sides mean exactly what they meant before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie

Nodes = NDArray[np.int32]


def align(table: BackoffTable, counts: Counts) -> tuple[BackoffTable, Counts]:
    """The same distribution and the same counts on one common trie; the very same objects if they share one.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> vocab = Vocabulary(size=3, eos=0)
    >>> table = AddLambda(lam=1).fit(count([[1, 2]], vocab, order=2))
    >>> aligned, counts = align(table, count([[2, 1]], vocab, order=2))
    >>> aligned.trie is counts.trie, table.trie.size, aligned.trie.size
    (True, 7, 10)
    """
    table.require_counts(counts)
    if table.trie is counts.trie:
        return table, counts
    if same_ngrams(table.trie, counts.trie):
        return replace(table, trie=counts.trie), counts
    trie, of_table, of_counts = union(table.trie, counts.trie)
    return move_table(table, trie, of_table), _move_counts(counts, trie, of_counts)


def same_ngrams(one: Trie, other: Trie) -> bool:
    """Whether two tries hold the same n-grams; the suffix links follow from the rest."""
    pairs = ((one.levels, other.levels), (one.first, other.first), (one.words, other.words))
    return all(np.array_equal(a, b) for a, b in pairs)


def union(one: Trie, other: Trie) -> tuple[Trie, Nodes, Nodes]:
    """The trie of all n-grams of two tries, and the position in it of each one's nodes.

    Within a level both are sorted by (parent, word), and so is their union: a merge per level.
    """
    new_nodes = [np.arange(one.levels[1], dtype=np.int32)] * 2
    words, parents = [one.words[one.level(1)]], [np.empty(0, np.int64)]
    bounds = [0, int(one.levels[1])]
    for order in range(2, one.order + 1):
        keys = [_keys(trie, order, nodes) for trie, nodes in zip((one, other), new_nodes, strict=True)]
        merged = np.union1d(*keys)
        found = [(np.searchsorted(merged, k) + bounds[-1]).astype(np.int32) for k in keys]
        new_nodes = [np.concatenate(both) for both in zip(new_nodes, found, strict=True)]
        words.append((merged & 0xFFFFFFFF).astype(np.int32))
        parents.append(merged >> 32)
        bounds.append(bounds[-1] + len(merged))
    suffixes = np.full(bounds[-1], -1, np.int32)
    for trie, nodes in zip((one, other), new_nodes, strict=True):
        longer = slice(int(trie.levels[1]), None)
        suffixes[nodes[longer]] = nodes[trie.suffixes[longer]]
    first = first_children(np.concatenate(parents), np.array(bounds))
    return Trie(np.array(bounds), np.concatenate(words), suffixes, first), new_nodes[0], new_nodes[1]


def first_children(parents: NDArray[np.integer], levels: NDArray[np.int64]) -> Nodes:
    """`Trie.first` from the parents of all nodes but the unigrams.

    >>> first_children(np.array([0, 2, 2]), np.array([0, 3, 6])).tolist()    # nodes 3, 4 and 5
    [3, 4, 4, 6]
    """
    children = np.bincount(parents, minlength=int(levels[-2]))
    found: Nodes = (np.concatenate([[0], np.cumsum(children)]) + levels[1]).astype(np.int32)
    return found


def _keys(trie: Trie, order: int, new_nodes: Nodes) -> NDArray[np.int64]:
    """(new node of the parent, word) in one integer, for each node of a level."""
    level = trie.level(order)
    keys: NDArray[np.int64] = new_nodes[trie.parents[level]].astype(np.int64) << 32 | trie.words[level]
    return keys


def move_table(table: BackoffTable, trie: Trie, nodes: Nodes) -> BackoffTable:
    """The same distribution on a larger trie, in which `nodes` are the places of the table's own."""
    rows = _spread(table.rows, nodes, trie.size)
    backoffs = _spread(table.backoffs, nodes, trie.num_histories, fill=1)
    return replace(table, trie=trie, rows=rows, backoffs=backoffs)


def _move_counts(counts: Counts, trie: Trie, nodes: Nodes) -> Counts:
    derived = counts.derived  # taken before nodes without occurrences are inserted
    moved = replace(
        derived,
        totals=_spread(derived.totals, nodes, trie.num_histories),
        adjusted=_spread(derived.adjusted, nodes, trie.size),
        adjusted_totals=_spread(derived.adjusted_totals, nodes, trie.num_histories),
    )
    return Counts(counts.vocab, trie, _spread(counts.counts, nodes, trie.size), counts.thresholds, moved)


def _spread(values: NDArray[Any], nodes: Nodes, size: int, *, fill: float = 0) -> NDArray[Any]:
    """The values at their new nodes, `fill` elsewhere."""
    spread = np.full(size, fill, values.dtype)
    spread[nodes[: len(values)]] = values
    return spread
