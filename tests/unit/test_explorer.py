"""The report's explorer gets its data from the tables that a recipe trains with."""

from __future__ import annotations

import json

import pytest
from tests.tiny import SIX_METHODS

from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.run.record import write_explorer


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    return load_recipe(SIX_METHODS, ["corpus.limit=400"])


def test_every_smoother_of_a_recipe_is_there_with_its_split(recipe, tmp_path):
    data = json.loads(write_explorer(recipe, tmp_path).read_text())
    assert data["histories"][0]["history"] == ["<s>"]
    assert len(data["histories"]) > 20
    for entry in data["histories"]:
        assert set(entry["smoothers"]) == {"add-lambda", "good-turing", "jelinek-mercer", "katz", "kneser-essen-ney"}
        for found in entry["smoothers"].values():
            for word in found["words"]:  # p~ - p = Z (p+ - p-)
                moved = found["z"] * (word["plus"] - word["minus"])
                assert word["smoothed"] - word["p"] == pytest.approx(moved, abs=1e-9)


def test_a_smoother_that_is_undefined_for_so_little_text_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "same.txt").write_text("a b c\n" * 40)
    recipe = load_recipe(
        SIX_METHODS, ["corpus.name=null", f"corpus.train={tmp_path / 'same.txt'}", "tokenizer.kind=word"]
    )
    data = json.loads(write_explorer(recipe, tmp_path).read_text())
    assert set(data["histories"][0]["smoothers"]) == {"add-lambda", "jelinek-mercer"}


def test_a_recipe_without_smoothers_has_nothing_to_explore(recipe, tmp_path):
    assert write_explorer(recipe.method("none"), tmp_path) is None
    assert not (tmp_path / "explorer.json").exists()
