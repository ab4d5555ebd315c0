"""Scoring word by word: a history as one number.

A state is the trie node of the longest part of the history that can still matter, -1 where nothing does. Two
hypotheses with equal states have equal futures, so a beam search can merge them. One step costs a few look-ups
whatever the length of the history, where `BackoffTable.logprob` reads the whole history again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from lidstone.errors import InputError
from lidstone.ngram import query
from lidstone.ngram.compact.access import at, chain_for, find_child, full_prob, size_of, suffix_of
from lidstone.text.history import recent

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable

EMPTY = -1
"""The state without a history."""

States = NDArray[np.int32]
History = Sequence[int]


def start(table: BackoffTable) -> int:
    """The state at the start of a sentence: the history is `<s>`."""
    trie = table.trie
    return int(_minimal(*trie.links, table.stored_backoffs, EMPTY, trie.vocab_size))


@overload
def advance(table: BackoffTable, states: int, words: int) -> tuple[float, int]: ...
@overload
def advance(table: BackoffTable, states: ArrayLike, words: ArrayLike) -> tuple[NDArray[np.float64], States]: ...


def advance(table: BackoffTable, states: Any, words: Any) -> tuple[Any, Any]:
    """Natural log of p(word | state) and the state after the word, for one pair or for arrays that broadcast.

    A word that cannot be predicted has -inf.
    """
    arrays, inner = table.scored_arrays
    single = type(states) is int and type(words) is int  # one hypothesis: no arrays
    if single and EMPTY <= states < inner and 0 <= words < table.vocab.size:
        return _one_step(*arrays, states, words)
    ids, checked = table.vocab.check_ids(words), check_states(table, states)
    try:
        both = np.broadcast(checked, ids)
    except ValueError as error:
        raise InputError(
            f"states of shape {checked.shape} and words of shape {ids.shape} do not fit together",
            hint="give one word per state, or shapes that broadcast",
        ) from error
    before, after = (np.broadcast_to(array, both.shape).ravel() for array in (checked, ids))
    logprobs, next_states = np.empty(both.size), np.empty(both.size, table.trie.node_type)
    _steps(*arrays, before, after, logprobs, next_states)
    if not both.shape:
        return float(logprobs[0]), int(next_states[0])
    return logprobs.reshape(both.shape), next_states.reshape(both.shape)


def next_probs(table: BackoffTable, states: ArrayLike) -> NDArray[np.float64]:
    """The whole distribution after each state: the shape of `states`, then V."""
    checked = check_states(table, states)
    out = np.empty((checked.size, table.vocab.size))
    query.fill_rows(*table.stored_arrays, checked.ravel(), out)
    return out.reshape(*checked.shape, table.vocab.size)


def find(table: BackoffTable, history: History) -> int:
    """The node of the longest known suffix of a history; words before the last `<s>` make no difference."""
    vocab = table.vocab
    wrong = next((word for word in history if not 0 <= int(word) <= vocab.size), None)
    if wrong is not None:
        raise InputError(
            f"id {wrong} in a history is outside the vocabulary of {vocab.size} ids",
            hint="the sentence start is vocab.bos",
        )
    seen = list(recent(history, table.order))
    if vocab.bos in seen:
        seen = seen[len(seen) - 1 - seen[::-1].index(vocab.bos) :]
    return next((node for i in range(len(seen)) if (node := table.trie.find(seen[i:])) >= 0), EMPTY)


def sample(table: BackoffTable, generator: np.random.Generator, history: History | None, limit: int) -> list[int]:
    """Draw words until eos, which is left out, or up to a limit; from the start of a sentence, or after a history."""
    context = [table.vocab.bos] if history is None else list(history)
    sentence: list[int] = []
    while len(sentence) < limit:
        probs = table.prob([context])[0].clip(min=0)
        word = int(generator.choice(table.vocab.size, p=probs / probs.sum()))
        if word == table.vocab.eos:
            break
        sentence.append(word)
        context = [*context, word][-table.order :]
    return sentence


def check_states(table: BackoffTable, states: ArrayLike) -> States:
    """The states as an array, if all are nodes of this table that can be histories; else say which is not."""
    array = np.asarray(states)
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"states must be whole numbers, not {array.dtype}", hint="use what start and advance gave")
    limit = table.trie.num_histories  # histories are the nodes below this one; a unigram model has none
    wrong = (array < EMPTY) | (array >= limit)
    if wrong.any():
        raise InputError(
            f"{array[wrong].flat[0]} is not a state of this table, whose states are {EMPTY} to {limit - 1}",
            hint="use the states that start and advance of this very table gave",
        )
    return array.astype(table.trie.node_type, copy=False)


@njit(cache=True, nogil=True)
def _minimal(first, words, suffixes, backoffs, history, node):  # type: ignore[no-untyped-def]
    """The longest suffix of a node, which follows `history`, that can be a history and makes a difference."""
    state = np.int64(node)
    if state >= size_of(backoffs):
        state = suffix_of(first, words, suffixes, history, state)
    while state >= 0 and at(first, state) == at(first, state + 1) and at(backoffs, state) == 1.0:
        state = np.int64(at(suffixes, state))  # no word is listed after it, and its weight is 1
    return state


@njit(cache=True, nogil=True)
def _step(first, words, suffixes, values, backoffs, state, word, chain):  # type: ignore[no-untyped-def]
    """The longest n-gram that ends in the word gives p; each history that lacks the word multiplies by its weight."""
    weight, longest, history = 1.0, np.int64(-1), np.int64(state)
    while longest < 0 and history >= 0:
        longest = np.int64(find_child(first, words, history, word))
        if longest < 0:
            weight *= at(backoffs, history)
            history = np.int64(at(suffixes, history))
    if longest < 0:
        longest = np.int64(word)
    probability = weight * full_prob(values, first, words, suffixes, backoffs, history, longest, chain)
    logprob = np.log(probability) if probability > 0 else -np.inf
    return logprob, _minimal(first, words, suffixes, backoffs, history, longest)


@njit(cache=True, nogil=True)
def _one_step(first, words, suffixes, values, backoffs, state, word):  # type: ignore[no-untyped-def]
    return _step(first, words, suffixes, values, backoffs, state, word, chain_for(values))


@njit(cache=True, nogil=True)
def _steps(first, words, suffixes, values, backoffs, states, targets, logprobs, after):  # type: ignore[no-untyped-def]
    chain = chain_for(values)
    for i in range(len(states)):
        found = _step(first, words, suffixes, values, backoffs, states[i], targets[i], chain)
        logprobs[i], after[i] = found
