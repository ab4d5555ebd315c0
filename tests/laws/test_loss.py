"""The fused loss equals the dense judge in value and gradient, whatever the smoother, the form and the batch."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoothing_cases import ORDERS, SMOOTHERS, TEXT, VOCAB, counted, fit, fitted, make_text

from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy
from lidstone.loss.reference import dense_loss, dense_target
from lidstone.ngram.counts import count
from lidstone.ngram.formats.arpa import read_arpa, write_arpa
from lidstone.text.history import histories_of
from lidstone.text.vocabulary import Vocabulary

COMBINATIONS = list(itertools.product(("exact", "published"), ("token", "ngram")))
HOLE, UNSEEN, PAD, EOS, BOS = -100, 7, 0, VOCAB.eos, VOCAB.bos
GRADIENT = 2e-6  # float32 has an eps of 1.2e-7, the masses of a target are up to 2

LABEL = st.one_of(st.integers(1, 6), st.integers(1, 6), st.sampled_from([HOLE, UNSEEN, PAD, EOS]))
CONTEXT = st.one_of(st.integers(2, 6), st.integers(2, 6), st.sampled_from([-1, HOLE, UNSEEN, PAD, EOS, BOS]))
STRENGTH = st.floats(0, 1)


def rows(ids):
    """Two rows of equal length."""
    return st.integers(1, 7).flatmap(lambda n: st.lists(st.lists(ids, min_size=n, max_size=n), min_size=2, max_size=2))


def make_loss(kind, table, counts, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no lower bound|both strengths are 0")
        return kind(table, counts, reduction="sum", **options)


def contexts_from(labels):
    """The token before each label: <s> before a row, a hole where the label is one."""
    return [[BOS, *(-1 if label < 0 else label for label in row[:-1])] for row in labels]


def judge(table, text, labels, contexts, logits, **options):
    """Value and gradient of the dense loss, in float64."""
    z = logits.double().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for row, (row_labels, row_contexts) in enumerate(zip(labels, contexts, strict=True)):
        histories = histories_of(row_contexts, VOCAB, table.order)
        kept = [i for i, label in enumerate(row_labels) if label != HOLE]
        if kept:
            made = [dense_target(table, text, histories[i], row_labels[i], **options) for i in kept]
            total = total + dense_loss(z[row, kept], torch.stack(made))
    gradient = torch.autograd.grad(total, z)[0] if total.requires_grad else torch.zeros_like(z)
    return total.detach(), gradient


def check(table, counts, text, labels, histories=None, **options):
    torch.manual_seed(0)
    logits = 3 * torch.randn(len(labels), len(labels[0]), VOCAB.size)
    contexts = contexts_from(labels) if histories is None else histories
    value, gradient = judge(table, text, labels, contexts, logits, **options)
    z = logits.clone().requires_grad_()
    loss = make_loss(SmoothedCrossEntropy, table, counts, **options)
    parts = loss(z, torch.tensor(labels), None if histories is None else torch.tensor(histories))
    parts.total.backward()
    assert parts.total.item() == close(value.item())
    assert (z.grad.double() - gradient).abs().max().item() <= GRADIENT
    assert (parts.nll + parts.plus + parts.minus).item() == close(value.item())


def close(value):
    return pytest.approx(value, rel=2e-6, abs=1e-5)


@pytest.mark.parametrize(("form", "empirical"), COMBINATIONS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_every_smoother(name, order, form, empirical):
    """Two sentences of the text, padded: one is packed with another, one holds an unseen word and a hole."""
    first, second, third = (list(sentence) for sentence in sorted(TEXT, key=len)[-3:])
    packed = [*first, EOS, *second, EOS]
    holes = [*third[:3], HOLE, *third[3:], UNSEEN, *second[:2], EOS]
    width = max(len(packed), len(holes)) + 1
    labels = [[*row, *[HOLE] * (width - len(row))] for row in (packed, holes)]
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": form, "empirical": empirical}
    check(fitted(name, order), counted(order), TEXT, labels, **options)


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(SMOOTHERS), st.sampled_from(ORDERS), st.sampled_from(COMBINATIONS), STRENGTH, STRENGTH, rows(LABEL)
)
def test_histories_from_labels(name, order, combination, plus, minus, labels):
    form, empirical = combination
    options = {"gamma_plus": plus, "gamma_minus": minus, "form": form, "empirical": empirical}
    check(fitted(name, order), counted(order), TEXT, labels, **options)


@settings(deadline=None, max_examples=100)
@given(st.data(), st.sampled_from(SMOOTHERS), st.sampled_from(ORDERS), st.sampled_from(COMBINATIONS), rows(LABEL))
def test_histories_from_inputs(data, name, order, combination, labels):
    width = len(labels[0])
    histories = [data.draw(st.lists(CONTEXT, min_size=width, max_size=width)) for _ in labels]
    form, empirical = combination
    options = {"gamma_plus": 0.3, "gamma_minus": 0.9, "form": form, "empirical": empirical}
    check(fitted(name, order), counted(order), TEXT, labels, histories, **options)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SMOOTHERS), st.sampled_from(ORDERS), st.sampled_from(COMBINATIONS), rows(LABEL))
def test_a_table_on_a_trie_of_its_own(name, order, combination, labels):
    """A table of another text, as from an ARPA file: its n-grams and those of the counts differ."""
    fitted = fit(name, count(make_text(sentences=25, seed=3), VOCAB, order))
    table = replace(
        fitted, signature={"smoother": "arpa"}
    )  # with that of its counts, empirical="ngram" would refuse it
    form, empirical = combination
    options = {"gamma_plus": 0.5, "gamma_minus": 0.5, "form": form, "empirical": empirical}
    check(table, counted(order), TEXT, labels, **options)


@pytest.mark.parametrize(("form", "empirical"), COMBINATIONS)
@pytest.mark.parametrize("thresholds", [None, (0, 0, 1)])
def test_a_table_from_an_arpa_file(tmp_path, thresholds, form, empirical):
    """Written, read back, and split against the counts of the whole text: pruned n-grams are on one trie only."""
    named = Vocabulary(size=8, eos=1, unpredictable=(0,), tokens=("<pad>", "</s>", *"abcdef"))
    table = fit("kneser-essen-ney", count(TEXT, named, 3, thresholds=thresholds))
    write_arpa(table, tmp_path / "model.arpa")
    read = read_arpa(tmp_path / "model.arpa", named)
    labels = [[*TEXT[0], EOS, *TEXT[1], EOS]]
    options = {"gamma_plus": 0.4, "gamma_minus": 0.7, "form": form, "empirical": empirical}
    check(read, count(TEXT, named, 3), TEXT, labels, **options)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SMOOTHERS), st.sampled_from(ORDERS), st.sampled_from(COMBINATIONS), rows(LABEL), st.booleans())
def test_the_linear_loss(name, order, combination, labels, with_bias):
    """hidden @ weight.T + bias through the judge, against the chunked loss: all three gradients."""
    torch.manual_seed(1)
    form, empirical = combination
    options = {"gamma_plus": 0.3, "gamma_minus": 0.6, "form": form, "empirical": empirical}
    table = fitted(name, order)
    leaves = [torch.randn(2, len(labels[0]), 3), torch.randn(VOCAB.size, 3), torch.randn(VOCAB.size)]
    hidden, weight, bias = (leaf.requires_grad_() for leaf in leaves)
    logits = hidden.double() @ weight.double().T + (bias.double() if with_bias else 0)
    value, gradient = judge(table, TEXT, labels, contexts_from(labels), logits.detach(), **options)
    used = [hidden, weight, *([bias] if with_bias else [])]
    expected = torch.autograd.grad(logits, used, gradient)
    loss = make_loss(LinearSmoothedCrossEntropy, table, counted(order), **options)
    found = loss(hidden, weight, torch.tensor(labels), bias=bias if with_bias else None).total
    assert found.item() == close(value.item())
    for one, other in zip(torch.autograd.grad(found, used), expected, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("form", "empirical"), COMBINATIONS)
def test_packing_padding_and_order_of_rows_do_not_matter(form, empirical):
    """The same sentences as one packed row, as padded rows, and in another order: one sum."""
    torch.manual_seed(2)
    sentences = [[*sentence, EOS] for sentence in TEXT[:6]]
    scores = [torch.randn(len(sentence), VOCAB.size) for sentence in sentences]
    options = {"gamma_plus": 0.3, "gamma_minus": 0.6, "form": form, "empirical": empirical}
    loss = make_loss(SmoothedCrossEntropy, fitted("kneser-essen-ney", 3), counted(3), **options)
    packed = loss(torch.cat(scores)[None].requires_grad_(), torch.tensor([[*itertools.chain(*sentences)]])).total
    for order in (range(6), (4, 2, 0, 5, 3, 1)):
        width = 2 + max(map(len, sentences))
        labels = torch.full((6, width), HOLE)
        logits = torch.randn(6, width, VOCAB.size)
        for row, i in enumerate(order):
            labels[row, : len(sentences[i])] = torch.tensor(sentences[i])
            logits[row, : len(sentences[i])] = scores[i]
        torch.testing.assert_close(loss(logits.requires_grad_(), labels).total, packed, rtol=2e-6, atol=0)
