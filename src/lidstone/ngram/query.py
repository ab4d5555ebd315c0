"""The compiled walks through a table: one word after one history, whole streams, whole distributions.

One walk serves all of them (`_match`): from the node of the history along its suffix links to the longest history that
has the word; those that lack it multiply p by their backoffs. Streams and states then read the full p(w|h) of that
n-gram, as KenLM does; where only rows are stored, `full_prob` adds them up.

A state is the trie node of the longest part of the history that can still matter, -1 where nothing does. Two hypotheses
with equal states have equal futures, so a beam search can merge them. One step costs a few look-ups whatever the length
of the history, where `BackoffTable.logprob` reads the whole history again.

All answers are float64, from the table's own arrays: plain, packed, quantised or mapped from a file (`access.py`). Text
is scored with KenLM's float32 numbers by `scorer/`, whose docstring says why that is another walk.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.jit import kernel, pasted
from lidstone.ngram.access import Values, at, find_child, full_prob, size_of, suffix_of, with_row
from lidstone.ngram.trie import Trie
from lidstone.parallel import cores

EMPTY = -1
"""The state without a history."""
PARALLEL_FROM = 200_000
HISTORIES = 1 << 16
"""Histories a pass of numpy."""


def score_stream(trie: Trie, values: Any, backoffs: Any, stream: NDArray[np.int32]) -> NDArray[np.float64]:
    """Log-probabilities of all tokens of a stream but its `<s>`; long streams are shared among threads.

    `values` are full probabilities of all n-grams, or the `Values` that they are computed from.
    """
    arrays = (*trie.links, values, backoffs, trie.vocab_size)
    if len(stream) < PARALLEL_FROM:
        return _score(*arrays, stream)[0]
    starts, jobs = np.flatnonzero(stream == trie.vocab_size), min(cores(), 8)
    cuts = [*starts[np.linspace(0, len(starts), jobs, endpoint=False).astype(int)], len(stream)]
    with ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(lambda i: _score(*arrays, stream[cuts[i] : cuts[i + 1]])[0], range(jobs))
        return np.concatenate(list(parts))


def matches(
    trie: Trie, values: Any, backoffs: Any, stream: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Log-probabilities of all tokens of a stream but its `<s>`, and the length of the n-gram that each matched."""
    logprobs, nodes = _score(*trie.links, values, backoffs, trie.vocab_size, stream)
    return logprobs, np.searchsorted(trie.levels, nodes, "right").astype(np.int32)


def _score(*arrays: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """`_score_all` into new arrays."""
    logprobs, nodes = np.empty(len(arrays[-1])), np.empty(len(arrays[-1]), np.int64)
    end = _score_all(*arrays, logprobs, nodes)
    return logprobs[:end], nodes[:end]


@pasted  # a call would count references to all arrays
def _match(first, words, suffixes, values, backoffs, state, word):  # type: ignore[no-untyped-def]
    """p(word | state), the longest known n-gram that ends in the word, and its history."""
    weight, node, history = 1.0, np.int64(-1), np.int64(state)
    while node < 0 and 0 <= history < size_of(backoffs):
        node = np.int64(find_child(first, words, history, word))
        if node < 0:
            weight *= at(backoffs, history)
            history = np.int64(at(suffixes, history))
    if node < 0:
        node, history = np.int64(word), np.int64(-1)
    return weight * full_prob(values, first, words, suffixes, backoffs, history, node), node, history


@kernel
def _step(first, words, suffixes, values, backoffs, state, word):  # type: ignore[no-untyped-def]
    """Ln p(word | state), and the state after the word."""
    probability, node, history = _match(first, words, suffixes, values, backoffs, state, word)
    logprob = np.log(probability) if probability > 0 else -np.inf
    return logprob, state_of(first, words, suffixes, backoffs, history, node)


@kernel
def state_of(first, words, suffixes, backoffs, history, node):  # type: ignore[no-untyped-def]
    """The longest suffix of a node, which follows `history`, that can be a history and makes a difference."""
    state = np.int64(node)
    if state >= size_of(backoffs):
        state = suffix_of(first, words, suffixes, history, state)
    while state >= 0 and at(first, state) == at(first, state + 1) and at(backoffs, state) == 1.0:
        state = np.int64(at(suffixes, state))  # no word is listed after it, and its weight is 1
    return state


@kernel
def _score_all(first, words, suffixes, values, backoffs, bos, stream, logprobs, nodes):  # type: ignore[no-untyped-def]
    """The log-probability of each token, and the node of the longest n-gram that ends with it; how many there are."""
    end, state = 0, np.int64(EMPTY)
    for word in stream:
        if word == bos:
            state = np.int64(bos)
            continue
        probability, node, history = _match(first, words, suffixes, values, backoffs, state, word)
        logprobs[end] = np.log(probability) if probability > 0 else -np.inf
        nodes[end] = node
        end += 1
        # not the shortest state that `state_of` finds: looking for it takes longer than it saves in a stream
        state = node if node < size_of(backoffs) else suffix_of(first, words, suffixes, history, node)
    return end


@kernel
def one_step(first, words, suffixes, values, backoffs, state, word):  # type: ignore[no-untyped-def]
    """Ln p(word | state), and the state after the word."""
    return _step(first, words, suffixes, values, backoffs, state, word)


@kernel
def many_steps(first, words, suffixes, values, backoffs, states, targets, logprobs, after):  # type: ignore[no-untyped-def]
    """`one_step` for each pair of a state and a word."""
    for i in range(len(states)):
        logprobs[i], after[i] = _step(first, words, suffixes, values, backoffs, states[i], targets[i])


@kernel
def word_probs(first, words, suffixes, rows, backoffs, base, states, targets):  # type: ignore[no-untyped-def]
    """p(target | state) for each pair."""
    values = Values(rows, base)
    out = np.empty(len(states))
    for i in range(len(states)):
        out[i] = _match(first, words, suffixes, values, backoffs, states[i], targets[i])[0]
    return out


@kernel
def fill_rows(first, words, suffixes, rows, backoffs, base, states, out):  # type: ignore[no-untyped-def]
    """out[i] = the whole distribution after states[i], by the equation of `table.py`.

    p_k(w|h) = rows_k[h, w] + backoff_k[h] * p_{k-1}(w | h without its oldest word): the base times all backoffs, then
    each order's rows, the lowest first.
    """
    chain, weights = np.empty(8, np.int64), np.empty(9)
    for i in range(len(states)):
        depth, state = 0, np.int64(states[i])
        weights[0] = 1.0
        while 0 <= state < size_of(backoffs):
            chain[depth] = state
            weights[depth + 1] = weights[depth] * at(backoffs, state)
            state = np.int64(at(suffixes, state))
            depth += 1
        for word in range(len(base)):
            out[i, word] = weights[depth] * base[word]
        for level in range(depth - 1, -1, -1):
            for child in range(at(first, chain[level]), at(first, chain[level] + 1)):
                word = at(words, child)
                out[i, word] = max(with_row(rows, child, weights[level], out[i, word]), 0.0)  # rounding may fall below


def ngram_probs(
    trie: Trie, rows: NDArray[Any], backoffs: NDArray[Any], base: NDArray[np.float64]
) -> NDArray[np.float64]:
    """p(w|h) of every n-gram hw, one per node, lower orders first; zero for `<s>`.

    If h w is a node, so is the same without its oldest word: the suffix link, whose p is known by then.
    """
    first, probs = trie.first, np.empty(trie.size)
    probs[: len(base)], probs[len(base)] = base, 0.0
    for begin, end in pairwise(trie.levels[:-1].tolist()):
        for start in range(begin, end, HISTORIES):
            stop = min(start + HISTORIES, end)
            nodes = slice(int(first[start]), int(first[stop]))
            weights = np.repeat(backoffs[start:stop], np.diff(first[start : stop + 1]))
            probs[nodes] = np.maximum(rows[nodes] + weights * probs[trie.suffixes[nodes]], 0.0)
    return probs


def rows_of(trie: Trie, probs: NDArray[np.float64], backoffs: NDArray[np.float64]) -> NDArray[np.float64]:
    """rows[hw] = p(w | h) - backoffs[h] * p(w | h without its oldest word): the inverse of `ngram_probs`."""
    rows = np.zeros(trie.size)
    _subtract_lower(trie.first, trie.suffixes, probs, backoffs, rows)
    return rows


@kernel
def _subtract_lower(first, suffixes, probs, backoffs, rows):  # type: ignore[no-untyped-def]
    for history in range(len(backoffs)):
        for node in range(first[history], first[history + 1]):
            rows[node] = probs[node] - backoffs[history] * probs[suffixes[node]]
