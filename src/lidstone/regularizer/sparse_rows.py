"""Dot products of logits with smoothed rows, and the scatter of those rows into a gradient.

Both walk from each position's history down its suffix links: rows of the history, then backoff times the rows of the
order below, and so on; what is left at the end is the weight of the dense base. In two dense lines,

    smoothed = table.prob(histories)                                # (positions, V), never built
    dot, gradient = (smoothed * z).sum(-1), gradient - scale[:, None] * smoothed

On a CPU compiled kernels do it (a gather and a scatter of the n-grams that exist); elsewhere the same in tensor code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lidstone.regularizer.targets import Plan, Targets


class Dots(NamedTuple):
    """Per position: <sparse rows, z>, <Z p-, z>, and the weight of the base that the rows rest on."""

    rows: Tensor
    minus: Tensor
    base_weight: Tensor


def dot(logits: Tensor, plan: Plan, targets: Targets) -> Dots:
    """The sparse dot products of logits (positions, V), float32."""
    if logits.device.type != "cpu":
        return dot_tensors(logits, plan, targets)
    outputs = [torch.zeros(len(logits)) for _ in range(3)]
    _in_threads(_dot, logits, plan, targets, outputs)
    return Dots(*outputs)


def scatter(gradient: Tensor, plan: Plan, targets: Targets, scale: Tensor) -> None:
    """Subtract scale * (plus * rows + minus * Z p-) from the gradient (positions, V), in place; not the base."""
    if gradient.device.type != "cpu":
        return scatter_tensors(gradient, plan, targets, scale)
    _in_threads(_scatter, gradient, plan, targets, [scale * plan.plus, scale * plan.minus])


def dot_tensors(logits: Tensor, plan: Plan, targets: Targets) -> Dots:
    """`dot` in tensor code, for any device."""
    rows, minus = torch.zeros_like(plan.mass), torch.zeros_like(plan.mass)
    for positions, words, plus_values, minus_values in _entries(plan, targets):
        z = logits[positions, words]
        rows.index_add_(0, positions, plus_values * z)
        if minus_values is not None:
            minus.index_add_(0, positions, minus_values * z)
    return Dots(rows, minus, _base_weights(plan, targets))


def scatter_tensors(gradient: Tensor, plan: Plan, targets: Targets, scale: Tensor) -> None:
    """`scatter` in tensor code, for any device."""
    for positions, words, plus_values, minus_values in _entries(plan, targets):
        values = plan.plus[positions] * plus_values
        if minus_values is not None:
            values = values + plan.minus[positions] * minus_values
        gradient.index_put_((positions, words), -scale[positions] * values, accumulate=True)


def _entries(plan: Plan, targets: Targets) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
    """The n-grams below every position's history, order by order: position, word, plus value, minus value."""
    ngram = targets.empirical == "ngram"
    for step, (states, weight) in enumerate(_chain(plan, targets)):
        used = (states >= 0) & (plan.shifts >= 0) if ngram else states >= 0
        positions, children = _expand(targets.first, states.clamp(min=0), used)
        words = targets.words[children].long()
        if ngram and step == 0:
            slots = children - plan.shifts[positions]
            yield positions, words, targets.plus[slots], targets.minus[slots]
        else:
            yield positions, words, weight[positions] * targets.rows[children], None


def _chain(plan: Plan, targets: Targets) -> Iterator[tuple[Tensor, Tensor]]:
    """Each position's history and its weight, then those of the order below, and so on."""
    states, weight = plan.states, torch.ones_like(plan.mass)
    for _ in range(targets.order - 1):
        yield states, weight
        node = states.clamp(min=0)
        weight = torch.where(states >= 0, weight * targets.backoffs[node], weight)
        states = torch.where(states >= 0, targets.suffixes[node].long(), states)


def _base_weights(plan: Plan, targets: Targets) -> Tensor:
    weight = torch.ones_like(plan.mass)
    for states, _ in _chain(plan, targets):
        weight = torch.where(states >= 0, weight * targets.backoffs[states.clamp(min=0)], weight)
    return weight


def _expand(first: Tensor, nodes: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """One entry per child of each used node: the position it belongs to, and the child."""
    start = first[nodes].long()
    lengths = torch.where(used, first[nodes + 1].long() - start, 0)
    positions = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), lengths)
    before = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    return positions, start[positions] + torch.arange(len(positions), device=nodes.device) - before


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lidstone")


def _in_threads(kernel: Callable[..., None], z: Tensor, plan: Plan, targets: Targets, vectors: list[Tensor]) -> None:
    """Run a kernel on the positions, shared among as many threads as torch uses."""
    t = targets
    first, words, *rest = _arrays(t.first, t.words, t.suffixes, t.rows, t.backoffs, t.plus, t.minus)
    table = (first, words.view(np.uint32), *rest)
    batch = _arrays(z, plan.states, plan.shifts, *vectors)
    jobs = max(1, min(torch.get_num_threads(), len(z)))
    cuts = [len(z) * job // jobs for job in range(jobs + 1)]
    ngram = targets.empirical == "ngram"
    if jobs == 1:
        return kernel(0, len(z), ngram, table, *batch)
    tasks = [_pool(jobs).submit(kernel, cuts[job], cuts[job + 1], ngram, table, *batch) for job in range(jobs)]
    for task in tasks:
        task.result()


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(tensor.detach().numpy() for tensor in tensors)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(start, stop, ngram, table, z, states, shifts, out, out_minus, out_base):  # type: ignore[no-untyped-def]
    first, words, suffixes, rows, backoffs, plus, minus = table
    for t in range(start, stop):
        state, weight = states[t], 1.0
        total, taken = 0.0, 0.0
        if ngram and state >= 0:
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
def _scatter(start, stop, ngram, table, gradient, states, shifts, scale, scale_minus):  # type: ignore[no-untyped-def]
    first, words, suffixes, rows, backoffs, plus, minus = table
    for t in range(start, stop):
        state, weight = states[t], scale[t]
        if ngram and state >= 0:
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
