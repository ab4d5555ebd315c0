"""The estimate of a training's time, from a few of its updates."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import lm_values, mt_values, recipe, write_texts

pytest.importorskip("transformers")

from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.run import run
from lidstone.lab.run.checkpoints import Fitted
from lidstone.lab.run.run import estimate_seconds


@pytest.mark.parametrize("make", [lm_values, mt_values])
def test_the_estimate_grows_with_the_updates_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make
) -> None:
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    files = write_texts(tmp_path, (60, 10, 10))
    before = {path.name for path in tmp_path.iterdir()}
    values = make(files, max_steps=1000, eval_every=100)
    seconds = estimate_seconds(recipe(values), prepare_corpus(recipe(values)))
    assert 0.5 < seconds < 600  # a thousand updates of a millisecond, at least
    assert {path.name for path in tmp_path.iterdir()} == before | {"cache"}


@pytest.mark.parametrize(
    ("make", "evaluation", "valid", "test"),
    [
        (lm_values, {}, 10, 8),
        (lm_values, {"valid_limit": 4}, 4, 8),
        (mt_values, {"metric": "perplexity"}, 10, 2 * 8),
        (mt_values, {"metric": "bleu", "valid_limit": 5}, 2 * 5, 2 * 8),
    ],
)
def test_the_estimate_is_updates_and_evaluations_and_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make, evaluation, valid, test
) -> None:
    """With two seconds for an update, and one for each sentence that is scored or translated."""
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    values = make(write_texts(tmp_path, (60, 10, 8)), max_steps=12, eval_every=4)
    values["evaluation"] = values.get("evaluation", {}) | evaluation
    monkeypatch.setattr("lidstone.lab.run.trainer.fit", lambda *args: Fitted([], 0.0, 0.0, 6, {}, update_seconds=2.0))
    monkeypatch.setattr(run, "_timed", lambda work, count, sample: float(count))
    assert estimate_seconds(recipe(values), prepare_corpus(recipe(values))) == 12 * 2 + 3 * valid + test
