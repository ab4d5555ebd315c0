"""The compiled loops of the CPU: the history of each position, dot products with smoothed rows, and their scatter.

Dot and scatter walk from each position's history down its suffix links: rows of the history, then backoff times the
rows of the order below, and so on; what is left at the end is the weight of the dense base. In two dense lines,

    smoothed = table.prob(histories)                                # (positions, V), never built
    dot, gradient = (smoothed * z).sum(-1), gradient - scale[:, None] * smoothed
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lidstone.loss.checks import check_ids
from lidstone.loss.plan import Facts, Plan, Table


class Dots(NamedTuple):
    """Per position: <sparse rows, z>, <Z p-, z>, and the weight of the base that the rows rest on."""

    rows: Tensor
    minus: Tensor
    base_weight: Tensor


def plan(labels: Tensor, contexts: Tensor, table: Table, facts: Facts) -> Plan:
    """Coefficients of all positions; labels and contexts (batch, time) hold the token at each position and before it.

    A negative context is unknown and cuts the history; a boundary (see `text/history.py`) is the sentence start.
    """
    check_ids(contexts, "histories", len(table.tokens) - 2)
    found = empty_plan(labels)
    ids = _arrays(labels.reshape(-1), contexts.reshape(-1), table.tokens, table.base, table.predicted)
    ngram = _arrays(table.zs, table.shifts, table.strengths)
    time = np.int64(contexts.shape[-1])
    _in_threads(_plan, labels.numel(), facts, table, (*ids, *ngram, time), _arrays(*found))
    return found


def empty_plan(labels: Tensor) -> Plan:
    """Room for the coefficients of all positions."""
    nodes = [labels.new_empty(labels.numel(), dtype=torch.int64) for _ in range(2)]
    return Plan(*nodes, *(labels.new_empty(labels.numel(), dtype=torch.float32) for _ in range(6)))


def dot(logits: Tensor, plan: Plan, table: Table, facts: Facts) -> Dots:
    """The sparse dot products of logits (positions, V), float32."""
    found = Dots(*(torch.zeros(len(logits)) for _ in range(3)))
    _in_threads(_dot, len(logits), facts, table, *_arrays(logits, plan.states, plan.shifts, *found))
    return found


def scatter(gradient: Tensor, plan: Plan, table: Table, facts: Facts, scale: Tensor) -> None:
    """Subtract scale * (plus * rows + minus * Z p-) from the gradient (positions, V), in place; not the base."""
    scales = scale * plan.plus, scale * plan.minus
    _in_threads(_scatter, len(gradient), facts, table, *_arrays(gradient, plan.states, plan.shifts, *scales))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lidstone")


def _start_again() -> None:
    """After a fork none of the parent's threads exist in the child.

    Torch would wait for its own, so the child goes on with one, as torch's data loaders let their workers do.
    """
    if _pool.cache_info().currsize:
        _pool.cache_clear()
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)


def _in_threads(kernel: Callable[..., None], positions: int, facts: Facts, table: Table, *batch: Any) -> None:
    """Run a kernel on the positions, shared among as many threads as torch uses."""
    t = table
    first, words, *rest = _arrays(t.first, t.words, t.suffixes, t.rows, t.backoffs, t.plus, t.minus)
    arrays = (first, words.view(np.uint32), *rest)
    jobs = max(1, min(torch.get_num_threads(), positions))
    if jobs == 1:
        return kernel(0, positions, facts, arrays, *batch)
    cuts = [positions * job // jobs for job in range(jobs + 1)]
    tasks = [_pool(jobs).submit(kernel, cuts[job], cuts[job + 1], facts, arrays, *batch) for job in range(jobs)]
    for task in tasks:
        task.result()


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(tensor.detach().numpy() for tensor in tensors)


@njit(cache=True, nogil=True)
def _plan(start, stop, facts, table, batch, out):  # type: ignore[no-untyped-def]
    order, ngram = facts.order, facts.ngram
    first, words, suffixes, rows, backoffs = table[:5]
    labels, contexts, tokens, base, predicted, zs, shifts, strengths, time = batch
    out_states, out_shifts, out_mass, out_label, out_plus, out_minus, out_z, out_smoothed = out
    one, zero = np.float32(1), np.float32(0)
    for t in range(start, stop):
        state, length = _history(t, time, order, first, words, contexts, tokens)
        smoothed, whole, shift = zero, True, -1
        if ngram:
            z = zs[state]
            whole = z >= 0
            if whole and length > 0:
                shift = shifts[length]
            z = z if whole else zero
        else:
            smoothed = _probability(state, labels[t], first, words, suffixes, rows, backoffs, base)
            z = one - smoothed
        plus, minus = (strengths[0], strengths[1]) if whole and predicted[max(labels[t], 0)] else (zero, zero)
        label = one - plus * smoothed + (zero if ngram else minus * z)
        out_states[t], out_shifts[t], out_z[t], out_smoothed[t] = state, shift, z, smoothed
        out_mass[t], out_label[t], out_plus[t], out_minus[t] = one + (plus + minus) * z, label, plus, minus


@njit(cache=True, nogil=True)
def _history(t, time, order, first, words, contexts, tokens):  # type: ignore[no-untyped-def]
    """The node of the longest known suffix of the history, and its length."""
    state, known = -1, 0
    for length in range(1, min(order - 1, t % time + 1) + 1):
        node = -1
        for i in range(t - length + 1, t + 1):
            token = tokens[contexts[i]] if contexts[i] >= 0 else -1
            node = token if i == t - length + 1 else _child(node, token, first, words)
            if node < 0:
                break
        if node < 0:  # a longer history cannot be known
            break
        state, known = node, length
    return state, known


@njit(cache=True, nogil=True)
def _child(node, word, first, words):  # type: ignore[no-untyped-def]
    """The child of a node with this word, or -1."""
    if word < 0:
        return -1
    low, high = np.int64(first[node]), np.int64(first[node + 1])
    end = high
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and words[low] == word else -1


@njit(cache=True, nogil=True)
def _probability(state, word, first, words, suffixes, rows, backoffs, base):  # type: ignore[no-untyped-def]
    """p~(word | state), in the order of operations of the tensor code."""
    word = max(word, 0)
    total, weight = np.float32(0), np.float32(1)
    while state >= 0:
        child = _child(state, word, first, words)
        if child >= 0:
            total += weight * rows[child]
        weight *= backoffs[state]
        state = suffixes[state]
    return total + weight * base[word]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(start, stop, facts, table, z, states, shifts, out, out_minus, out_base):  # type: ignore[no-untyped-def]
    first, words, suffixes, rows, backoffs, plus, minus = table
    for t in range(start, stop):
        state, weight = states[t], 1.0
        total, taken = 0.0, 0.0
        if facts.ngram and state >= 0:
            if shifts[t] < 0:
                continue
            low, high = first[state], first[state + 1]
            slots = slice(low - shifts[t], high - shifts[t])
            total, taken = _two_dots(z[t], words[low:high], plus[slots], minus[slots])
            weight, state = backoffs[state], suffixes[state]
        while state >= 0:
            low, high = first[state], first[state + 1]
            total += weight * _one_dot(z[t], words[low:high], rows[low:high])
            weight, state = weight * backoffs[state], suffixes[state]
        out[t], out_minus[t], out_base[t] = total, taken, weight


# Words come as unsigned integers: numba looks at the sign of others, to count from the end, at every single access.


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _one_dot(z, words, values):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for i in range(len(words)):
        total += values[i] * z[words[i]]
    return total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _two_dots(z, words, plus, minus):  # type: ignore[no-untyped-def]
    given, taken = np.float32(0), np.float32(0)
    for i in range(len(words)):
        logit = z[words[i]]
        given += plus[i] * logit
        taken += minus[i] * logit
    return given, taken


@njit(cache=True, nogil=True)
def _scatter(start, stop, facts, table, gradient, states, shifts, scale, scale_minus):  # type: ignore[no-untyped-def]
    first, words, suffixes, rows, backoffs, plus, minus = table
    for t in range(start, stop):
        state, weight = states[t], scale[t]
        if facts.ngram and state >= 0:
            if shifts[t] < 0:
                continue
            low, high = first[state], first[state + 1]
            slots = slice(low - shifts[t], high - shifts[t])
            _subtract_two(gradient[t], words[low:high], weight, plus[slots], scale_minus[t], minus[slots])
            weight, state = weight * backoffs[state], suffixes[state]
        while state >= 0 and weight != 0:
            low, high = first[state], first[state + 1]
            _subtract(gradient[t], words[low:high], weight, rows[low:high])
            weight, state = weight * backoffs[state], suffixes[state]


@njit(cache=True, nogil=True)
def _subtract(gradient, words, weight, values):  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        gradient[words[i]] -= weight * values[i]


@njit(cache=True, nogil=True)
def _subtract_two(gradient, words, weight, plus, weight_minus, minus):  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        gradient[words[i]] -= weight * plus[i] + weight_minus * minus[i]
