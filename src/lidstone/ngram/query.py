"""The compiled kernels behind `BackoffTable`: walk from a history's node down its suffix links.

If a history has a child for a word, the suffix of the history has one too, and it is the child's own suffix link. So
one search per order fails at most until one succeeds, and from there on all is following links.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.ngram.trie import find_child

PARALLEL_FROM = 200_000


def score_stream(arrays: tuple[NDArray, ...], stream: NDArray[np.int32]) -> NDArray[np.float64]:
    """Log-probabilities of all tokens of a stream but its `<s>`; long streams are shared among threads."""
    starts = np.flatnonzero(stream == len(arrays[-1]))
    jobs = min(os.cpu_count() or 1, 8) if len(stream) >= PARALLEL_FROM else 1
    cuts = [*starts[np.linspace(0, len(starts), jobs, endpoint=False).astype(int)], len(stream)] if len(starts) else []
    with ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(lambda i: _score(*arrays, stream[cuts[i] : cuts[i + 1]]), range(len(cuts) - 1))
        return np.concatenate([np.empty(0), *parts])


@njit(cache=True, nogil=True)
def _score(first, words, suffixes, rows, backoffs, base, stream):  # type: ignore[no-untyped-def]
    bos, inner = len(base), len(backoffs)
    logprobs = np.empty(len(stream))
    end, state = 0, -1
    for word in stream:
        if word == bos:
            state = bos
            continue
        probability, child = _word_prob(first, words, suffixes, rows, backoffs, base, state, word)
        logprobs[end] = np.log(probability) if probability > 0 else -np.inf
        end += 1
        state = child if child < inner else suffixes[child]
    return logprobs[:end].copy()


@njit(cache=True, nogil=True)
def _word_prob(first, words, suffixes, rows, backoffs, base, state, word):  # type: ignore[no-untyped-def]
    """p(word | state), and the node of the longest n-gram that ends here."""
    probability, weight = 0.0, 1.0
    child = longest = np.int64(-1)
    while state >= 0 and state < len(backoffs):
        child = suffixes[child] if child >= 0 else find_child(first, words, state, word)
        if child >= 0:
            probability += weight * rows[child]
            if longest < 0:
                longest = child
        weight *= backoffs[state]
        state = suffixes[state]
    return probability + weight * base[word], longest if longest >= 0 else np.int64(word)


@njit(cache=True, nogil=True)
def word_probs(first, words, suffixes, rows, backoffs, base, states, targets):  # type: ignore[no-untyped-def]
    """p(target | state) for each pair."""
    out = np.empty(len(states))
    for i in range(len(states)):
        out[i] = _word_prob(first, words, suffixes, rows, backoffs, base, states[i], targets[i])[0]
    return out


@njit(cache=True, nogil=True)
def fill_rows(first, words, suffixes, rows, backoffs, base, states, out):  # type: ignore[no-untyped-def]
    """out[i] = the whole distribution after states[i]."""
    for i in range(len(states)):
        weight, state = 1.0, states[i]
        while state >= 0:
            weight *= backoffs[state]
            state = suffixes[state]
        for word in range(len(base)):
            out[i, word] = weight * base[word]
        weight, state = 1.0, states[i]
        while state >= 0:
            for child in range(first[state], first[state + 1]):
                out[i, words[child]] += weight * rows[child]
            weight *= backoffs[state]
            state = suffixes[state]
