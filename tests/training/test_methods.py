"""The n-gram model and the mixture in every run; noising and the residual from the recipe to the saved model."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import lm_values, recipe, write_texts

import lidstone as ld
from lidstone.errors import InputError, RecipeError
from lidstone.hf.perplexity import score_sentences
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.methods.base import residual_of
from lidstone.lab.methods.residual import generating
from lidstone.lab.run.run import train
from lidstone.lab.run.saved import load_saved
from lidstone.lab.run.scoring import choose_ngram, fit_ngram
from lidstone.lab.run.setup import make_batches, training_text
from lidstone.lab.run.use import continue_prompt

RESIDUAL = {"kind": "residual", "smoother": "witten-bell", "order": 3, "gamma": 0.5}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    return write_texts(tmp_path)


def run_of(files, tmp_path, regularizer, **training):
    values = {**lm_values(files, **training), "regularizer": regularizer}
    return train(recipe(values), tmp_path / "runs"), recipe(values)


def test_a_run_keeps_the_ngram_model_and_the_mixture(files, tmp_path):
    run, used = run_of(files, tmp_path, {})
    prepared = prepare_corpus(used)
    ngram, mixture = run.record["ngram"], run.record["mixture"]
    assert ngram["order"] == int(min(ngram["valid_by_order"], key=ngram["valid_by_order"].get))
    table = fit_ngram(prepared, ngram["order"])
    assert ngram["test"]["perplexity"] == pytest.approx(table.perplexity(prepared.test.target.stream).value)
    mixed = ld.Mixture(load_saved(run.folder).model, table).fit(list(prepared.valid.target))
    assert mixture["weight"] == pytest.approx(mixed.weight, abs=1e-6)
    scores = mixed.score(list(prepared.test.target))
    assert mixture["test"]["perplexity"] == pytest.approx(scores.mixture.perplexity, rel=1e-6)
    assert run.record["metrics"]["test"]["perplexity"] == pytest.approx(scores.network.perplexity, rel=1e-6)
    valid = (mixture["valid"], ngram["valid"], run.record["metrics"]["valid"])
    assert valid[0]["perplexity"] <= min(part["perplexity"] for part in valid[1:]) + 1e-6
    kept = json.loads(gzip.decompress((run.folder / "sentences.json.gz").read_bytes()))
    for name, found in (("nll", scores.network), ("ngram_nll", scores.ngram), ("mixture_nll", scores.mixture)):
        np.testing.assert_allclose(kept[name], found.nll, atol=1e-4)


def test_orders_are_a_choice_and_do_not_name_the_run(files, tmp_path):
    plain = recipe(lm_values(files))
    assert "ngram_orders" not in plain.to_dict()["evaluation"]
    none = recipe({**lm_values(files), "evaluation": {"ngram_orders": []}})
    assert choose_ngram(prepare_corpus(none), none.evaluation.ngram_orders) is None
    assert "folds" not in plain.to_dict()["regularizer"]
    assert "noise" not in plain.to_dict()["regularizer"]


def test_noise_changes_training_and_nothing_else(files, tmp_path):
    noised, used = run_of(files, tmp_path, {"kind": "noising", "noise": "unigram", "gamma": 0.3})
    plain, _ = run_of(files, tmp_path, {})
    assert noised.record["method"]["parameters"] == {"noise": "unigram"}
    assert noised.record["method"]["form"] is None
    assert noised.record["curve"][0]["train_nll"] != plain.record["curve"][0]["train_nll"]
    model, prepared = load_saved(noised.folder).model, prepare_corpus(used)
    again = score_sentences(model, list(prepared.test.target), eos=2, limit=16)
    assert again.perplexity == pytest.approx(noised.record["metrics"]["test"]["perplexity"])


def test_a_resumed_training_sees_the_same_noise(files, tmp_path):
    values = {**lm_values(files), "regularizer": {"kind": "noising", "gamma": 0.5}}
    whole = train(recipe(values), tmp_path / "whole")

    def stop(scores):
        stop.calls = getattr(stop, "calls", 0) + 1
        if stop.calls == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe(values), tmp_path / "cut", watch=stop)
    resumed = train(recipe(values), tmp_path / "cut", resume=True)
    assert resumed.record["metrics"] == whole.record["metrics"]


@pytest.mark.parametrize("training", [{}, {"block_length": 8}])
def test_a_residual_is_saved_with_its_table(files, tmp_path, training):
    run, used = run_of(files, tmp_path, {**RESIDUAL, "folds": 3}, **training)
    saved, prepared = load_saved(run.folder), prepare_corpus(used)
    assert residual_of(saved.model).alpha == 0.5
    again = score_sentences(saved.model, list(prepared.test.target), eos=2, limit=16)
    assert again.perplexity == pytest.approx(run.record["metrics"]["test"]["perplexity"])
    assert run.record["signature"]["table"]["smoother"] == "witten-bell"
    assert run.record["method"]["parameters"] == {"folds": 3}
    assert len(continue_prompt(saved, number=2, limit=5)) == 2


def test_a_residual_generates_what_it_scores(files, tmp_path):
    """Greedy generation with a cache chooses the best word of the whole model at every step."""
    run, _ = run_of(files, tmp_path, RESIDUAL)
    model, ids = load_saved(run.folder).model, torch.tensor([[2]])
    with generating(model) as processors:
        made = model.generate(ids, logits_processor=processors, do_sample=False, max_new_tokens=6, pad_token_id=2)
    for end in range(1, made.shape[1]):
        with torch.no_grad():
            assert model(input_ids=made[:, :end]).logits[0, -1].argmax() == made[0, end]


def test_a_residual_is_right_however_the_model_is_called(files, tmp_path):
    run, _ = run_of(files, tmp_path, RESIDUAL)
    model, ids = load_saved(run.folder).model, torch.tensor([[2, 5, 6, 7], [2, 8, 5, 9]])
    with torch.no_grad():
        whole = model(input_ids=ids).logits
        assert torch.equal(model(ids).logits, whole)
        torch.testing.assert_close(model(input_ids=ids, logits_to_keep=1).logits, whole[:, -1:])
        loss = model(input_ids=ids, labels=ids).loss
        torch.testing.assert_close(
            loss, torch.nn.functional.cross_entropy(whole[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        )
        greedy = {"do_sample": False, "max_new_tokens": 5, "pad_token_id": 2}
        made = model.generate(ids, attention_mask=torch.ones_like(ids), use_cache=False, **greedy)
        for end in range(4, made.shape[1]):
            rows = model(input_ids=made[:, :end]).logits[:, -1].argmax(-1)
            open_rows = (made[:, 4:end] != 2).all(-1)
            assert torch.equal(rows[open_rows], made[open_rows, end])
        with pytest.raises(InputError, match="whole text, not a cache"):
            model.generate(ids, attention_mask=torch.ones_like(ids), **greedy)
        for wrong in ({"inputs_embeds": torch.zeros(1, 2, 16)}, {"input_ids": ids, "return_dict": False}):
            with pytest.raises(InputError, match="needs ids"):
                model(**wrong)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_reserved_words_of_a_text_are_unknown_words(files, tmp_path, split):
    path = Path(files[split]["target"])
    path.write_text("the <pad> old <bos> house </s> sees\n" + path.read_text())
    run, used = run_of(files, tmp_path, {})
    found = getattr(prepare_corpus(used), split).target
    assert next(iter(found)).tolist().count(prepare_corpus(used).vocab.unk) == 3
    assert run.record["mixture"]["test"]["perplexity"] > 1


def test_no_table_has_seen_the_sentences_of_its_fold(files):
    used = recipe({**lm_values(files), "regularizer": {**RESIDUAL, "folds": 4}})
    prepared = prepare_corpus(used)
    sentences = list(prepared.train.target)
    folds = [sentence % 4 for sentence in range(len(sentences))]
    for number, table in enumerate(training_text(prepared).fold_tables(used.regularizer, 4)):
        rest = [sentence for sentence, fold in zip(sentences, folds, strict=True) if fold != number]
        expected = ld.WittenBell().fit(ld.count(rest, prepared.vocab, order=3))
        np.testing.assert_array_equal(table.rows, expected.rows)


@pytest.mark.parametrize("block", [None, 8])
def test_batches_know_the_fold_of_every_label(files, block):
    used = recipe({**lm_values(files, block_length=block), "regularizer": {**RESIDUAL, "folds": 4}})
    prepared = prepare_corpus(used)
    lengths = prepared.train.target.lengths
    expected = sorted(zip(prepared.train.target.stream, np.repeat(np.arange(len(lengths)) % 4, lengths), strict=True))
    found = []
    for batch in make_batches(used, prepared):
        counted = batch["labels"] != -100
        found += zip(batch["labels"][counted].tolist(), batch["folds"][counted].tolist(), strict=True)
    assert sorted(found) == expected


@pytest.mark.parametrize(
    ("regularizer", "message"),
    [
        ({"kind": "residual", "gamma": 0.5}, "contradict"),
        ({**RESIDUAL, "gamma": 0.0}, "above 0"),
        ({"kind": "noising"}, "needs gamma"),
        ({"kind": "noising", "gamma": 1.5}, "probability"),
        ({**RESIDUAL, "schedule": {"kind": "linear"}}, "schedule"),
        ({"kind": "noising", "gamma": 0.5, "folds": 3}, "folds are for a smoother's table"),
    ],
)
def test_what_makes_no_sense_is_refused(files, regularizer, message):
    with pytest.raises(RecipeError, match=message):
        recipe({**lm_values(files), "regularizer": regularizer})
