"""A table as a module of torch: on any device, without the host, in graphs that torch and ONNX export.

    log_probs, next_states = NGramModule(table)(states)      # (batch,) -> (batch, V), (batch, V)

One step of all hypotheses gives log p(w | state) of all words w and the states after them; where hypotheses are
reordered, so are their states. It is `table.next_probs` and `table.advance`, from the same trie:

    log p(w | h) = log backoff(h) + log p(w | h without its oldest word), unless the trie has h w

So the unigrams come first, with all backoffs, and the listed words of ever longer parts of the history replace them. A
history has any number of listed words; rows are as wide as the longest list of that length, and what is beyond its end
is written to a column that is cut off. On a CPU they are as wide as the step needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lidstone.text.history import history_after, recent

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable


class NGramModule(nn.Module):
    """The next words after the states of a table; `start` is the state of a sentence start, -1 that without a history.

    >>> from lidstone import Vocabulary, WittenBell, count
    >>> table = WittenBell().fit(count([[1, 2], [2, 1]], Vocabulary(size=3, eos=0), order=3))
    >>> log_probs, states = NGramModule(table)(torch.tensor([table.start(), -1]))
    >>> log_probs.exp().allclose(torch.tensor(table.next_probs([table.start(), -1])).float())
    True
    >>> states[0].tolist() == table.advance([table.start()] * 3, [0, 1, 2])[1].tolist()
    True
    """

    first: Tensor
    suffixes: Tensor
    backoffs: Tensor
    words: Tensor
    probs: Tensor
    after: Tensor

    def __init__(self, table: BackoffTable, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        trie = table.trie
        self.start, self.vocab_size, self.order = table.start(), table.vocab.size, table.order
        self.levels: list[int] = trie.levels.tolist()
        histories = np.arange(trie.num_histories)
        sizes = np.diff(trie.first[: trie.num_histories + 1]) if trie.num_histories else np.zeros(0, np.int64)
        self.widths = [int(sizes[trie.level(length)].max(initial=0)) for length in range(1, table.order)]
        with np.errstate(divide="ignore"):
            probs, backoffs = np.log(table.ngram_probs), np.log(table.backoffs[histories].astype(np.float64))
        # One history more, the last, stands for none: no word is listed after it and its backoff is 1.
        begin = trie.first[: trie.num_histories + 1] if trie.num_histories else np.zeros(1, np.int32)
        arrays = {
            "first": np.append(begin, begin[-1]),
            "suffixes": np.append(trie.suffixes[histories], -1),
            "words": trie.words,
            "after": _states_after(table),
        }
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)
        for name, values in (("probs", probs), ("backoffs", np.append(backoffs, 0.0))):
            self.register_buffer(name, torch.from_numpy(values).to(dtype), persistent=False)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Log p(w | state) (batch, V), and the states after each word (batch, V)."""
        parts, weight = self._parts(states)
        # the column beyond the vocabulary, that of `<s>`, takes what is beyond the ends of lists
        log_probs = weight[:, None] + self.probs[: self.vocab_size + 1]
        after = self.after[: self.vocab_size + 1].repeat(states.shape[0], 1)
        for (history, weight), width in zip(parts, self.widths, strict=True):
            begin, end = self.first[history].long(), self.first[history + 1].long()
            child = begin[:, None] + torch.arange(self._width(end - begin, width), device=states.device)
            is_listed = child < end[:, None]
            child = torch.where(is_listed, child, 0)
            word = torch.where(is_listed, self.words[child].long(), self.vocab_size)
            log_probs.scatter_(1, word, weight[:, None] + self.probs[child])
            after.scatter_(1, word, self.after[child])
        return log_probs[:, : self.vocab_size], after[:, : self.vocab_size]

    def _parts(self, states: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """The parts of each history, by length from 1 on, with the logs of the backoffs before them; those of all."""
        none = len(self.backoffs) - 1
        state, weight = states.long(), torch.zeros_like(states, dtype=self.backoffs.dtype)
        parts = []
        for length in range(self.order - 1, 0, -1):
            history = torch.where(state >= self.levels[length - 1], state, none)
            parts.append((history, weight))
            weight = weight + self.backoffs[history]
            state = torch.where(history < none, self.suffixes[history].long(), state)
        return parts[::-1], weight

    def _width(self, listed: Tensor, most: int) -> int:
        """How many words to read of each list: all, or on a CPU no more than this step's longest has."""
        if listed.device.type != "cpu" or torch.compiler.is_compiling() or not len(listed):
            return most
        return int(listed.max())


def _states_after(table: BackoffTable) -> NDArray[np.int32]:
    """The state after each node, as `query.state_of` finds it."""
    trie, histories = table.trie, table.trie.num_histories
    nodes = np.arange(trie.size, dtype=trie.node_type)
    state = np.where(nodes < histories, nodes, trie.suffixes)
    if not histories:
        return np.full(trie.size, -1, trie.node_type)
    is_idle = (np.diff(trie.first[: histories + 1]) == 0) & (table.backoffs == 1.0)
    for _ in range(table.order):
        state = np.where((state >= 0) & is_idle[state], trie.suffixes[state], state)
    return state.astype(trie.node_type)


class FollowedRows:
    """The states of the rows that `generate` extends by a word a step, whichever it keeps and in whatever order.

    What comes next depends on a row's last n-1 words, so a row follows any row of the step before with the same ones.
    Words are looked up for the prompt only. A boundary, such as eos, begins a sentence. On a CPU the table itself
    answers, which reads only the words that are listed; elsewhere an `NGramModule` on the device of the rows does.
    """

    def __init__(self, table: BackoffTable) -> None:
        self.table = table
        self.module: NGramModule | None = None
        self.boundaries = torch.from_numpy(np.asarray(table.vocab.boundaries[: table.vocab.size]))
        self.rows = self.states = self.after = torch.empty(0, 0, dtype=torch.long)

    def probs(self, input_ids: Tensor) -> Tensor:
        """p(w | row) of all words: (batch, V)."""
        device = input_ids.device
        states = self._followed(input_ids)
        if states is None:
            states = torch.from_numpy(self._read(input_ids)).to(device)
        self.rows, self.states = input_ids, states
        if device.type == "cpu":
            return torch.from_numpy(self.table.next_probs(states.numpy()))
        self.module = (self.module or NGramModule(self.table)).to(device)
        log_probs: Tensor
        log_probs, self.after = self.module(states)
        return log_probs.exp()

    def _followed(self, input_ids: Tensor) -> Tensor | None:
        """The states of rows that are those of the step before with one word more each; None if they are not."""
        length = self.rows.shape[1]
        if not len(self.rows) or input_ids.shape[1] != length + 1 or self.rows.device != input_ids.device:
            return None
        start = max(length - self.table.order + 1, 0)
        same = (input_ids[:, None, start:-1] == self.rows[None, :, start:]).all(-1)  # (rows now, rows before)
        if not bool(same.any(1).all()):
            return None
        before, word = same.int().argmax(1), input_ids[:, -1]
        if input_ids.device.type == "cpu":
            states = torch.from_numpy(self.table.advance(self.states[before].numpy(), word.numpy())[1])
        else:
            states = self.after[before, word]
        self.boundaries = self.boundaries.to(input_ids.device)
        return torch.where(self.boundaries[word], self.table.start(), states)

    def _read(self, input_ids: Tensor) -> NDArray[np.int32]:
        """The states of rows of words. The first of a row begins a sentence, whether eos stands before it or not."""
        vocab, order = self.table.vocab, self.table.order
        rows = input_ids[:, -order:].tolist()
        return self.table.states(history_after([vocab.bos, *recent(row, order)], vocab, order) for row in rows)
