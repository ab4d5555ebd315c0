"""What the loss needs to know of a table: its arrays as tensors, and for each position of a batch its coefficients.

Write q for the model, y for the label, h for the history. All four combinations of form and empirical distribution are

    loss = mass * lse(z) - label * z[y] - plus * <sparse part + base part of the smoothed rows, z> - minus * <Z p-, z>

so a batch is planned once: the node of each history, and the four numbers `mass`, `label`, `plus`, `minus`.

    empirical   Z           mass                  label                          rows      p-
    token       1 - p~(y)   1 + (g+ +- g-) Z      1 - g+ p~(y) +- g- Z           p~        (in `label`)
    ngram       Z(h)        1 + (g+ +- g-) Z      1                              Z p+      Z p-

with + for the published form and - for the exact one. A label that the table never predicts has plain NLL: mass 1,
label 1, plus and minus 0.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.regularizer.constant_tensors import ConstantTensors
from lidstone.regularizer.split import SignedSplit, signed_split, slot_shifts
from lidstone.text.windows import boundaries

Empirical = Literal["token", "ngram"]
Form = Literal["exact", "published"]


class Plan(NamedTuple):
    """The coefficients of a batch; every tensor is (positions,)."""

    states: Tensor
    """the node of the history's longest known suffix, or -1"""
    shifts: Tensor
    """ngram: node - shift is the slot of a follower; -1 where the history is not whole"""
    mass: Tensor
    label: Tensor
    plus: Tensor
    minus: Tensor
    z: Tensor
    """Z, the mass that smoothing moves"""
    label_smoothed: Tensor
    """token: p~(y); ngram: 0"""


class Targets(ConstantTensors):
    """A table as tensors that move with `.to` and are never part of a checkpoint."""

    first: Tensor
    words: Tensor
    suffixes: Tensor
    rows: Tensor
    backoffs: Tensor
    base: Tensor
    boundary: Tensor
    predicted: Tensor
    plus: Tensor
    minus: Tensor
    dense_minus: Tensor
    zs: Tensor
    level_shifts: Tensor

    def __init__(self, table: BackoffTable, counts: Counts | None, empirical: Empirical) -> None:
        super().__init__()
        self.empirical = empirical
        self.signature = table.signature
        parts = signed_split(table, counts) if empirical == "ngram" and counts is not None else None
        table = table if parts is None else parts.table
        trie = table.trie
        if trie.size > torch.iinfo(torch.int32).max:
            raise InputError(
                f"the loss takes tables of at most {torch.iinfo(torch.int32).max:,} n-grams, not {trie.size:,}",
                hint="prune the table, or count with thresholds or a lower order",
            )
        self.order, self.vocab = trie.order, table.vocab
        most = int(np.diff(trie.first).max(initial=0))
        self.search_steps = max(most, 1).bit_length()
        # in ngram form the rows of the top order are replaced by `plus`, so they are not kept
        rows = table.rows if parts is None else table.rows[: trie.inner]
        self._keep("first", trie.first, torch.int32)
        self._keep("words", trie.words, torch.int32)
        self._keep("suffixes", trie.suffixes[: trie.inner], torch.int32)
        self._keep("rows", rows, torch.float32)
        self._keep("backoffs", table.backoffs, torch.float32)
        self._keep("boundary", boundaries(table.vocab), torch.bool)
        self._keep("predicted", predicted_words(table), torch.bool)
        self._keep_split(table, parts)

    def _keep_split(self, table: BackoffTable, parts: SignedSplit | None) -> None:
        none = np.empty(0)
        unigram = parts is not None and self.order == 1  # then Z p+ and Z p- are dense
        plus, minus = (none, none) if parts is None or unigram else (parts.plus, parts.minus)
        zs, shifts = none, np.array([0])
        if parts is not None and not unigram:
            shifts = np.array(slot_shifts(table.trie))
            zs = history_masses(parts)
        self._keep("base", parts.plus if parts is not None and unigram else table.base, torch.float32)
        self._keep("dense_minus", parts.minus if parts is not None and unigram else none, torch.float32)
        self._keep("plus", plus, torch.float32)
        self._keep("minus", minus, torch.float32)
        self._keep("zs", zs, torch.float32)
        self._keep("level_shifts", shifts, torch.int64)

    def plan(self, labels: Tensor, contexts: Tensor, *, gamma_plus: float, gamma_minus: float, form: Form) -> Plan:
        """Coefficients of all positions; labels and contexts are (batch, time), labels valid ids everywhere."""
        states, shifts = self.histories(contexts)
        sign = 1.0 if form == "published" else -1.0
        if self.empirical == "token":
            smoothed = self.probability(labels.reshape(-1), states)
            z, whole = 1.0 - smoothed, torch.ones_like(smoothed)
        else:
            smoothed = torch.zeros(states.shape, device=states.device)
            whole = torch.ones_like(smoothed) if self.order == 1 else (shifts >= 0).float()
            z = self.dense_minus.sum().expand(states.shape) if self.order == 1 else whole * self.zs[states.clamp(min=0)]
        whole = whole * self.predicted[labels.reshape(-1)]
        plus, minus = gamma_plus * whole, sign * gamma_minus * whole
        label = 1.0 - plus * smoothed + (minus * z if self.empirical == "token" else 0.0)
        return Plan(states, shifts, 1.0 + (plus + minus) * z, label, plus, minus, z, smoothed)

    def histories(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Node and slot shift of each position's history; contexts (batch, time) hold the token before each.

        A negative context is unknown and cuts the history; a boundary (see `windows`) is the sentence start.
        """
        known = contexts >= 0
        last = torch.where(self.boundary[contexts.clamp(min=0)], self.vocab.bos, contexts)
        gram = torch.where(known, last, -1)  # the node of the last k tokens, for k = 1, 2, ..
        starts = gram == self.vocab.bos  # does that k-gram begin with <s>?
        state, whole = gram, torch.where(starts | ((self.order == 2) & known), 1, 0)
        for length in range(2, self.order):
            extendable = known & (last != self.vocab.bos)
            gram = torch.where(extendable, self.child(shift_right(gram, -1), last), -1)
            starts = shift_right(starts, False) & (gram >= 0)
            state = torch.where(gram >= 0, gram, state)
            whole = torch.where(starts | ((length == self.order - 1) & (gram >= 0)), length, whole)
        if self.order == 1:
            state = torch.full_like(state, -1)
        if self.empirical == "token":
            return state.reshape(-1), torch.full_like(state, -1).reshape(-1)
        seen = (whole > 0) & (self.zs[state.clamp(min=0)] >= 0) if self.order > 1 else whole > 0
        length_shifts = self.level_shifts[whole.clamp(max=len(self.level_shifts) - 1)]
        return state.reshape(-1), torch.where(seen, length_shifts, -1).reshape(-1)

    def child(self, nodes: Tensor, words: Tensor) -> Tensor:
        """The child of each node with this word, or -1: a binary search on all positions at once."""
        parent = nodes.clamp(min=0)
        low, end = self.first[parent].long(), self.first[parent + 1].long()
        high = end
        for _ in range(self.search_steps):
            middle = (low + high) >> 1
            inside = low < high
            below = inside & (self.words[middle.clamp(max=len(self.words) - 1)] < words)
            low, high = torch.where(below, middle + 1, low), torch.where(inside & ~below, middle, high)
        found = (nodes >= 0) & (low < end) & (self.words[low.clamp(max=len(self.words) - 1)] == words)
        return torch.where(found, low, -1)

    def probability(self, words: Tensor, states: Tensor) -> Tensor:
        """p~(word | state) of each position; (positions,)."""
        total = torch.zeros(states.shape, device=states.device)
        weight = torch.ones_like(total)
        for _ in range(self.order - 1):
            child, node = self.child(states, words), states.clamp(min=0)
            total += torch.where(child >= 0, weight * self.rows[child.clamp(min=0)], 0.0)
            weight = torch.where(states >= 0, weight * self.backoffs[node], weight)
            states = torch.where(states >= 0, self.suffixes[node].long(), states)
        return total + weight * self.base[words]


def predicted_words(table: BackoffTable) -> np.ndarray:
    """Which words the table predicts at all; (V,) bool.

    Not those of probability 0, nor those that the text of the n-grams never had: no n-gram holds them, and each is less
    probable than any word that some n-gram holds.
    """
    held = table.trie.words[table.vocab.size + 1 :]
    least = table.base[held].min(initial=np.inf) if len(held) else 0.0
    known = (table.base > 0) & (table.base >= least)
    known[held] = table.base[held] > 0
    return known


def history_masses(parts: SignedSplit) -> np.ndarray:
    """Z of each node that can be a history; -1 for one that is not whole or that the text never continues."""
    trie = parts.table.trie
    masses = np.full(trie.inner, -1.0)
    for length, shift in enumerate(slot_shifts(trie)[1:], start=1):
        histories = trie.level(length) if length == trie.order - 1 else trie.sentence_starts(length)
        bounds = trie.first[histories.start : histories.stop + 1] - shift
        minus, empirical = (
            np.diff(np.append(0.0, np.cumsum(values))[bounds]) for values in (parts.minus, parts.empirical)
        )
        masses[histories] = np.where(empirical > 0.5, np.maximum(minus, 0.0), -1.0)
    return masses


def shift_right(tensor: Tensor, fill: float) -> Tensor:
    """Each position gets its left neighbour's value; (batch, time)."""
    return nn.functional.pad(tensor, (1, 0), value=fill)[:, :-1]
