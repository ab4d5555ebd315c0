"""One table per fold: value and gradient against a dense computation, in both layouts of `folds`; in recipes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lidstone as ld
from lidstone.errors import InputError
from lidstone.loss.folds import FoldedCrossEntropy
from lidstone.loss.reference import dense_loss, dense_target
from lidstone.loss.schedule import Schedule
from lidstone.text.history import histories_of

SIZE, EOS = 9, 2
VOCAB = ld.Vocabulary(size=SIZE, eos=EOS, unpredictable=(0, 1))
RNG = np.random.default_rng(5)
TEXT = [RNG.integers(3, SIZE, size=RNG.integers(1, 7)).tolist() for _ in range(30)]
TABLES = [
    ld.WittenBell().fit(ld.count([s for i, s in enumerate(TEXT) if i % 3 != k], VOCAB, order=3)) for k in range(3)
]
LABELS = torch.tensor([[3, 4, 5, 8, 7, EOS], [8, 8, 8, EOS, 3, 4], [5, 6, EOS, -100, -100, -100]])
INPUTS = torch.tensor([[EOS, 3, 4, 5, 8, 7], [EOS, 8, 8, 8, EOS, 3], [EOS, 5, 6, EOS, EOS, EOS]])
BY_ROW = torch.tensor([2, 0, 2])
BY_LABEL = torch.tensor([[2] * 6, [0, 0, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0]])


def logits():
    torch.manual_seed(0)
    return torch.randn(3, 6, SIZE, requires_grad=True)


def dense(scores, folds, gamma):
    targets, counted = [], LABELS != -100
    owners = folds if folds.dim() == 2 else folds[:, None].expand_as(LABELS)
    for row, tokens in enumerate(INPUTS.tolist()):
        for time, history in enumerate(histories_of(tokens, VOCAB, 3)):
            if counted[row, time]:
                table = TABLES[owners[row, time]]
                options = {"gamma_plus": gamma, "gamma_minus": gamma, "form": "exact", "empirical": "token"}
                targets.append(dense_target(table, [], tuple(history), int(LABELS[row, time]), **options))
    return dense_loss(scores[counted], torch.stack(targets)) / counted.sum()


@pytest.mark.parametrize("folds", [BY_ROW, BY_LABEL])
def test_gradcheck_passes_with_its_default_settings(folds):
    loss, scores = FoldedCrossEntropy(TABLES, gamma=0.4), logits().detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, LABELS, INPUTS, folds=folds).total, scores)


@pytest.mark.parametrize("folds", [BY_ROW, BY_LABEL])
def test_value_and_gradient_equal_the_dense_computation(folds):
    loss, scores, twin = FoldedCrossEntropy(TABLES, gamma=0.4), logits(), logits()
    parts = loss(scores, LABELS, INPUTS, folds=folds)
    parts.total.backward()
    expected = dense(twin, folds, 0.4)
    expected.backward()
    assert parts.total.item() == pytest.approx(expected.item(), abs=1e-6)
    assert (parts.nll + parts.plus + parts.minus).item() == pytest.approx(parts.total.item(), abs=1e-5)
    np.testing.assert_allclose(scores.grad, twin.grad, atol=1e-6)


def test_histories_can_be_read_from_the_labels_and_items_divide_the_sum():
    loss = FoldedCrossEntropy(TABLES, gamma=0.4)
    usual = loss(logits()[:, :3], LABELS[:, :3], INPUTS[:, :3], folds=BY_ROW).total.item()
    assert loss(logits()[:, :3], LABELS[:, :3], folds=BY_ROW).total.item() == pytest.approx(usual)
    assert loss(logits()[:, :3], LABELS[:, :3], folds=BY_ROW, num_items=18).total.item() == pytest.approx(usual / 2)


def test_equal_tables_are_the_ordinary_loss_and_eval_is_plain():
    loss, one = FoldedCrossEntropy([TABLES[0]] * 3, gamma=0.3), ld.SmoothedCrossEntropy(TABLES[0], gamma=0.3)
    scores = logits()
    assert loss(scores, LABELS, INPUTS, folds=BY_LABEL).total.item() == pytest.approx(
        one(scores, LABELS, INPUTS).total.item(), abs=1e-6
    )
    assert loss.eval()(scores, LABELS).total.item() == pytest.approx(
        ld.SmoothedCrossEntropy()(scores, LABELS).nll.item()
    )


def test_a_schedule_reaches_every_table():
    loss = FoldedCrossEntropy(TABLES, gamma=0.3, schedule=Schedule("linear", end=0.0))
    loss.progress = 1.0
    parts = loss(logits(), LABELS, INPUTS, folds=BY_LABEL)
    assert parts.plus.item() == 0 and parts.total.item() == pytest.approx(parts.nll.item())


def test_what_does_not_fit_is_refused():
    loss = FoldedCrossEntropy(TABLES, gamma=0.3)
    with pytest.raises(InputError, match="no folds"):
        loss(logits(), LABELS, INPUTS)
    with pytest.raises(InputError, match="fold 3 has no table"):
        loss(logits(), LABELS, INPUTS, folds=BY_ROW + 1)
    with pytest.raises(InputError, match="shape"):
        loss(logits(), LABELS, INPUTS, folds=torch.zeros(2))
    with pytest.raises(InputError, match="two tables"):
        FoldedCrossEntropy(TABLES[:1], gamma=0.3)


@pytest.mark.parametrize("block", [None, 8])
def test_a_recipe_trains_with_folds(tmp_path, monkeypatch, block):
    pytest.importorskip("pydantic")
    from tests.tiny import lm_values, recipe, write_texts

    from lidstone.lab.run.run import train

    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    settings = {"smoother": "witten-bell", "gamma": 0.3, "order": 3}
    values = lm_values(write_texts(tmp_path), max_steps=6, block_length=block)
    records = [
        train(recipe({**values, "regularizer": {**settings, **more}}), tmp_path / "runs").record
        for more in ({}, {"folds": 4})
    ]
    assert len(records[1]["signature"]["table"]["folds"]) == 4
    assert records[1]["method"]["parameters"] == {"folds": 4}
    assert records[0]["metrics"]["test"]["perplexity"] != records[1]["metrics"]["test"]["perplexity"]


def test_folds_are_for_language_models_and_single_tokens(tmp_path):
    pytest.importorskip("pydantic")
    from tests.tiny import mt_values, recipe, write_texts

    from lidstone.errors import RecipeError
    from lidstone.lab.recipe.recipe import make_recipe

    values = mt_values(write_texts(tmp_path))
    values["regularizer"]["folds"] = 2
    with pytest.raises(RecipeError, match="language models"):
        recipe(values)
    settings = {"smoother": "katz", "gamma": 0.1, "folds": 2, "empirical": "ngram"}
    with pytest.raises(RecipeError, match="empirical: token"):
        make_recipe({"task": "lm", "corpus": {"name": "embedded"}, "regularizer": settings})
