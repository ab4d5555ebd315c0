"""What the loss needs of a table: its arrays as tensors that move with the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lidstone.errors import InputError
from lidstone.loss.constant_tensors import ConstantTensors
from lidstone.loss.kernels.choice import kernel_name, kernels_for
from lidstone.loss.plan import Empirical, Facts, Plan, Table
from lidstone.loss.split import SignedSplit, signed_split, slot_shifts
from lidstone.ngram.counts import Counts
from lidstone.ngram.formats.checked_tensors import is_mapped
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.history import history_tokens


class Targets(ConstantTensors):
    """A table as tensors that move with `.to` and are never part of a checkpoint."""

    base: Tensor
    dense_minus: Tensor
    predicted: Tensor
    strengths: Tensor
    zs: Tensor
    first: Tensor
    words: Tensor
    suffixes: Tensor
    rows: Tensor
    backoffs: Tensor

    def __init__(self, table: BackoffTable, counts: Counts | None, empirical: Empirical) -> None:
        super().__init__()
        self.empirical: Empirical = empirical
        self.signature = table.signature
        parts = signed_split(table, counts) if empirical == "ngram" and counts is not None else None
        table = table if parts is None else parts.table
        if table.trie.size > torch.iinfo(torch.int32).max:
            raise InputError(
                f"the loss takes tables of at most {torch.iinfo(torch.int32).max:,} n-grams, not {table.trie.size:,}",
                hint="prune the table, or count with thresholds or a lower order",
            )
        self.order, self.vocab = table.order, table.vocab
        self.facts = Facts(self.order, empirical == "ngram", search_steps(table.trie))
        self._keep_table(table, with_top=parts is None)
        self._keep_split(table, parts)
        self.strengths, self._strengths = torch.zeros(2, device="cpu"), (0.0, 0.0)

    def _keep_table(self, table: BackoffTable, with_top: bool) -> None:
        trie, mapped = table.trie, with_top and stands_in_a_file(table)
        self._keep("first", trie.first, torch.int32, copy=not mapped)
        self._keep("words", trie.words, torch.int32, copy=not mapped)
        # in ngram form the rows of the top order are replaced by `plus`, so they are not kept
        self._keep(
            "suffixes", trie.suffixes if mapped else trie.suffixes[: trie.num_histories], torch.int32, copy=False
        )
        self._keep("rows", table.rows if with_top else table.rows[: trie.num_histories], torch.float32, copy=False)
        self._keep("backoffs", table.backoffs, torch.float32, copy=False)
        if not mapped:
            self._add_ends()
        self._keep("tokens", history_tokens(table.vocab), torch.int32)
        self._keep("predicted", predicted_words(table), torch.bool)

    def _add_ends(self) -> None:
        """Add the values of node -1, "no history", which the loops of the CPU do not read: this copies the tensors."""
        self.suffixes = nn.functional.pad(self.suffixes[: len(self.backoffs)], (0, 1), value=-1)
        self.rows, self.backoffs = (
            nn.functional.pad(tensor, (0, 1), value=value) for tensor, value in ((self.rows, 0.0), (self.backoffs, 1.0))
        )

    def _keep_split(self, table: BackoffTable, parts: SignedSplit | None) -> None:
        none = np.empty(0)
        unigram = parts is not None and self.order == 1  # then Z p+ and Z p- are dense
        sparse = parts is not None and not unigram
        self._keep("base", parts.plus if parts is not None and unigram else table.base, torch.float32)
        self._keep("dense_minus", parts.minus if parts is not None and unigram else none, torch.float32)
        self._keep("plus", parts.plus if parts is not None and sparse else none, torch.float32)
        self._keep("minus", parts.minus if parts is not None and sparse else none, torch.float32)
        masses = np.append(history_masses(parts), -1.0) if parts is not None and sparse else none
        self._keep("zs", masses, torch.float32)
        self._keep("levels", table.trie.levels[:-1] if sparse else none, torch.int64)
        self._keep("shifts", np.array(slot_shifts(table.trie)) if sparse else none, torch.int64)
        if unigram:  # the one history, node -1, is whole
            self.zs = self.dense_minus.sum()[None]

    def set_strengths(self, plus: float, minus: float) -> None:
        """Set gamma_plus, and gamma_minus with its sign, without waiting for the device."""
        if (plus, minus) != self._strengths:
            self._strengths = (plus, minus)
            self.strengths = torch.cat([torch.full((1,), value, device=self.device) for value in (plus, minus)])

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Follow the module to another device; the strengths too."""
        super()._apply(fn, recurse)
        plus, minus = self._strengths
        self._strengths = (math.nan, math.nan)
        self.set_strengths(plus, minus)
        return self

    def histories(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Node and slot shift of each history, (positions,); contexts (batch, time) hold the token before each."""
        found = kernels_for(contexts.device).plan(torch.zeros_like(contexts), contexts, self.table, self.facts)
        return found.states, found.shifts

    def add_sparse_rows(self, total: Tensor, states: Tensor, shifts: Tensor, scale: Tensor) -> None:
        """Add scale (positions,) times the sparse part of p~(.|state) to float32 numbers (positions, V), in place."""
        ones, none = torch.ones_like(scale), torch.zeros_like(scale)
        plan = Plan(states, shifts, ones, ones, ones, none, ones, ones)
        kernels_for(total.device).scatter(total, plan, self.table, self.facts, -scale)

    @property
    def table(self) -> Table:
        """The tensors, as the operators take them."""
        if len(self.backoffs) < len(self.first) and kernel_name(self.device) != "cpu":
            self._add_ends()
        return Table(*(getattr(self, name) for name in Table._fields))

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.base.device


def stands_in_a_file(table: BackoffTable) -> bool:
    """Whether the arrays of a table are parts of a mapped file that the loss can use as they are: plain float32."""
    plain = table.codes is None and table.trie.packed is None and table.trie.node_type == np.int32
    return plain and table.rows.dtype == table.backoffs.dtype == np.float32 and is_mapped(table.rows)


def search_steps(trie: Trie) -> int:
    """How many halvings find a word among the children of any node; single words have the most children."""
    return max(int(np.diff(trie.first[: trie.levels[1] + 1]).max(initial=0)), 1).bit_length()


def predicted_words(table: BackoffTable) -> np.ndarray:
    """Which words the table predicts at all; (V,) bool.

    Not those of probability 0, nor those that the text of the n-grams never had: no n-gram holds them, and each is less
    probable than any word that some n-gram holds. Where n-grams were dropped, that would be true of words of the text.
    """
    trie = table.trie
    if not holds_all_ngrams(table.signature):
        return table.base > 0
    held = trie.words[trie.level(2)] if table.order > 1 else trie.words[:0]  # longer n-grams end in no other words
    least = table.base[held].min(initial=np.inf) if len(held) else 0.0
    known = (table.base > 0) & (table.base >= least)
    known[held] = table.base[held] > 0
    return known


def holds_all_ngrams(signature: Mapping[str, Any]) -> bool:
    """Whether a table has every n-gram of its text: it was fitted to counts, without thresholds, and is not pruned."""
    if "parts" in signature:
        return all(map(holds_all_ngrams, signature["parts"]))
    return "counts" in signature and not any(signature.get("thresholds") or ()) and "pruned" not in signature


def history_masses(parts: SignedSplit) -> np.ndarray:
    """Z of each node that can be a history; -1 for one that is not whole or that the text never continues."""
    trie = parts.table.trie
    masses = np.full(trie.num_histories, -1.0)
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
