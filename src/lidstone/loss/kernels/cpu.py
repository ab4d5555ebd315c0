"""A smoothed loss and its gradient on a CPU: torch for the dense passes, compiled loops for the n-grams.

    losses  = mass * lse - label * z[y] - plus * (rows . z + base_weight * base . z) - minus * (Z p- . z)
    dlosses = mass * softmax(z) - label * onehot(y) - plus * (rows + base_weight * base) - minus * Z p-

These are (6) and (7) of docs/theory.md.

One pass over the logits for the log-sum-exp, one for the gradient, and a gather and a scatter of the n-grams that
exist: neither a (positions, V) target nor a second log-softmax. Everything is float32, what depends on float64 logits
is float64.

The loops of dot and scatter walk from each position's history down its suffix links: rows of the history, then backoff
times the rows of the order below, and so on; what is left at the end is the weight of the dense base. In two dense
lines,

    smoothed = table.prob(histories)                                # (positions, V), never built
    dot, gradient = (smoothed * z).sum(-1), gradient - scale[:, None] * smoothed
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lidstone.jit import helper, kernel
from lidstone.loss.checks import check_ids
from lidstone.loss.kernels.protocol import Coefficients, PlannedBatch, PositionLosses, SparseTarget, computed_in

BASE_AROUND_LOGITS = True
EXPANDS_ROWS = False
ROWS_AT_ONCE = 64  # so that a block of logits stays in the cache between the passes over it
FAR = 128.0  # rows whose log-sum-exp is larger are shifted: below it float32 loses less than 1e-5 of a loss


def plan(contexts: Tensor, batch: PlannedBatch) -> Coefficients:
    """The coefficients of each position; see `Kernels.plan`."""
    table, labels, positions = batch.table, batch.labels, len(batch.labels)
    assert table is not None
    check_ids(contexts, "histories", len(table.tokens) - 2)
    states, shifts = (torch.empty(positions, dtype=torch.int64) for _ in range(2))
    known, z, smoothed = torch.empty(positions, dtype=torch.bool), torch.empty(positions), torch.empty(positions)
    found = Coefficients(states, shifts, known, z, smoothed)
    ids = _arrays(labels, contexts.reshape(-1), table.tokens, table.base, table.predicted)
    given = (*ids, *_arrays(table.zs, table.shifts), np.int64(contexts.shape[-1]), batch.facts.order)
    _in_threads(_plan, batch, given, _arrays(*found))
    return found


def losses(logits: Tensor, batch: PlannedBatch, base_dots: Tensor | None = None) -> PositionLosses:
    """The loss of each position and its parts; see `Kernels.losses`."""
    labels, _, plan, _, table, facts = batch
    z = logits.detach().reshape(-1, logits.shape[-1]).to(computed_in(logits.dtype)).contiguous()
    z, shift, lse = _near(z)
    gold = z.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    nll, none = lse - gold, torch.zeros_like(lse)
    sparse, taken, base_weight = none, none, none
    if plan is not None and table is not None:
        sparse, taken, base_weight = dot(z, batch)
        if base_dots is None or bool(shift.any()):
            base_dots = dense_dot(z, table.base)
    on_base = none if base_dots is None else base_weight * base_dots
    saved = torch.stack([shift, lse, base_weight])
    if isinstance(plan, SparseTarget):
        logs = (z.gather(1, plan.ids) - lse[:, None]).clamp_(min=torch.finfo(z.dtype).min)  # a value of 0 silences -inf
        cross = -(plan.values * logs).sum(-1)
        cross += torch.where(plan.tail > 0, plan.tail * (lse - sparse - on_base), 0.0)
        return PositionLosses(plan.total(nll, cross), nll, cross, cross - plan.entropy, saved)
    if plan is None or table is None:
        return PositionLosses(nll, nll, none, none, saved)
    assert isinstance(plan, Coefficients)
    plus, minus = plan.strengths(table)
    plus = plus * (plan.z * lse - (sparse + on_base) + plan.label_smoothed * gold)  # (6): g+ Z H(p+, q)
    if not facts.ngram:
        taken = plan.z * gold
    elif len(table.dense_minus):
        taken = dense_dot(z, table.dense_minus)
    minus = minus * (plan.z * lse - taken)  # (6): -+ g- Z H(p-, q)
    return PositionLosses(nll + plus + minus, nll, plus, minus, saved)


def gradient(logits: Tensor, batch: PlannedBatch, saved: Tensor, *, inplace: bool = False, base: bool = True) -> Tensor:
    """The gradient of scale * losses; see `Kernels.gradient`. Saved were shift, log-sum-exp and weight of the base."""
    labels, scale, plan, _, table, _ = batch
    dtype = computed_in(logits.dtype)
    ours = inplace and logits.dtype == dtype and logits.is_contiguous()
    z = logits.detach() if ours else logits.detach().to(dtype, copy=True).contiguous()
    z = z.view(-1, logits.shape[-1])
    if bool(saved[0].any()):
        z.sub_(saved[0][:, None])
    mass, label, row, minus = ((scale * each).to(dtype) for each in batch.coefficients())  # of (7)
    _softmax_(z, saved[1], mass, row * saved[2] if base else None, None if table is None else table.base)
    if plan is not None and table is not None:
        if len(table.dense_minus):
            z.addr_(minus, table.dense_minus.to(dtype), alpha=-1)
        scatter(z, batch, row, minus)
    if isinstance(plan, SparseTarget):
        z.scatter_add_(1, plan.ids, ((-scale * plan.gamma)[:, None] * plan.values).to(dtype))
    z.scatter_add_(1, labels.clamp(min=0)[:, None], -label[:, None])
    return logits.copy_(z.view_as(logits)) if inplace and not ours else z.view_as(logits).to(logits.dtype)


def _softmax_(z: Tensor, lse: Tensor, mass: Tensor, weights: Tensor | None, base: Tensor | None) -> None:
    """Turn logits (positions, V) less their shift into mass * softmax - weights * base, in place."""
    shift = lse - mass.abs().log()  # |mass| * softmax = exp(z - lse + log |mass|)
    silent = mass == 0  # what does not count may be NaN or infinite
    shift[silent], z[silent] = torch.inf, 0.0
    negative = bool((mass < 0).any())  # a total that is to grow, such as -loss
    for start in range(0, len(z), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        z[block].sub_(shift[block, None]).exp_()
        if negative:
            z[block].mul_(mass[block, None].sign())
        if weights is not None and base is not None:
            z[block].addr_(weights[block], base.to(z.dtype), alpha=-1)


def _near(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits with far rows shifted to a log-sum-exp of about 0, the shift, and the log-sum-exp of the result.

    `lse - z[y]` of two numbers near 1e5 has an error of 1e-2 in float32; rows near 0 keep every bit.
    """
    lse = _logsumexp(z)
    far = (lse.abs() > FAR) & lse.isfinite()
    if not bool(far.any()):
        return z, torch.zeros_like(lse), lse
    shift = torch.where(far, lse, 0.0)
    z = z - shift[:, None]
    return z, shift, _logsumexp(z)


def _logsumexp(logits: Tensor) -> Tensor:
    """Log sum exp of each row, block by block: what torch writes down on the way stays in the cache."""
    if not len(logits):
        return logits.new_zeros(0)
    return torch.cat([torch.logsumexp(block, -1) for block in torch.split(logits, ROWS_AT_ONCE)])


def dense_dot(logits: Tensor, row: Tensor) -> Tensor:
    """Each position's logits times one dense row, where a zero of the row silences a logit of -inf (a masked id)."""
    row = row.to(logits.dtype)
    product = logits @ row
    if product.isnan().any():
        product = logits.masked_fill(row == 0, 0.0) @ row
    return product


def dot(logits: Tensor, batch: PlannedBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Of logits (positions, V): <sparse rows, z>, <Z p-, z>, and the weight of the base under the rows."""
    found = tuple(logits.new_zeros(3, len(logits)))
    _in_threads(_dot, batch, *_arrays(logits, *batch.nodes, *found))
    return found


def scatter(total: Tensor, batch: PlannedBatch, plus: Tensor, minus: Tensor) -> None:
    """Subtract sparse rows from numbers; see `Kernels.scatter`."""
    _in_threads(_scatter, batch, *_arrays(total, *batch.nodes, plus, minus))


def probabilities(ids: Tensor, batch: PlannedBatch) -> Tensor:
    """p~(id|h) of ids (positions, k); see `Kernels.probabilities`."""
    assert batch.table is not None
    found = torch.empty(ids.shape)
    _in_threads(_probabilities, batch, *_arrays(ids, batch.nodes[0], batch.table.base, found))
    return found


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


def _in_threads(kernel: Callable[..., None], batch: PlannedBatch, *given: Any) -> None:
    """Run a kernel on the positions, shared among as many threads as torch uses."""
    t, ngram, positions = batch.table, batch.facts.ngram, len(batch.labels)
    assert t is not None
    first, words, *rest = _arrays(t.first, t.words, t.suffixes, t.rows, t.backoffs, t.plus, t.minus)
    arrays = (first, words.view(np.uint32), *rest)
    jobs = max(1, min(torch.get_num_threads(), positions))
    if jobs == 1:
        return kernel(0, positions, ngram, arrays, *given)
    cuts = [positions * job // jobs for job in range(jobs + 1)]
    tasks = [_pool(jobs).submit(kernel, cuts[job], cuts[job + 1], ngram, arrays, *given) for job in range(jobs)]
    for task in tasks:
        task.result()


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(tensor.detach().numpy() for tensor in tensors)


@kernel
def _plan(start, stop, ngram, table, batch, out):  # type: ignore[no-untyped-def]
    first, words, suffixes, rows, backoffs = table[:5]
    labels, contexts, tokens, base, predicted, zs, shifts, time, order = batch
    out_states, out_shifts, out_known, out_z, out_smoothed = out
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
        out_states[t], out_shifts[t], out_z[t], out_smoothed[t] = state, shift, z, smoothed
        out_known[t] = whole and predicted[max(labels[t], 0)]


@kernel
def _history(t, time, order, first, words, contexts, tokens):  # type: ignore[no-untyped-def]
    """The node of the longest known suffix of the history (`text.history.histories_of`), and its length."""
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


@helper
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


@helper
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


@kernel
def _probabilities(start, stop, ngram, table, ids, states, base, out):  # type: ignore[no-untyped-def]
    first, words, suffixes, rows, backoffs = table[:5]
    for t in range(start, stop):
        for k in range(ids.shape[1]):
            out[t, k] = _probability(states[t], ids[t, k], first, words, suffixes, rows, backoffs, base)


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
        while state >= 0:  # (5), unrolled: the rows of h, b(h) times those of h', and so on
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


@kernel
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


@helper
def _subtract(gradient, words, weight, values):  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        gradient[words[i]] -= weight * values[i]


@helper
def _subtract_two(gradient, words, weight, plus, weight_minus, minus):  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        gradient[words[i]] -= weight * plus[i] + weight_minus * minus[i]
