"""Theorem 2: label smoothing of an n-gram model is add-lambda or Jelinek-Mercer, depending on what carries weight one.

    per history type:  sum_h [ c(h) KL(p(.|h) || q) + gamma KL(u || q) ]    minimal at add-lambda, lambda = gamma/|E|
    per position:      sum_h c(h) [ KL(p(.|h) || q) + gamma KL(u || q) ]    minimal at (p + gamma u) / (1 + gamma)

|E| is the paper's |Sigma| + 1. Each is shown twice: in closed form, and by descending the objective from a random q.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.smoothing_cases import VOCAB, counted, empirical, text_histories

from lidstone.errors import LidstoneError
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer
from lidstone.ngram.smoothers.label_smoothing import LabelSmoothing

ORDERS = (1, 2, 3)
GAMMAS = (0.1, 1.0, 7.0)
EVENTS = torch.tensor(VOCAB.events)
UNIFORM = torch.tensor(VOCAB.events / VOCAB.event_count)


def corpus(order):
    """c(h) and c(h, w)/c(h) of all histories of the text: (histories,), (histories, V)."""
    histories = text_histories(order)
    counts = counted(order)
    totals = [counts.tokens if not h else int(counts.totals[counts.trie.find(h)]) for h in histories]
    rows = np.stack([empirical(h, order) for h in histories])
    return histories, torch.tensor(totals, dtype=torch.float64), torch.tensor(rows)


def objective(logits, totals, rows, gamma, *, per_type):
    """The regularized likelihood, but for a constant; logits (histories, V) are those of a free n-gram model q."""
    log_q = torch.log_softmax(logits.masked_fill(~EVENTS, -torch.inf), -1).masked_fill(~EVENTS, 0)
    likelihood = -(rows * log_q).sum(-1)
    smoothing = -(UNIFORM * log_q).sum(-1)
    weight = torch.ones_like(totals) if per_type else totals
    return (totals * likelihood + weight * gamma * smoothing).sum()


def descend(order, gamma, *, per_type):
    """The q that minimises the objective, found by L-BFGS from a random start: (histories, V)."""
    _, totals, rows = corpus(order)
    torch.manual_seed(0)
    logits = torch.randn(rows.shape, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [logits], max_iter=500, tolerance_grad=1e-11, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = objective(logits, totals, rows, gamma, per_type=per_type)
        value.backward()
        return value

    optimizer.step(closure)
    return torch.softmax(logits.detach().masked_fill(~EVENTS, -torch.inf), -1).numpy()


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("order", ORDERS)
class TestPerHistoryType:
    def test_in_closed_form(self, order, gamma):
        """c(h) p + gamma u, normalised: (c(hw) + gamma/|E|) / (c(h) + gamma)."""
        histories, totals, rows = corpus(order)
        best = (totals[:, None] * rows + gamma * UNIFORM) / (totals[:, None] + gamma)
        found = AddLambda(lam=gamma / VOCAB.event_count).fit(counted(order)).prob(histories)
        np.testing.assert_allclose(found, best, atol=1e-14)

    def test_by_descent(self, order, gamma):
        histories, _, _ = corpus(order)
        expected = AddLambda(lam=gamma / VOCAB.event_count).fit(counted(order)).prob(histories)
        np.testing.assert_allclose(descend(order, gamma, per_type=True), expected, atol=1e-6)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("order", ORDERS)
class TestPerPosition:
    def test_in_closed_form(self, order, gamma):
        histories, _, rows = corpus(order)
        best = (rows + gamma * UNIFORM) / (1 + gamma)
        found = LabelSmoothing(gamma=gamma).fit(counted(order)).prob(histories)
        np.testing.assert_allclose(found, best, atol=1e-14)

    def test_by_descent(self, order, gamma):
        histories, _, _ = corpus(order)
        expected = LabelSmoothing(gamma=gamma).fit(counted(order)).prob(histories)
        np.testing.assert_allclose(descend(order, gamma, per_type=False), expected, atol=1e-6)

    def test_it_is_jelinek_mercer_with_the_uniform(self, order, gamma):
        """Only the top order has weight, 1/(1 + gamma); at the top order alone "whole" histories are meant."""
        histories = [h for h in text_histories(order) if len(h) == order - 1]
        weights = (0.0,) * (order - 1) + (1 / (1 + gamma),)
        mixed = JelinekMercer(weights=weights, base="uniform").fit(counted(order)).prob(histories)
        smoothed = LabelSmoothing(gamma=gamma).fit(counted(order)).prob(histories)
        np.testing.assert_allclose(mixed, smoothed, atol=1e-14)


def test_the_two_differ_where_counts_are_large():
    """Add-lambda trusts a frequent history; label smoothing per position takes the same share from all.

    The uniform's share is gamma/(c(h) + gamma) by type and gamma/(1 + gamma) by position, whatever c(h).
    """
    histories, totals, rows = corpus(2)
    by_type = AddLambda(lam=1 / VOCAB.event_count).fit(counted(2)).prob(histories)
    by_position = LabelSmoothing(gamma=1.0).fit(counted(2)).prob(histories)
    moved = [np.abs(p - rows.numpy()).sum(-1) / 2 for p in (by_type, by_position)]
    np.testing.assert_allclose(moved[0] / moved[1], 2 / (totals + 1), rtol=1e-10)
    assert totals.max() > 30


def test_both_strengths_of_label_smoothing():
    gamma, counts = 0.25, counted(2)
    one, other = (LabelSmoothing(gamma=gamma), LabelSmoothing(epsilon=gamma / (1 + gamma)))
    np.testing.assert_allclose(one.fit(counts).prob([[1]]), other.fit(counts).prob([[1]]), rtol=1e-14)
    assert LabelSmoothing() == LabelSmoothing(gamma=0.1)
    for wrong in ({"gamma": 0.1, "epsilon": 0.1}, {"epsilon": 1.5}, {"gamma": -1.0}):
        with pytest.raises(LidstoneError):
            LabelSmoothing(**wrong)
