"""The estimate of a training's time, from a few of its updates."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import lm_values, mt_values, recipe, write_texts

pytest.importorskip("transformers")

from lidstone.corpus.prepare import prepare_corpus
from lidstone.experiment import estimate
from lidstone.experiment.estimate import estimate_seconds
from lidstone.training.fit import Fitted


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


def test_the_estimate_is_updates_and_evaluations_and_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    values = lm_values(write_texts(tmp_path, (60, 10, 10)), max_steps=12, eval_every=4)
    prepared = prepare_corpus(recipe(values))
    monkeypatch.setattr("lidstone.training.fit.fit", lambda *args: Fitted([], 0.0, 6, {}, update_seconds=2.0))
    monkeypatch.setattr(
        estimate, "_seconds_of_scoring", lambda scorer, model, split: 7.0 if split is prepared.valid else 11.0
    )
    assert estimate_seconds(recipe(values), prepared) == 12 * 2.0 + 3 * 7.0 + 11.0
