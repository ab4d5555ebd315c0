"""The compiled kernels behind `BackoffTable`.

One word after one history: walk from the history's node down its suffix links, adding up rows. Whole streams: with the
full p(w|h) of every n-gram stored, only the longest matching n-gram has to be found, as in KenLM.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.ngram.compact.access import Values, at, chain_for, find_child, full_prob, size_of, suffix_of, with_row
from lidstone.ngram.trie import Trie

PARALLEL_FROM = 200_000


def score_stream(trie: Trie, values: Any, backoffs: Any, stream: NDArray[np.int32]) -> NDArray[np.float64]:
    """Log-probabilities of all tokens of a stream but its `<s>`; long streams are shared among threads.

    `values` are full probabilities of all n-grams, or the `Values` that they are computed from.
    """
    arrays = (*trie.links, values, backoffs)
    if len(stream) < PARALLEL_FROM:
        return _score(*arrays, trie.vocab_size, stream)[0]
    starts, jobs = np.flatnonzero(stream == trie.vocab_size), min(os.cpu_count() or 1, 8)
    cuts = [*starts[np.linspace(0, len(starts), jobs, endpoint=False).astype(int)], len(stream)]
    with ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(lambda i: _score(*arrays, trie.vocab_size, stream[cuts[i] : cuts[i + 1]])[0], range(jobs))
        return np.concatenate(list(parts))


def matches(
    trie: Trie, values: Any, backoffs: Any, stream: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Log-probabilities of all tokens of a stream but its `<s>`, and the length of the n-gram that each matched."""
    logprobs, nodes = _score(*trie.links, values, backoffs, trie.vocab_size, stream)
    return logprobs, np.searchsorted(trie.levels, nodes, "right").astype(np.int32)


@njit(cache=True, nogil=True)
def _score(first, words, suffixes, values, backoffs, bos, stream):  # type: ignore[no-untyped-def]
    """The log-probability of each token, and the node of the longest n-gram that ends with it."""
    logprobs, nodes, chain = np.empty(len(stream)), np.empty(len(stream), np.int64), chain_for(values)
    end, state = 0, np.int64(-1)
    for word in stream:
        if word == bos:
            state = np.int64(bos)
            continue
        weight, longest = 1.0, np.int64(-1)
        while longest < 0 and 0 <= state < size_of(backoffs):
            longest = np.int64(find_child(first, words, state, word))
            if longest < 0:
                weight *= at(backoffs, state)
                state = np.int64(at(suffixes, state))
        if longest < 0:
            longest, state = np.int64(word), np.int64(-1)
        probability = weight * full_prob(values, first, words, suffixes, backoffs, state, longest, chain)
        logprobs[end] = np.log(probability) if probability > 0 else -np.inf
        nodes[end] = longest
        end += 1
        state = longest if longest < size_of(backoffs) else suffix_of(first, words, suffixes, state, longest)
    return logprobs[:end].copy(), nodes[:end].copy()


@njit(cache=True, nogil=True)
def ngram_probs(first, suffixes, rows, backoffs, base):  # type: ignore[no-untyped-def]
    """p(w|h) of every n-gram hw, one per node, lower orders first; zero for `<s>`.

    If h w is a node, so is the same without its oldest word: the suffix link, whose p is known by then.
    """
    probs = np.empty(len(rows))
    probs[: len(base)] = base
    probs[len(base)] = 0.0
    for history in range(len(backoffs)):
        for node in range(first[history], first[history + 1]):
            probs[node] = max(rows[node] + backoffs[history] * probs[suffixes[node]], 0.0)
    return probs


@njit(cache=True, nogil=True)
def word_probs(first, words, suffixes, rows, backoffs, base, states, targets):  # type: ignore[no-untyped-def]
    """p(target | state) for each pair.

    The longest history that has the word gives p; those above it multiply it by their backoffs.
    """
    values = Values(rows, base)
    out, chain = np.empty(len(states)), chain_for(values)
    for i in range(len(states)):
        weight, state, child = 1.0, np.int64(states[i]), np.int64(-1)
        while child < 0 and 0 <= state < size_of(backoffs):
            child = np.int64(find_child(first, words, state, targets[i]))
            if child < 0:
                weight *= at(backoffs, state)
                state = np.int64(at(suffixes, state))
        if child < 0:
            child, state = np.int64(targets[i]), np.int64(-1)
        out[i] = weight * full_prob(values, first, words, suffixes, backoffs, state, child, chain)
    return out


@njit(cache=True, nogil=True)
def fill_rows(first, words, suffixes, rows, backoffs, base, states, out):  # type: ignore[no-untyped-def]
    """out[i] = the whole distribution after states[i]: the base, then each order's rows, the lowest first."""
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
                out[i, word] = with_row(rows, child, weights[level], out[i, word])
