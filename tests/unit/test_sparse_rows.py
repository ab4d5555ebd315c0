"""The compiled kernels and the tensor code do the same, which is what a dense product with p~ would do."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from tests.smoothing_cases import ORDERS, SMOOTHERS, TEXT, VOCAB, counted, fitted

from lidstone.loss.kernels import cpu, tensors
from lidstone.loss.kernels.protocol import PlannedBatch, using
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy
from lidstone.loss.targets import Targets
from lidstone.text.history import histories_of

# sentences of the text, a word that is not in it, padding as a boundary, an unknown context
CONTEXTS = torch.tensor([[8, *TEXT[0][:5], 7, 2, 3], [8, 3, 2, -1, 4, 0, 2, 1, 5]])
CASES = pytest.mark.parametrize(
    ("name", "order", "empirical"), [*itertools.product(SMOOTHERS, ORDERS, ("token", "ngram"))]
)


def prepared(name, order, empirical):
    targets = Targets(fitted(name, order), counted(order), empirical)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(1, 7, CONTEXTS.shape, generator=generator)
    targets.set_strengths(0.4, -0.7)
    batch = PlannedBatch(labels.reshape(-1), torch.ones(labels.numel()), table=targets.table, facts=targets.facts)
    logits = torch.randn(CONTEXTS.numel(), VOCAB.size, generator=generator)
    return logits, batch._replace(plan=cpu.plan(CONTEXTS, batch))


@CASES
def test_plan(name, order, empirical):
    """The compiled search and the one in tensor code find the same nodes; what is read off the rows is left out."""
    _, batch = prepared(name, order, empirical)
    batch.labels[:3] = -1  # ignored
    found, other, counted = cpu.plan(CONTEXTS, batch), tensors.plan(CONTEXTS, batch), batch.labels >= 0
    assert torch.equal(found.states, other.states)
    assert not len(other.shifts) and not len(other.label_smoothed)
    if empirical == "ngram":  # a history that is not whole has Z = 0 there, and rows of 0
        assert torch.equal(found.known[counted], (other.known & (found.known | (other.z > 0)))[counted])
        assert torch.equal(found.z, other.z)
    else:
        assert torch.equal(found.known[counted], other.known[counted])


@pytest.mark.parametrize("order", ORDERS)
def test_the_nodes_are_those_of_the_histories(order):
    """Read back from the trie: the longest suffix of the sliced history that is a node."""
    _, batch = prepared("katz", order, "token")
    trie = fitted("katz", order).trie
    histories = [h for row in CONTEXTS.tolist() for h in histories_of(row, VOCAB, order)]
    for state, history in zip(batch.plan.states.tolist(), histories, strict=True):
        suffixes = [history[i:] for i in range(len(history)) if trie.find(list(history[i:])) >= 0]
        assert (trie.ngram(state) if state >= 0 else ()) == (suffixes[0] if suffixes else ())


@CASES
def test_scatter(name, order, empirical):
    logits, batch = prepared(name, order, empirical)
    scale = torch.linspace(-1, 1, len(logits))
    compiled, plain = logits.clone(), logits.clone()
    plus, minus = (scale * strength for strength in batch.plan.strengths(batch.table))
    cpu.scatter(compiled, batch, plus, minus)
    tensors.scatter(plain, batch, plus, minus)
    torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_both_are_the_dense_product(name, order):
    """<rows, z> + base_weight <base, z> is p~(.|h) . z, and the scatter subtracts p~ but for the base."""
    logits, batch = prepared(name, order, "token")
    histories = [h for row in CONTEXTS.tolist() for h in histories_of(row, VOCAB, order)]
    smoothed = torch.tensor(fitted(name, order).prob(histories))
    rows, _, base_weight = cpu.dot(logits, batch)
    found = rows + base_weight * (logits @ batch.table.base)
    torch.testing.assert_close(found.double(), (smoothed * logits.double()).sum(-1), rtol=1e-5, atol=2e-6)
    gradient = torch.zeros_like(logits)
    ones = torch.ones_like(base_weight)
    cpu.scatter(gradient, batch, ones, 0 * ones)
    sparse = smoothed - base_weight.double()[:, None] * batch.table.base.double()
    torch.testing.assert_close(gradient.double(), -sparse, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads(threads):
    logits, batch = prepared("kneser-essen-ney", 3, "ngram")
    before, expected = torch.get_num_threads(), cpu.dot(logits, batch)
    torch.set_num_threads(threads)
    try:
        found, again = cpu.dot(logits, batch), cpu.plan(CONTEXTS, batch)
    finally:
        torch.set_num_threads(before)
    for one, other in zip((*found, *again), (*expected, *batch.plan), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", [SmoothedCrossEntropy, LinearSmoothedCrossEntropy])
@pytest.mark.parametrize("empirical", ["token", "ngram"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_whole_loss_in_tensor_code(order, empirical, kind):
    """What runs on other devices gives the value and the gradient of the CPU's."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no lower bound")
        loss = kind(fitted("katz", order), counted(order), gamma=0.6, empirical=empirical)
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(1, 7, CONTEXTS.shape, generator=generator)
    labels[1, 2:4] = -100
    width = VOCAB.size if kind is SmoothedCrossEntropy else 3
    leaves = [torch.randn(*labels.shape, width, generator=generator).requires_grad_()]
    if kind is LinearSmoothedCrossEntropy:
        leaves.append(torch.randn(VOCAB.size, 3, generator=generator).requires_grad_())
    found = []
    for name in ("cpu", "tensors"):
        with using(name):
            parts = loss(*leaves, labels, CONTEXTS)
            found.append((*parts, *torch.autograd.grad(parts.total, leaves)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
