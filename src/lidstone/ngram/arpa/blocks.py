"""Words, probabilities and backoffs of some n-grams of a table, without arrays of the table's size.

Tables that are mapped into memory, packed or quantised are read as they are stored (`access.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.ngram.access import DEPTH, at, full_prob
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie

Nodes = NDArray[np.int64]


def blocks_of(table: BackoffTable, order: int, size: int) -> Iterator[Nodes]:
    """The n-grams of one order, some at a time; without words that cannot be predicted."""
    level = table.trie.level(order)
    for start in range(level.start, level.stop, size):
        nodes = np.arange(start, min(start + size, level.stop))
        yield nodes[np.append(table.vocab.events, True)[nodes]] if order == 1 else nodes


def words_of(trie: Trie, nodes: Nodes, order: int) -> list[NDArray[np.int64]]:
    """The words of n-grams, a column for each place, oldest first.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> trie = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2).trie
    >>> [column.tolist() for column in words_of(trie, np.arange(4, 8), 2)]      # 3 is <s>
    [[1, 1, 2, 3], [0, 2, 0, 1]]
    """
    columns = []
    for length in range(order, 0, -1):
        columns.append(read(trie.links[1], nodes))
        nodes = parents_of(trie, nodes, length) if length > 1 else nodes
    return columns[::-1]


def parents_of(trie: Trie, nodes: Nodes, order: int) -> Nodes:
    """The nodes without their newest words, for ascending nodes of one order from 2 on."""
    out, histories = np.empty(len(nodes), np.int64), trie.level(order - 1)
    if len(nodes):
        _find_parents(trie.links[0], nodes, histories.start, histories.stop, out)
    return out


def probs_of(table: BackoffTable, nodes: Nodes, order: int) -> NDArray[np.float64]:
    """p(w | h) of n-grams; 0 for `<s>`."""
    if order == 1:
        return np.append(table.base, 0.0)[nodes]
    out = np.empty(len(nodes))
    links, parents = table.trie.links, parents_of(table.trie, nodes, order)
    _fill_probs(table.scored_values, *links, table.stored_backoffs, parents, nodes, out)
    return out


def read(array: Any, nodes: Nodes) -> NDArray[Any]:
    """The numbers at some places of an array, plain, packed or quantised."""
    if isinstance(array, np.ndarray):
        return array[nodes]
    out: NDArray[Any] = _read(array, nodes)
    return out


@njit(cache=True, nogil=True)
def _find_parents(first, nodes, low, high, out):  # type: ignore[no-untyped-def]
    """Search for the parent of the first node; from there on, parents are ascending too."""
    parent = low
    while parent + 1 < high:
        middle = (parent + high) >> 1
        if at(first, middle) <= nodes[0]:
            parent = middle
        else:
            high = middle
    for i in range(len(nodes)):
        while at(first, parent + 1) <= nodes[i]:
            parent += 1
        out[i] = parent


@njit(cache=True, nogil=True)
def _fill_probs(values, first, words, suffixes, backoffs, parents, nodes, out):  # type: ignore[no-untyped-def]
    chain = np.empty(2 * DEPTH, np.int64)
    for i in range(len(nodes)):
        out[i] = full_prob(values, first, words, suffixes, backoffs, parents[i], nodes[i], chain)


@njit(cache=True, nogil=True)
def _read(array, nodes):  # type: ignore[no-untyped-def]
    return np.array([at(array, node) for node in nodes])
