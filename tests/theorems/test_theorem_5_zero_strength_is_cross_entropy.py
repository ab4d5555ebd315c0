"""Theorem 5: with strengths of zero, or without a table, the loss is cross-entropy, to the last bits of float32."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tests.smoothing_cases import ORDERS, SMOOTHERS, TEXT, VOCAB, counted, fitted

from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy

pytestmark = pytest.mark.filterwarnings("ignore:.*no lower bound", "ignore:both strengths are 0")
EPS = torch.finfo(torch.float32).eps


def batch(size=VOCAB.size, scale=3.0):
    generator = torch.Generator().manual_seed(0)
    width = max(map(len, TEXT)) + 1
    labels = torch.full((len(TEXT), width), -100)
    for row, sentence in enumerate(TEXT):
        labels[row, : len(sentence) + 1] = torch.tensor([*sentence, VOCAB.eos])
    return scale * torch.randn(len(TEXT), width, size, generator=generator), labels


def value_and_gradient(function, logits):
    z = logits.clone().requires_grad_()
    value = function(z)
    value.sum().backward()
    return value.detach(), z.grad


def torch_loss(logits, labels, reduction="none"):
    found = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction=reduction)
    return found.reshape(labels.shape) if reduction == "none" else found


def agree(loss, logits, labels):
    """Within a few units in the last place of the numbers that are subtracted: logits, and the log of their sum."""
    ours = value_and_gradient(lambda z: loss(z, labels).total, logits)
    theirs = value_and_gradient(lambda z: torch_loss(z, labels), logits)
    largest = max(logits.abs().max().item(), math.log(VOCAB.size))
    assert (ours[0] - theirs[0]).abs().max() <= 4 * EPS * largest
    assert (ours[1] - theirs[1]).abs().max() <= 4 * EPS * largest


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_without_a_table(scale):
    agree(SmoothedCrossEntropy(reduction="none"), *batch(scale=scale))


@pytest.mark.parametrize("empirical", ["token", "ngram"])
@pytest.mark.parametrize("form", ["exact", "published"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_with_any_table(name, order, form, empirical):
    options = {"gamma": 0.0, "form": form, "empirical": empirical, "reduction": "none"}
    agree(SmoothedCrossEntropy(fitted(name, order), counted(order), **options), *batch())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reductions(reduction):
    logits, labels = batch()
    loss = SmoothedCrossEntropy(reduction=reduction)
    ours = value_and_gradient(lambda z: loss(z, labels).total, logits)
    theirs = value_and_gradient(lambda z: torch_loss(z, labels, reduction), logits)
    torch.testing.assert_close(ours[0], theirs[0], rtol=4 * EPS, atol=0)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-5, atol=8 * EPS)


def test_the_linear_form():
    generator = torch.Generator().manual_seed(1)
    _, labels = batch()
    hidden = torch.randn(*labels.shape, 5, generator=generator, requires_grad=True)
    weight = torch.randn(VOCAB.size, 5, generator=generator, requires_grad=True)
    ours = LinearSmoothedCrossEntropy()(hidden, weight, labels).total
    theirs = torch_loss(hidden @ weight.T, labels, "mean")
    torch.testing.assert_close(ours, theirs, rtol=4 * EPS, atol=0)
    for one, other in zip(*(torch.autograd.grad(x, [hidden, weight]) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_a_faded_schedule_ends_at_cross_entropy():
    from lidstone.loss.schedule import Schedule

    loss = SmoothedCrossEntropy(fitted("katz", 2), gamma=0.5, schedule=Schedule("linear"), reduction="none")
    loss.progress = 1.0
    agree(loss, *batch())
