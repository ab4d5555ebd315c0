"""The compiled kernels and the tensor code do the same, which is what a dense product with p~ would do."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from tests.smoothing_cases import ORDERS, SMOOTHERS, TEXT, VOCAB, counted, fitted

from lidstone.regularizer import core
from lidstone.regularizer.loss import SmoothedCrossEntropy
from lidstone.regularizer.reference import histories_of
from lidstone.regularizer.sparse_rows import dot, dot_tensors, scatter, scatter_tensors
from lidstone.regularizer.targets import Targets

# sentences of the text, a word that is not in it, padding as a boundary, an unknown context
CONTEXTS = torch.tensor([[8, *TEXT[0][:5], 7, 2, 3], [8, 3, 2, -1, 4, 0, 2, 1, 5]])
CASES = pytest.mark.parametrize(
    ("name", "order", "empirical"), [*itertools.product(SMOOTHERS, ORDERS, ("token", "ngram"))]
)


def prepared(name, order, empirical):
    targets = Targets(fitted(name, order), counted(order), empirical)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(1, 7, CONTEXTS.shape, generator=generator)
    plan = targets.plan(labels, CONTEXTS, gamma_plus=0.4, gamma_minus=0.7, form="exact")
    return targets, plan, torch.randn(CONTEXTS.numel(), VOCAB.size, generator=generator)


@CASES
def test_dot(name, order, empirical):
    targets, plan, logits = prepared(name, order, empirical)
    used = plan.plus != 0  # what has no strength is not looked at
    assert used.any()
    for one, other in zip(dot(logits, plan, targets), dot_tensors(logits, plan, targets), strict=True):
        torch.testing.assert_close(one[used], other[used], rtol=1e-5, atol=1e-6)


@CASES
def test_scatter(name, order, empirical):
    targets, plan, logits = prepared(name, order, empirical)
    scale = torch.linspace(-1, 1, len(logits))
    compiled, plain = logits.clone(), logits.clone()
    scatter(compiled, plan, targets, scale)
    scatter_tensors(plain, plan, targets, scale)
    torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_both_are_the_dense_product(name, order):
    """<rows, z> + base_weight <base, z> is p~(.|h) . z, and the scatter subtracts p~ but for the base."""
    targets, plan, logits = prepared(name, order, "token")
    histories = [h for row in CONTEXTS.tolist() for h in histories_of(row, VOCAB, order)]
    smoothed = torch.tensor(fitted(name, order).prob(histories))
    rows, _, base_weight = dot(logits, plan, targets)
    found = rows + base_weight * (logits @ targets.base)
    torch.testing.assert_close(found.double(), (smoothed * logits.double()).sum(-1), rtol=1e-5, atol=2e-6)
    gradient = torch.zeros_like(logits)
    scatter(gradient, plan, targets, torch.full_like(base_weight, 1 / 0.4))
    sparse = smoothed - base_weight.double()[:, None] * targets.base.double()
    torch.testing.assert_close(gradient.double(), -sparse, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads(threads):
    targets, plan, logits = prepared("kneser-essen-ney", 3, "ngram")
    before, expected = torch.get_num_threads(), dot_tensors(logits, plan, targets).rows
    used = plan.plus != 0
    torch.set_num_threads(threads)
    try:
        found = dot(logits, plan, targets).rows
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found[used], expected[used], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("empirical", ["token", "ngram"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_whole_loss_in_tensor_code(monkeypatch, order, empirical):
    """What runs on other devices gives the value and the gradient of the CPU's."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no lower bound")
        loss = SmoothedCrossEntropy(fitted("katz", order), counted(order), gamma=0.6, empirical=empirical)
    labels = torch.randint(1, 7, CONTEXTS.shape, generator=torch.Generator().manual_seed(1))
    logits = torch.randn(*labels.shape, VOCAB.size, generator=torch.Generator().manual_seed(2)).requires_grad_()
    value = loss(logits, labels, CONTEXTS).total
    gradient = torch.autograd.grad(value, logits)[0]
    monkeypatch.setattr(core, "dot", dot_tensors)
    monkeypatch.setattr(core, "scatter", scatter_tensors)
    again = loss(logits, labels, CONTEXTS).total
    torch.testing.assert_close(again, value, rtol=1e-6, atol=0)
    torch.testing.assert_close(torch.autograd.grad(again, logits)[0], gradient, rtol=1e-5, atol=1e-7)
