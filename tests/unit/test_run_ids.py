"""The id of a run is what finds it again: committed runs must keep theirs, whatever the recipe's classes become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from lidstone.lab.recipe.recipe import make_recipe
from lidstone.lab.report.packed import read_bytes, records_in
from lidstone.lab.run.record import identity

STUDIES = sorted((Path(__file__).parents[2] / "results").glob("*.runs"))
RUNS = [file for study in STUDIES for file in records_in(study)]


def recomputed(record: dict) -> str:
    signature = record["signature"]
    outside = signature.get("table_source"), signature.get("checkpoint")
    return identity(make_recipe(record["config"]), signature["corpus"], signature["vocabulary"], *outside)


def test_committed_runs_of_both_tasks_keep_their_ids() -> None:
    records = [json.loads(read_bytes(file)) for file in RUNS]
    assert {record["task"] for record in records} == {"lm", "mt"}
    assert len(records) > 100
    moved = {record["id"]: recomputed(record) for record in records if recomputed(record) != record["id"]}
    assert moved == {}


@pytest.mark.parametrize("change", [{"seed": 99}, {"learning_rate": 0.5}, {"patience": 1}])
def test_what_changes_the_training_changes_the_id(change: dict) -> None:
    record = json.loads(read_bytes(RUNS[0]))
    record["config"]["training"] |= change
    assert recomputed(record) != record["id"]


def test_threads_names_and_the_sweep_do_not_change_the_id() -> None:
    record = json.loads(read_bytes(RUNS[0]))
    record["config"]["training"]["threads"] = 7
    record["config"]["name"] = record["config"]["regularizer"]["name"] = "another"
    record["config"]["sweep"] = {"seeds": [4]}
    assert recomputed(record) == record["id"]


def test_references_in_another_form_are_another_translation_run() -> None:
    """`done` has the tokens of `none`, but detokenizes references and translations."""
    files = {split: {"source": "a", "target": "b"} for split in ("train", "valid", "test")}
    made = {
        tokenization: make_recipe({"task": "mt", "corpus": {**files, "tokenization": tokenization}})
        for tokenization in ("none", "done")
    }
    sums = {"train": "t", "valid": "v", "test": "e"}
    assert len({identity(recipe, sums, "vocabulary") for recipe in made.values()}) == 2
