"""The loss on CUDA and ROCm, as Triton programs: one finds the histories of a batch, one takes the loss of a row of
logits, one its gradient. The host never waits for the device.

A program owns one row, so nothing is added up across programs: no atomics, and the same numbers at every run. The row
is read once in the forward pass (log-sum-exp and product with the base as the maximum moves, then the n-grams of the
history and its suffixes, whose logits are still in the cache) and read and written once in the backward pass.
Whatever the type of the logits, arithmetic is in float32.

With `TRITON_INTERPRET=1` in the environment before Triton is imported, the programs run on CPU tensors, slowly.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lidstone.loss.kernels.protocol import (
    Coefficients,
    PlannedBatch,
    PositionLosses,
    SparseTarget,
    TableFacts,
    TableTensors,
)
from lidstone.loss.kernels.tensors import scatter as scatter

BASE_AROUND_LOGITS = False
EXPANDS_ROWS = False
POSITIONS_AT_ONCE = 128  # of the search for histories
NGRAMS_AT_ONCE = 512  # of the lists of a row


def plan(contexts: Tensor, batch: PlannedBatch) -> Coefficients:
    """The coefficients of each position; see `Kernels.plan`."""
    labels, table, facts, number = batch.labels, batch.table, batch.facts, len(batch.labels)
    assert table is not None
    states, shifts = (labels.new_empty(number, dtype=torch.int64) for _ in range(2))
    z, smoothed = (labels.new_empty(number, dtype=torch.float32) for _ in range(2))
    found = Coefficients(states, shifts, labels.new_empty(number, dtype=torch.bool), z, smoothed)
    arrays = (table.first, table.words, table.suffixes, table.rows, table.backoffs, table.base, table.tokens)
    if not number:
        return found
    with on_device(labels):
        plan_program[(blocks(number, POSITIONS_AT_ONCE),)](
            labels.contiguous(), contexts.contiguous(), states, shifts, found.known.view(torch.uint8), z, smoothed,
            number, contexts.shape[-1], *arrays, table.predicted.view(torch.uint8), table.zs, table.shifts,
            facts.steps, len(table.base), ORDER=facts.order, NGRAM=facts.ngram, BLOCK=POSITIONS_AT_ONCE,
            num_warps=4, enable_fp_fusion=True,
        )  # fmt: skip
    return found


def losses(logits: Tensor, batch: PlannedBatch, base_dots: Tensor | None = None) -> PositionLosses:
    """The loss of each position and its parts; see `Kernels.losses`."""
    if isinstance(batch.plan, SparseTarget):
        return _taught(logits, batch, batch.plan)
    labels, z = batch.labels, rows_of(logits.detach())
    total, nll, plus, minus = (z.new_empty(len(labels), dtype=torch.float32) for _ in range(4))
    saved = z.new_empty(3, len(labels), dtype=torch.float32)
    found = PositionLosses(total, nll, plus, minus, saved)
    if not len(labels):
        return found
    with on_device(z):
        losses_program[(len(labels),)](
            z, labels, *found[:4], *saved.unbind(), z.shape[1], *z.stride()[:2], z.shape[2],
            *_coefficients(batch.plan, z), *_arrays(batch.table, z), **launch(z.shape[2], batch.plan, batch.facts),
        )  # fmt: skip
    return found


def _taught(logits: Tensor, batch: PlannedBatch, target: SparseTarget) -> PositionLosses:
    """The losses with a teacher: of the tail, H(p~, q), by the program; of the k words, by a gather."""
    row, table = None, batch.table
    if table is not None:  # with these strengths and coefficients `plus` is H(p~, q)
        ones = torch.ones_like(target.tail)
        table = table._replace(strengths=ones.new_tensor([1.0, 0.0]))
        row = Coefficients(target.states, target.shifts, batch.labels >= 0, ones, torch.zeros_like(ones))
    _, nll, of_row, _, saved = losses(logits, batch._replace(plan=row, table=table))
    z = logits.detach().gather(-1, target.ids.view(*logits.shape[:-1], -1)).view_as(target.values).float()
    logs = (z - (saved[0] + saved[1])[:, None]).clamp(min=torch.finfo(z.dtype).min)
    cross = torch.where(target.tail > 0, target.tail * of_row, 0.0) - (target.values * logs).sum(-1)
    return PositionLosses(target.total(nll, cross), nll, cross, cross - target.entropy, saved)


def gradient(logits: Tensor, batch: PlannedBatch, saved: Tensor, *, inplace: bool = False, base: bool = True) -> Tensor:
    """The gradient of scale * losses; see `Kernels.gradient`. Saved were shift, log-sum-exp and weight of the base."""
    labels, scale, plan, _, table, facts = batch
    out = logits.detach() if inplace else torch.empty_like(logits, memory_format=torch.contiguous_format)
    z, made = rows_of(logits.detach()), rows_of(out)
    constants = launch(z.shape[2], plan if table else None, facts) | {"TAUGHT": isinstance(plan, SparseTarget)}
    if not len(labels):
        return out
    with on_device(z):
        gradient_program[(len(labels),)](
            z, made, labels, scale.contiguous(), *saved.contiguous().unbind(), z.shape[1],
            *z.stride()[:2], *made.stride()[:2], z.shape[2], *_coefficients(plan, z), *_arrays(table, z),
            *_named(plan, z), **constants,
        )  # fmt: skip
    return out if made.data_ptr() == out.data_ptr() else out.copy_(made.view_as(out))


def probabilities(ids: Tensor, batch: PlannedBatch) -> Tensor:
    """p~(id|h) of ids (positions, k); see `Kernels.probabilities`."""
    states, table, facts = batch.nodes[0], batch.table, batch.facts
    assert table is not None
    found = torch.empty(ids.shape, dtype=torch.float32, device=ids.device)
    if found.numel():
        with on_device(ids):
            probabilities_program[(blocks(ids.numel(), POSITIONS_AT_ONCE),)](
                ids.contiguous(), states, found, ids.numel(), ids.shape[1], table.first, table.words, table.suffixes,
                table.rows, table.backoffs, table.base, facts.steps, ORDER=facts.order, BLOCK=POSITIONS_AT_ONCE,
                num_warps=4, enable_fp_fusion=True,
            )  # fmt: skip
    return found


def rows_of(logits: Tensor) -> Tensor:
    """Logits as (batch, time, V) with adjacent columns; a view of what is cut from contiguous logits."""
    z = logits[None] if logits.dim() == 2 else logits
    return z if z.stride(-1) == 1 or z.shape[-1] == 1 else z.contiguous()


def launch(size: int, plan: Any, facts: TableFacts) -> dict[str, Any]:
    """The constants of a program: short rows are read in one block, long ones in blocks of 4,096."""
    block = min(4096, 1 << max(size - 1, 1).bit_length())
    warps = max(1, min(8, block // 512))
    order, ngram = (1, False) if plan is None else (facts.order, facts.ngram)
    constants = {"ORDER": order, "NGRAM": ngram, "BLOCK": block, "LIST": min(NGRAMS_AT_ONCE, block)}
    return {"PLAIN": plan is None, **constants, "num_warps": warps, "enable_fp_fusion": True}


def blocks(number: int, size: int) -> int:
    """How many blocks of this size hold so many positions.

    >>> blocks(5, 4)
    2
    """
    return -(-number // size)


def on_device(tensor: Tensor) -> AbstractContextManager[Any]:
    """Launch where the tensor is."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _coefficients(plan: tuple[Tensor, ...] | None, like: Tensor) -> list[Tensor]:
    """The tensors of a plan; without one they are not read. Of a teacher: of row, softmax and label."""
    if isinstance(plan, SparseTarget):
        mass, label, row = plan.coefficients()
        return [plan.states, plan.shifts, row, mass, label]
    if not isinstance(plan, Coefficients):
        return [like] * 5
    known, rest = plan.known.view(torch.uint8), (plan.z, plan.label_smoothed)
    return [each.contiguous() for each in (plan.states, plan.shifts, known, *rest)]


def _named(plan: Any, like: Tensor) -> list[Any]:
    """The words of a teacher, their share of the target, and how many; without one they are not read."""
    if not isinstance(plan, SparseTarget):
        return [like, like, 0]
    return [plan.ids.contiguous(), plan.gamma[:, None] * plan.values, plan.ids.shape[1]]


def _arrays(table: TableTensors | None, like: Tensor) -> list[Tensor]:
    """The table's tensors that a row needs; without a plan they are not read."""
    names = ("first", "words", "suffixes", "rows", "backoffs", "base", "plus", "minus", "dense_minus", "strengths")
    return [like if table is None else getattr(table, name) for name in names]


@triton.jit
def child_of(node, word, mask, first, words, steps):  # type: ignore[no-untyped-def]
    """The child of each node with this word, or -1: a binary search."""
    mask = mask & (node >= 0) & (word >= 0)
    low = tl.load(first + node, mask=mask, other=0)
    end = tl.load(first + node + 1, mask=mask, other=0)
    high = end
    for _ in range(steps):
        middle = low + (high - low) // 2
        inside = low < high
        below = inside & (tl.load(words + middle, mask=mask & inside, other=0) < word)
        low = tl.where(below, middle + 1, low)
        high = tl.where(inside & ~below, middle, high)
    found = mask & (low < end)
    found = found & (tl.load(words + low, mask=found, other=-1) == word)
    return tl.where(found, low, -1)


@triton.jit
def plan_program(  # type: ignore[no-untyped-def]
    labels, contexts, out_state, out_slot, out_known, out_z, out_smoothed, positions, time,
    first, words, suffixes, rows, backoffs, base, tokens, predicted, zs, shifts,
    steps, vocab, ORDER: tl.constexpr, NGRAM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The fields of `Coefficients` of BLOCK positions; histories are those of `text.history.histories_of`."""
    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = t < positions
    column = t % time
    state = tl.full((BLOCK,), -1, tl.int32)
    known = tl.zeros((BLOCK,), tl.int32)
    for length in tl.static_range(1, ORDER):
        inside = mask & (column >= length - 1)
        node = tl.full((BLOCK,), -1, tl.int32)
        for back in tl.static_range(length):
            context = tl.load(contexts + t - (length - 1 - back), mask=inside, other=-1)
            context = tl.where(context > vocab, -1, context)
            token = tl.load(tokens + context, mask=inside & (context >= 0), other=-1)
            if back == 0:
                node = token
            else:
                node = child_of(node, token, inside, first, words, steps)
        state = tl.where(node >= 0, node, state)
        known = tl.where(node >= 0, length, known)
    label = tl.load(labels + t, mask=mask, other=-1)
    word = tl.where((label >= 0) & (label < vocab), label, 0).to(tl.int32)
    shift = tl.full((BLOCK,), -1, tl.int64)
    smoothed = tl.zeros((BLOCK,), tl.float32)
    whole = mask & (tl.load(predicted + word, mask=mask, other=0) != 0)
    if NGRAM:
        if ORDER == 1:
            z = tl.load(zs + tl.zeros((BLOCK,), tl.int32), mask=mask, other=0.0)
        else:
            z = tl.load(zs + state, mask=mask & (state >= 0), other=-1.0)
            shift = tl.where(z >= 0, tl.load(shifts + known, mask=mask, other=-1), shift)
        whole = whole & (z >= 0)
        z = tl.maximum(z, 0.0)
    else:
        smoothed = probability_of(state, word, mask, first, words, suffixes, rows, backoffs, base, steps, ORDER)
        z = 1.0 - smoothed
    tl.store(out_state + t, state.to(tl.int64), mask=mask)
    tl.store(out_slot + t, shift, mask=mask)
    tl.store(out_known + t, whole.to(tl.uint8), mask=mask)
    tl.store(out_z + t, z, mask=mask)
    tl.store(out_smoothed + t, smoothed, mask=mask)


@triton.jit
def probability_of(  # type: ignore[no-untyped-def]
    state, word, mask, first, words, suffixes, rows, backoffs, base, steps, ORDER: tl.constexpr
):
    """p~(word | state), each (BLOCK,): the rows of the state and its suffixes, then the base."""
    total = tl.zeros(word.shape, tl.float32)
    weight = tl.full(word.shape, 1.0, tl.float32)
    for _ in tl.static_range(1, ORDER):
        found = child_of(state, word, mask, first, words, steps)
        total += weight * tl.load(rows + found, mask=found >= 0, other=0.0)
        weight *= tl.load(backoffs + state, mask=mask & (state >= 0), other=1.0)
        state = tl.load(suffixes + state, mask=mask & (state >= 0), other=-1)
    return total + weight * tl.load(base + word, mask=mask, other=0.0)


@triton.jit
def probabilities_program(  # type: ignore[no-untyped-def]
    ids, states, out, number, k, first, words, suffixes, rows, backoffs, base, steps,
    ORDER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """p~(id|h) of BLOCK ids (positions, k)."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < number
    word = tl.load(ids + i, mask=mask, other=0).to(tl.int32)
    state = tl.load(states + i // k, mask=mask, other=-1).to(tl.int32)
    found = probability_of(state, word, mask, first, words, suffixes, rows, backoffs, base, steps, ORDER)
    tl.store(out + i, found, mask=mask)


@triton.jit
def row_of(logits, row, time, batch_stride, time_stride):  # type: ignore[no-untyped-def]
    """Where a row of logits (batch, time, V) begins."""
    row = row.to(tl.int64)
    return logits + (row // time) * batch_stride + (row % time) * time_stride


@triton.jit
def safe_product(weight, value):  # type: ignore[no-untyped-def]
    """The product, and 0 where the weight is 0 even if the value is -inf (a masked id)."""
    return tl.where(weight == 0.0, 0.0, weight * value)


@triton.jit
def losses_program(  # type: ignore[no-untyped-def]
    logits, labels, out_total, out_nll, out_plus, out_minus, out_shift, out_lse, out_base_weight,
    time, batch_stride, time_stride, vocab, states, slots, plan_known, plan_z, plan_smoothed,
    first, words, suffixes, rows, backoffs, base, plus_values, minus_values, dense_minus, strengths,
    PLAIN: tl.constexpr, ORDER: tl.constexpr, NGRAM: tl.constexpr, BLOCK: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """Total, nll, plus and minus of one row, and shift, log-sum-exp and weight of the base for its gradient."""
    DENSE: tl.constexpr = NGRAM and ORDER == 1
    row = tl.program_id(0)
    label = tl.load(labels + row)
    total, nll, plus, minus, shift, lse, base_weight = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    if label >= 0:
        z = row_of(logits, row, time, batch_stride, time_stride)
        highest = float("-inf")
        scaled, on_base, of_base, on_minus, of_minus = 0.0, 0.0, 0.0, 0.0, 0.0
        for start in range(0, vocab, BLOCK):
            at = start + tl.arange(0, BLOCK)
            inside = at < vocab
            value = tl.load(z + at, mask=inside, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(highest, tl.max(value, 0))
            centre = tl.where(higher == float("-inf"), 0.0, higher)
            moved = tl.where(highest == float("-inf"), 0.0, centre - highest)
            scaled = scaled * tl.exp(-moved) + tl.sum(tl.exp(value - centre), 0)
            if not PLAIN:
                weight = tl.load(base + at, mask=inside, other=0.0)
                on_base = on_base - moved * of_base + tl.sum(safe_product(weight, value - centre), 0)
                of_base += tl.sum(weight, 0)
            if DENSE:
                weight = tl.load(dense_minus + at, mask=inside, other=0.0)
                on_minus = on_minus - moved * of_minus + tl.sum(safe_product(weight, value - centre), 0)
                of_minus += tl.sum(weight, 0)
            highest = higher
        shift = tl.where(highest == float("-inf"), 0.0, highest)
        lse = tl.log(scaled)
        gold = tl.load(z + label, mask=label < vocab, other=float("nan")).to(tl.float32) - shift
        nll = lse - gold
        total = nll
        if not PLAIN:
            taken = on_minus
            sparse = 0.0
            base_weight = 1.0
            slot = tl.load(slots + row).to(tl.int32)
            known = tl.load(plan_known + row).to(tl.float32)
            g_plus = known * tl.load(strengths)
            g_minus = known * tl.load(strengths + 1)
            used = (g_plus != 0.0) | (g_minus != 0.0)
            state = tl.where(used, tl.load(states + row).to(tl.int32), -1)
            for level in tl.static_range(1, ORDER):
                begin = tl.load(first + state, mask=state >= 0, other=0)
                end = tl.load(first + state + 1, mask=state >= 0, other=0)
                level_sum = 0.0
                for start in range(begin, end, LIST):
                    at = start + tl.arange(0, LIST)
                    inside = at < end
                    word = tl.load(words + at, mask=inside, other=0)
                    value = tl.load(z + word, mask=inside, other=0.0).to(tl.float32) - shift
                    if NGRAM and level == 1:
                        given = tl.load(plus_values + at - slot, mask=inside, other=0.0)
                        away = tl.load(minus_values + at - slot, mask=inside, other=0.0)
                        taken += tl.sum(safe_product(tl.where(inside, away, 0.0), value), 0)
                    else:
                        given = tl.load(rows + at, mask=inside, other=0.0)
                    level_sum += tl.sum(safe_product(tl.where(inside, given, 0.0), value), 0)
                sparse += base_weight * level_sum
                base_weight *= tl.load(backoffs + state, mask=state >= 0, other=1.0)
                state = tl.load(suffixes + state, mask=state >= 0, other=-1)
            moved_mass = tl.load(plan_z + row)
            at_label = tl.load(plan_smoothed + row)
            smoothed = sparse + safe_product(base_weight, on_base)
            plus = safe_product(g_plus, moved_mass * lse - smoothed + at_label * gold)  # (6) of docs/theory.md
            if not NGRAM:
                taken = moved_mass * gold
            minus = safe_product(g_minus, moved_mass * lse - taken)
            total = nll + plus + minus
    tl.store(out_total + row, total)
    tl.store(out_nll + row, nll)
    tl.store(out_plus + row, plus)
    tl.store(out_minus + row, minus)
    tl.store(out_shift + row, shift)
    tl.store(out_lse + row, lse)
    tl.store(out_base_weight + row, base_weight)


@triton.jit
def gradient_program(  # type: ignore[no-untyped-def]
    logits, out, labels, scale, saved_shift, saved_lse, saved_base_weight,
    time, batch_stride, time_stride, out_batch_stride, out_time_stride, vocab,
    states, slots, plan_known, plan_z, plan_smoothed,
    first, words, suffixes, rows, backoffs, base, plus_values, minus_values, dense_minus, strengths,
    taught_ids, taught_values, k, TAUGHT: tl.constexpr,
    PLAIN: tl.constexpr, ORDER: tl.constexpr, NGRAM: tl.constexpr, BLOCK: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """Scale times the gradient of one row's loss; `out` may be `logits` itself."""
    row = tl.program_id(0)
    DENSE: tl.constexpr = NGRAM and ORDER == 1
    label = tl.load(labels + row)
    factor = tl.load(scale + row)
    factor = tl.where(label >= 0, factor, 0.0)
    z = row_of(logits, row, time, batch_stride, time_stride)
    g = row_of(out, row, time, out_batch_stride, out_time_stride)
    shift = tl.load(saved_shift + row)
    lse = tl.load(saved_lse + row)
    mass, gold, on_base, on_minus = factor, factor, 0.0, 0.0
    if TAUGHT:
        g_plus = factor * tl.load(plan_known + row)
        mass = factor * tl.load(plan_z + row)
        gold = factor * tl.load(plan_smoothed + row)
        on_minus = factor * 0.0
        if not PLAIN:
            on_base = tl.where(g_plus == 0.0, 0.0, g_plus * tl.load(saved_base_weight + row))
    elif not PLAIN:
        known = tl.load(plan_known + row).to(tl.float32)
        g_plus = known * tl.load(strengths)
        on_minus = known * tl.load(strengths + 1)
        moved_mass = tl.load(plan_z + row)
        mass = factor * (1.0 + (g_plus + on_minus) * moved_mass)  # of (7), as the label's and the row's below
        gold = 1.0 - g_plus * tl.load(plan_smoothed + row)
        if not NGRAM:
            gold += on_minus * moved_mass
        gold *= factor
        g_plus *= factor
        on_minus *= factor
        on_base = g_plus * tl.load(saved_base_weight + row)
    silent = mass == 0.0  # what does not count may be NaN or infinite
    counted = (label >= 0) & (label < vocab)
    at_label = tl.load(z + label, mask=counted, other=0.0).to(tl.float32)
    at_label = tl.where(silent, 0.0, mass * tl.exp(at_label - shift - lse)) - gold
    if not PLAIN:
        at_label -= on_base * tl.load(base + label, mask=counted, other=0.0)
    if DENSE:
        at_label -= on_minus * tl.load(dense_minus + label, mask=counted, other=0.0)
    tl.debug_barrier()  # the label's logit was read; from here on it may be overwritten
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < vocab
        value = tl.load(z + at, mask=inside, other=0.0).to(tl.float32)
        made = tl.where(silent, 0.0, mass * tl.exp(value - shift - lse))
        if not PLAIN:
            made -= on_base * tl.load(base + at, mask=inside, other=0.0)
        if DENSE:
            made -= on_minus * tl.load(dense_minus + at, mask=inside, other=0.0)
        tl.store(g + at, made.to(out.dtype.element_ty), mask=inside)
    if not PLAIN:
        slot = tl.load(slots + row).to(tl.int32)
        used = (g_plus != 0.0) | (on_minus != 0.0)
        state = tl.where(used, tl.load(states + row).to(tl.int32), -1)
        weight = g_plus
        for level in tl.static_range(1, ORDER):
            tl.debug_barrier()  # one word may be on several levels, and all were written above
            begin = tl.load(first + state, mask=state >= 0, other=0)
            end = tl.load(first + state + 1, mask=state >= 0, other=0)
            for start in range(begin, end, LIST):
                at = start + tl.arange(0, LIST)
                inside = at < end
                word = tl.load(words + at, mask=inside, other=0)
                if NGRAM and level == 1:
                    share = weight * tl.load(plus_values + at - slot, mask=inside, other=0.0)
                    share += on_minus * tl.load(minus_values + at - slot, mask=inside, other=0.0)
                else:
                    share = weight * tl.load(rows + at, mask=inside, other=0.0)
                at_label -= tl.sum(tl.where(inside & (word == label), share, 0.0), 0)
                before = tl.load(g + word, mask=inside, other=0.0).to(tl.float32)
                tl.store(g + word, (before - share).to(out.dtype.element_ty), mask=inside)
            weight *= tl.load(backoffs + state, mask=state >= 0, other=1.0)
            state = tl.load(suffixes + state, mask=state >= 0, other=-1)
    if TAUGHT:
        tl.debug_barrier()
        taught_ids += row.to(tl.int64) * k
        taught_values += row.to(tl.int64) * k
        for start in range(0, k, LIST):
            place = start + tl.arange(0, LIST)
            share = factor * tl.load(taught_values + place, mask=place < k, other=0.0)
            word = tl.load(taught_ids + place, mask=share != 0.0, other=0)  # unused places have 0
            at_label -= tl.sum(tl.where(word == label, share, 0.0), 0)
            before = tl.load(g + word, mask=share != 0.0, other=0.0).to(tl.float32)
            tl.store(g + word, (before - share).to(out.dtype.element_ty), mask=share != 0.0)
    tl.debug_barrier()
    tl.store(g + label, at_label.to(out.dtype.element_ty), mask=counted)  # by far the largest: rounded once
