"""Class weights: F.cross_entropy(weight=) where it has an answer, the dense judge times the weights elsewhere."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from tests.smoothing_cases import ORDERS, SMOOTHERS, TEXT, VOCAB, counted, fitted

from lidstone.errors import InputError
from lidstone.lab.methods.label_smoothing import uniform_table
from lidstone.loss.kernels import chunks
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy
from lidstone.loss.reference import dense_target
from lidstone.text.history import histories_of

COMBINATIONS = list(itertools.product(("exact", "published"), ("token", "ngram")))
WEIGHT = torch.tensor([0.3, 1.5, 0.7, 1.0, 2.0, 0.0, 0.4, 1.1])
LABELS = torch.tensor([[2, 3, 4, 1, 6], [5, 6, 0, 7, -100]])
CONTEXTS = torch.tensor([[VOCAB.bos, 2, 3, 4, 1], [4, 5, -1, 3, 2]])
WIDTH = 3


def make(kind, order=3, name="kneser-essen-ney", **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no lower bound")
        return kind(fitted(name, order), counted(order), weight=WEIGHT, **options)


def leaves():
    generator = torch.Generator().manual_seed(0)
    shapes = (*LABELS.shape, WIDTH), (VOCAB.size, WIDTH), (VOCAB.size,)
    return [2 * torch.randn(shape, generator=generator) for shape in shapes]


def judge(logits, order, name, reduction="mean", **options):
    """- sum_w weight[w] target(w) log q(w), from a dense matrix of targets in float64."""
    losses, labels = [], []
    for row in range(len(LABELS)):
        histories = histories_of(CONTEXTS[row].tolist(), VOCAB, order)
        for place, label in enumerate(LABELS[row].tolist()):
            if label != -100:
                target = dense_target(fitted(name, order), TEXT, histories[place], label, **options)
                losses.append(-(target * WEIGHT.double() * torch.log_softmax(logits[row, place], -1)).sum())
                labels.append(label)
    total = torch.stack(losses).sum()
    return total / WEIGHT.double()[labels].sum() if reduction == "mean" else total


@pytest.mark.parametrize(("form", "empirical"), COMBINATIONS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_both_losses_against_the_dense_judge(name, order, form, empirical, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4 * VOCAB.size * 2)  # two positions at a time
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": form, "empirical": empirical}
    hidden, weight, bias = (leaf.double().requires_grad_() for leaf in leaves())
    expected = judge(hidden @ weight.T + bias, order, name, **options)
    truth = torch.autograd.grad(expected, [hidden, weight, bias])
    for kind in (SmoothedCrossEntropy, LinearSmoothedCrossEntropy):
        h, w, b = (leaf.requires_grad_() for leaf in leaves())
        loss = make(kind, order, name, **options)
        linear = kind is LinearSmoothedCrossEntropy
        parts = loss(h, w, LABELS, CONTEXTS, bias=b) if linear else loss(h @ w.T + b, LABELS, CONTEXTS)
        assert parts.total.item() == pytest.approx(expected.item(), rel=1e-5)
        assert (parts.nll + parts.plus + parts.minus).item() == pytest.approx(expected.item(), rel=1e-5)
        assert not parts.nll.requires_grad
        for found, right in zip(torch.autograd.grad(parts.total, [h, w, b]), truth, strict=True):
            torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_torch_agrees_without_a_table_and_with_label_smoothing(reduction):
    """torch spreads its label smoothing over all ids: padding is predictable here."""
    from lidstone import Vocabulary, count

    table = uniform_table(count([[1, 2]], Vocabulary(size=VOCAB.size, eos=0), order=1))
    logits = leaves()[0] @ leaves()[1].T
    for eps, loss in (
        (0.0, SmoothedCrossEntropy(weight=WEIGHT, reduction=reduction)),
        (0.2, SmoothedCrossEntropy(table, gamma=0.2, weight=WEIGHT.tolist(), reduction=reduction)),
    ):
        ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        found = loss(ours, LABELS).total
        expected = F.cross_entropy(
            theirs.flatten(0, 1), LABELS.flatten(), WEIGHT, reduction=reduction, label_smoothing=eps
        ).reshape(found.shape)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        gradients = [torch.autograd.grad(v.sum(), z)[0] for v, z in ((found, ours), (expected, theirs))]
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_weights_of_one_change_nothing():
    logits = (leaves()[0] @ leaves()[1].T).requires_grad_()
    plain = SmoothedCrossEntropy(fitted("katz", 3), gamma=0.3)(logits, LABELS)
    ones = SmoothedCrossEntropy(fitted("katz", 3), gamma=0.3, weight=torch.ones(8))(logits, LABELS)
    for found, expected in zip(ones, plain, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_num_items_divides_the_weighted_sum():
    logits = (leaves()[0] @ leaves()[1].T).requires_grad_()
    total = make(SmoothedCrossEntropy, gamma=0.3, reduction="sum")(logits, LABELS).total.item()
    assert make(SmoothedCrossEntropy, gamma=0.3)(logits, LABELS, num_items=14).total.item() == pytest.approx(total / 14)


def test_evaluation_is_a_perplexity_all_the_same():
    logits = leaves()[0] @ leaves()[1].T
    with torch.no_grad():
        found = make(SmoothedCrossEntropy, gamma=0.3)(logits, LABELS).total
    torch.testing.assert_close(found, F.cross_entropy(logits.flatten(0, 1), LABELS.flatten()))


def test_the_signature_says_so():
    assert make(SmoothedCrossEntropy, gamma=0.3).signature["weight"] == pytest.approx(WEIGHT.tolist())
    assert "weight" not in SmoothedCrossEntropy(fitted("katz", 2), gamma=0.3).signature


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(7), r"weight has shape \(7,\), the table 8 ids. hint: give one weight per id"),
        (torch.full((8,), -1.0), "not negative"),
        (torch.full((8,), torch.nan), "finite"),
    ],
)
def test_mistakes(weight, message):
    with pytest.raises(InputError, match=message):
        SmoothedCrossEntropy(fitted("katz", 2), gamma=0.3, weight=weight)


def test_a_penalty_without_class_weights_says_so():
    from lidstone.lab.methods.confidence_penalty import ConfidencePenalty

    with pytest.raises(InputError, match="has no class weights"):
        ConfidencePenalty(gamma=0.1, weight=WEIGHT)
