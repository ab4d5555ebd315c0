"""The methods reverse_kl and ndp against dense computations in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("pydantic")

from tests.tiny import lm_values, recipe, write_texts

import lidstone as ld
from lidstone.errors import InputError
from lidstone.lab.methods.reverse_kl import ReverseKL
from lidstone.lab.run.run import train
from lidstone.lab.run.setup import make_loss, prepare_corpus, training_text
from lidstone.loss.schedule import Schedule
from lidstone.text.history import histories_of

SIZE, EOS = 9, 2
VOCAB = ld.Vocabulary(size=SIZE, eos=EOS, unpredictable=(0, 1))
RNG = np.random.default_rng(3)
TEXT = [RNG.integers(3, SIZE, size=RNG.integers(1, 7)).tolist() for _ in range(25)]
LABELS = torch.tensor([[3, 4, 5, 8, 7, EOS], [8, 8, 8, EOS, 3, 4], [5, 6, EOS, -100, -100, -100]])
INPUTS = torch.tensor([[EOS, 3, 4, 5, 8, 7], [EOS, 8, 8, 8, EOS, 3], [EOS, 5, 6, EOS, EOS, EOS]])


def logits():
    torch.manual_seed(0)
    return torch.randn(3, 6, SIZE, requires_grad=True)


def dense(scores, table, gamma):
    """-log q(y) + gamma sum over events of q (log q - log p~), the mean over labels."""
    events, total, counted = torch.tensor(VOCAB.events), torch.zeros(()).double(), LABELS != -100
    for row, tokens in enumerate(INPUTS.tolist()):
        for time, history in enumerate(histories_of(tokens, VOCAB, table.order)):
            if counted[row, time]:
                log_q = torch.log_softmax(scores[row, time].double(), -1)
                log_p = torch.tensor(table.prob([history])[0])[events].log()
                kl = (log_q[events].exp() * (log_q[events] - log_p)).sum()
                total = total - log_q[LABELS[row, time]] + gamma * kl
    return total / counted.sum()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_value_and_gradient_of_reverse_kl_equal_the_dense_computation(order):
    table = ld.WittenBell().fit(ld.count(TEXT, VOCAB, order=order))
    scores, twin = logits(), logits()
    found = ReverseKL(table, 0.4)(scores, LABELS, INPUTS)
    found.total.backward()
    expected = dense(twin, table, 0.4)
    expected.backward()
    assert found.total.item() == pytest.approx(expected.item(), abs=1e-5)
    np.testing.assert_allclose(scores.grad, twin.grad, atol=1e-6)
    without = ReverseKL(table, 0.4)(scores[:, :3], LABELS[:, :3])  # histories from the labels
    assert without.total.item() == pytest.approx(
        ReverseKL(table, 0.4)(scores[:, :3], LABELS[:, :3], INPUTS[:, :3])[0].item()
    )


def test_reverse_kl_follows_its_schedule_and_is_gone_in_evaluation():
    table = ld.WittenBell().fit(ld.count(TEXT, VOCAB, order=2))
    loss = ReverseKL(table, 0.4, schedule=Schedule("linear", end=0.0))
    loss.progress = 1.0
    assert loss(logits(), LABELS, INPUTS).plus.item() == 0
    loss.progress = 0.0
    assert loss.eval()(logits(), LABELS, INPUTS).plus.item() == 0
    zeros = ld.JelinekMercer(weights=1.0, base="unigram").fit(ld.count([[3, 4]], VOCAB, order=2))
    with pytest.raises(InputError, match="above 0"):
        ReverseKL(zeros, 0.4)


def test_ndp_mixes_the_target_with_relative_frequencies(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    made = recipe({**lm_values(write_texts(tmp_path)), "regularizer": {"kind": "ndp", "gamma": 0.3, "order": 3}})
    prepared = prepare_corpus(made)
    loss = make_loss(made.regularizer, training_text(prepared), 10)
    sentence = [prepared.vocab.eos, *prepared.train.target[0].tolist(), prepared.vocab.eos]
    inputs, labels = torch.tensor([sentence[:-1]]), torch.tensor([sentence[1:]])
    scores = torch.randn(1, len(sentence) - 1, prepared.vocab.size, requires_grad=True)
    expected, text = 0.0, [[prepared.vocab.bos, *s.tolist(), prepared.vocab.eos] for s in prepared.train.target]
    for time, history in enumerate(histories_of(sentence[:-1], prepared.vocab, 3)):
        followers = torch.zeros(prepared.vocab.size).double()
        for other in text:
            for end in range(1, len(other)):
                followers[other[end]] += tuple(other[max(0, end - 2) : end]) == tuple(history)
        target = 0.3 * followers / followers.sum()
        target[labels[0, time]] += 0.7
        expected -= (target * torch.log_softmax(scores[0, time].double(), -1)).sum().item() / labels.numel()
    assert loss(scores, labels, inputs).total.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("settings", [{"kind": "reverse_kl", "smoother": "witten-bell"}, {"kind": "ndp"}])
def test_a_recipe_trains_with_it(tmp_path, monkeypatch, settings):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    values = lm_values(write_texts(tmp_path), max_steps=4)
    record = train(recipe({**values, "regularizer": {**settings, "gamma": 0.2, "order": 3}}), tmp_path / "runs").record
    assert record["method"]["kind"] == settings["kind"] and record["method"]["order"] == 3
    assert record["signature"]["table"]["order"] == 3
