"""Some columns of a table, times class weights: what one process needs that holds the logits of these words.

A process that holds the logits of the words `start..stop-1` keeps the n-grams that end in them and their part of the
base. Histories are needed whole everywhere: their nodes, suffixes and backoffs. With class weights w the target of a
position becomes w(word) * target(word), so values are multiplied here once, and the sums over all words

    mass(h) = sum_w w p~(w|h)      (ngram: of Z p+, and mass_minus(h) of Z p-)

are kept per history. A whole history never is the suffix of another, so in ngram form its n-grams have the values of
Z p+ in place of the rows of p~, and no second set of rows is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidstone.loss.constant_tensors import ConstantTensors
from lidstone.loss.plan import Empirical
from lidstone.loss.split import signed_split, whole_ngrams
from lidstone.loss.targets import predicted_words, shift_right
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie

Floats = NDArray[np.float64]


class Values(NamedTuple):
    """The values of a table per node, before columns are chosen."""

    trie: Trie
    rows: Floats
    minus: Floats
    base: Floats
    base_minus: Floats
    backoffs: Floats
    usable: NDArray[np.bool_]
    """which histories are regularized; one per node that can be a history, and one for no history"""
    predicted: NDArray[np.bool_]
    """which words are predicted at all"""


class Columns(ConstantTensors):
    """The words `start..stop-1` of a table; index -1 of what has one value per history means no history.

    >>> from lidstone import AddLambda, Vocabulary, count
    >>> table = AddLambda(lam=1).fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2))
    >>> columns = Columns(table, None, "token", 1, 3, np.ones(3))
    >>> columns.mass[torch.tensor([1, -1])], columns.probability(torch.tensor([2, 0]), torch.tensor([1, 1]))
    (tensor([1., 1.]), tensor([0.4000, 0.0000]))
    """

    keys: Tensor
    ends: Tensor
    first: Tensor
    rows: Tensor
    minus: Tensor
    base: Tensor
    base_minus: Tensor
    suffixes: Tensor
    backoffs: Tensor
    mass: Tensor
    mass_minus: Tensor
    usable: Tensor
    weight: Tensor
    predicted: Tensor
    boundary: Tensor

    def __init__(
        self, table: BackoffTable, counts: Counts | None, empirical: Empirical, start: int, stop: int, weight: Floats
    ) -> None:
        super().__init__()
        values = _values(table, counts, empirical)
        self.order, self.vocab, self.ngram = table.order, table.vocab, empirical == "ngram"
        self.start, self.stop, self.signature = start, stop, table.signature
        self._keep("weight", weight, torch.float32)
        self._keep("predicted", values.predicted, torch.bool)
        self._keep("boundary", table.vocab.boundaries, torch.bool)
        self._keep("usable", values.usable, torch.bool)
        self._keep_histories(values)
        self._keep_columns(values, weight)
        self._keep_masses(values, weight)

    def _keep_histories(self, values: Values) -> None:
        trie, inner = values.trie, values.trie.num_histories
        self._keep("keys", _keys(trie)[: max(inner - trie.vocab_size - 1, 0)], torch.int64)
        self._keep("suffixes", trie.suffixes[:inner], torch.int64)
        self._keep("backoffs", values.backoffs[:inner], torch.float32)

    def _keep_columns(self, values: Values, weight: Floats) -> None:
        trie, unigrams = values.trie, values.trie.vocab_size + 1
        words = trie.words[unigrams:]
        here = (words >= self.start) & (words < self.stop)
        before = np.append(0, np.cumsum(here))
        kept, scale = unigrams + np.flatnonzero(here), weight[words[here]]
        span = slice(self.start, self.stop)
        self._keep("ends", _keys(trie)[here], torch.int64)
        self._keep("first", before[trie.first - unigrams] if trie.order > 1 else np.zeros(1, np.int64), torch.int64)
        self._keep("rows", values.rows[kept] * scale, torch.float32)
        self._keep("minus", values.minus[kept] * scale if self.ngram else np.empty(0), torch.float32)
        self._keep("base", values.base[span] * weight[span], torch.float32)
        self._keep("base_minus", values.base_minus[span] * weight[span], torch.float32)

    def _keep_masses(self, values: Values, weight: Floats) -> None:
        trie, unigrams = values.trie, values.trie.vocab_size + 1
        scale = weight[trie.words[unigrams:]]
        mass = np.append(np.zeros(trie.num_histories if trie.order > 1 else 0), (values.base * weight).sum())
        minus = np.append(np.zeros(len(mass) - 1), (values.base_minus * weight).sum())
        if trie.order > 1:
            bounds = trie.first - unigrams
            rows, minus[:-1] = (
                np.diff(np.append(0.0, np.cumsum(part[unigrams:] * scale))[bounds])
                for part in (values.rows, values.minus)
            )
            for length in range(1, trie.order):
                level = trie.level(length)
                mass[level] = rows[level] + values.backoffs[level] * mass[trie.suffixes[level]]
        self._keep("mass", mass, torch.float32)
        self._keep("mass_minus", minus, torch.float32)

    def states(self, contexts: Tensor) -> Tensor:
        """The node of each position's history, -1 for none; contexts (batch, time) hold the token before each."""
        bos = self.vocab.bos
        known = contexts >= 0
        last = torch.where(self.boundary[contexts.clamp(min=0)], bos, contexts)
        gram = torch.where(known, last, -1)  # the node of the last k tokens, for k = 1, 2, ..
        state = gram if self.order > 1 else torch.full_like(gram, -1)
        for _ in range(2, self.order):
            longer = _find(self.keys, shift_right(gram, -1), last, bos + 1)
            gram = torch.where(known & (last != bos) & (longer >= 0), longer + bos + 1, -1)
            state = torch.where(gram >= 0, gram, state)
        return state.reshape(-1)

    def chain(self, states: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each position's history with its weight, then those of the orders below; the last has no history."""
        weight, links = torch.ones(states.shape, device=states.device), []
        for _ in range(self.order - 1):
            links.append((states, weight))
            weight = torch.where(states >= 0, weight * self.backoffs[states], weight)
            states = torch.where(states >= 0, self.suffixes[states], states)
        return [*links, (states, weight)]

    def probability(self, words: Tensor, states: Tensor) -> Tensor:
        """Weight times p~(word | history) where the word is one of these columns, else 0; (positions,)."""
        *links, (_, weight) = self.chain(states)
        inside = (words >= self.start) & (words < self.stop)
        total = weight * self.base[torch.where(inside, words - self.start, 0)] if len(self.base) else 0.0 * weight
        for state, factor in links:
            entry = _find(self.ends, state, words, self.vocab.bos + 1)
            total = total + torch.where(entry >= 0, factor * self.rows[entry], 0.0) if len(self.rows) else total
        return torch.where(inside, total, 0.0)

    def entries(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The n-grams of each position's history and its suffixes: position, number of the n-gram, factor."""
        found = [_expand(self.first, state, weight) for state, weight in self.chain(states)[:-1]]
        if not found:
            empty = states.new_empty(0)
            return empty, empty, empty.float()
        positions, numbers, factors = (torch.cat(parts) for parts in zip(*found, strict=True))
        return positions, numbers, factors


def _values(table: BackoffTable, counts: Counts | None, empirical: Empirical) -> Values:
    if empirical == "token" or counts is None:
        trie = table.trie
        usable = np.ones((trie.num_histories if trie.order > 1 else 0) + 1, np.bool_)
        nothing = np.zeros(trie.size), np.zeros(table.vocab.size)
        known = predicted_words(table)
        return Values(trie, table.rows, nothing[0], table.base, nothing[1], table.backoffs, usable, known)
    parts = signed_split(table, counts)
    table, trie = parts.table, parts.table.trie
    known = predicted_words(table)
    if trie.order == 1:
        usable = np.ones(1, np.bool_)
        return Values(trie, table.rows, np.zeros(trie.size), parts.plus, parts.minus, table.backoffs, usable, known)
    nodes = whole_ngrams(trie)
    rows, minus, empirical_p = table.rows.copy(), np.zeros(trie.size), np.zeros(trie.size)
    rows[nodes], minus[nodes], empirical_p[nodes] = parts.plus, parts.minus, parts.empirical
    seen = np.diff(np.append(0.0, np.cumsum(empirical_p))[trie.first]) > 0.5
    whole = np.zeros(trie.num_histories, np.bool_)
    whole[trie.parents[nodes]] = True
    usable = np.append(whole & seen, False)
    return Values(trie, rows, minus, table.base, np.zeros(table.vocab.size), table.backoffs, usable, known)


def _keys(trie: Trie) -> NDArray[np.int64]:
    """One ascending number per n-gram of the orders above 1: its history's node and its last word."""
    unigrams = trie.vocab_size + 1
    return trie.parents[unigrams:].astype(np.int64) * unigrams + trie.words[unigrams:]


def _find(keys: Tensor, nodes: Tensor, words: Tensor, unigrams: int) -> Tensor:
    """The position of (node, word) among the keys, or -1."""
    if not len(keys):
        return torch.full_like(nodes, -1)
    wanted = nodes * unigrams + words
    place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where((nodes >= 0) & (keys[place] == wanted), place, -1)


def _expand(first: Tensor, states: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    start = first[states.clamp(min=0)]
    lengths = torch.where(states >= 0, first[states.clamp(min=0) + 1] - start, 0)
    positions = torch.repeat_interleave(torch.arange(len(states), device=states.device), lengths)
    offsets = torch.arange(len(positions), device=states.device) - (lengths.cumsum(0) - lengths)[positions]
    return positions, start[positions] + offsets, weight[positions]
