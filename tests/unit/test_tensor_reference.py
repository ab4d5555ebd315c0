"""The plain tensor code against the dense reference: all forms and orders, masked, ignored and unknown ids."""

from __future__ import annotations

import warnings

import pytest
import torch
from tests.interpreted_kernels import FORMS, SMALL, TEXTS, errors, expected, masked, problem

from lidstone.loss.kernels import chunks
from lidstone.loss.kernels.protocol import Coefficients, PlannedBatch, using
from lidstone.loss.kernels.tensors import expand
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy
from lidstone.loss.targets import Targets

STRENGTHS = {"gamma_plus": 0.4, "gamma_minus": 0.7}


def in_tensor_code(kind, leaves, labels, contexts, table, counts, **options):
    """Value, gradients, and how far the parts are from the total."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no lower bound")
        loss = kind(table, counts, reduction="sum", **options)
    with using("tensors"):
        parts = loss(*leaves, labels, contexts)
        gradients = torch.autograd.grad(parts.total, leaves)
    return [parts.total.detach(), *gradients, (parts.nll + parts.plus + parts.minus - parts.total).abs()]


def assert_small(found):
    assert found["value"] < 2e-6
    assert found["gradient"] < 2e-6
    assert found["parts"] < 2e-6


@pytest.mark.parametrize("change", ["none", "masked", "NaN where ignored"])
@pytest.mark.parametrize(("form", "empirical"), FORMS)
@pytest.mark.parametrize("order", range(1, 9))
def test_value_and_gradient(order, form, empirical, change):
    """Among the labels are one that is ignored and two that the table never predicts; -inf masks one of these."""
    table, counts, contexts, labels, logits = problem("small", order, seed=order)
    options = {**STRENGTHS, "form": form, "empirical": empirical}
    if change == "masked":
        labels[labels == 0] = -100
        logits = masked(logits, labels)
    want = expected(table, TEXTS["small"][1], contexts, labels, logits, **options)
    if change == "NaN where ignored":
        logits = logits.masked_fill((labels < 0)[..., None], torch.nan)
    leaves = [logits.requires_grad_()]
    got = in_tensor_code(SmoothedCrossEntropy, leaves, labels, contexts, table, counts, **options)
    assert_small(errors(got, want))


@pytest.mark.parametrize(("form", "empirical"), FORMS)
@pytest.mark.parametrize("order", [1, 3, 8])
def test_the_linear_loss(order, form, empirical, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4 * SMALL.size * 7)  # seven positions at once
    table, counts, contexts, labels, _ = problem("small", order, seed=order)
    options = {**STRENGTHS, "form": form, "empirical": empirical}
    draw = torch.Generator().manual_seed(1)
    leaves = [torch.randn(*shape, 5, generator=draw).requires_grad_() for shape in (labels.shape, (SMALL.size,))]
    logits = leaves[0].double() @ leaves[1].double().T
    value, gradient = expected(table, TEXTS["small"][1], contexts, labels, logits.detach(), **options)
    want = [value, *torch.autograd.grad(logits, leaves, gradient)]
    got = in_tensor_code(LinearSmoothedCrossEntropy, leaves, labels, contexts, table, counts, **options)
    assert_small(errors(got, want))


@pytest.mark.parametrize("empirical", ["token", "ngram"])
def test_distinct_histories_are_expanded_once(empirical, monkeypatch):
    """Each of them 50 times gives the rows, and lists the n-grams, of each of them once."""
    table, counts, *_ = problem("small", 3, seed=0)
    targets, sizes, search = Targets(table, counts, empirical), [], torch.searchsorted
    states = torch.arange(-1, table.trie.num_histories)

    def expanded(states):
        return expand(PlannedBatch(states, states, Coefficients(*[states] * 5), None, targets.table, targets.facts))

    once = expanded(states)  # makes the lookup too

    def recorded(ends, numbers, *, right):
        sizes.append(len(numbers))
        return search(ends, numbers, right=right)

    monkeypatch.setattr(torch, "searchsorted", recorded)
    index, rows = expanded(states.repeat(50))
    assert torch.equal(expanded(states)[1], once[1])
    assert sizes[0] == sizes[1] > 0
    assert torch.equal(rows, once[1])
    assert torch.equal(index, once[0].repeat(50))


def test_a_batch_without_positions():
    table, counts, *_ = problem("small", 3, seed=0)
    logits = torch.zeros(1, 0, SMALL.size, requires_grad=True)
    with using("tensors"):
        total = SmoothedCrossEntropy(table, counts, gamma=0.3)(logits, torch.zeros(1, 0, dtype=torch.long)).total
        total.backward()
    assert total.item() == 0
    assert logits.grad.shape == logits.shape
