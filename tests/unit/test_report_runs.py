"""Reading runs: damaged, unfinished, newer, doubled and incomparable ones."""

from __future__ import annotations

import gzip
import json
import os
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from lidstone.errors import FileFormatError, InputError
from lidstone.lab.report import Report, Run, load_runs
from lidstone.lab.report.comparisons import compare_runs

trees = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "run_trees.py")))


def test_a_tree_is_read_and_nothing_in_it_changes(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=2)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert len(load_runs(tmp_path).runs) == 12
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged"),
        ('{"schema": 1, "id": "ab', "is damaged"),
        ("[1, 2]", "it has no run"),
        ('{"schema": 1}', "'method' is missing"),
        ('{"schema": true}', "'schema' is not what it should be"),
        ("\xff\xfe", "is damaged"),
    ],
)
def test_a_damaged_run_is_named_and_skipped_only_on_request(tmp_path: Path, text: str, message: str) -> None:
    trees.write_tree(tmp_path, seeds=2, names=("none", "katz"))
    bad = tmp_path / "bad" / "run.json"
    bad.parent.mkdir()
    bad.write_text(text, encoding="latin-1")
    with pytest.raises(FileFormatError, match=message) as caught:
        load_runs(tmp_path)
    assert str(bad) in caught.value.message and "--skip-damaged" in caught.value.hint
    loaded = load_runs(tmp_path, skip_damaged=True)
    assert len(loaded.runs) == 4 and str(bad) in loaded.notes[0]
    assert bad.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"sentences": "x"}, {"config": [1]}, {"cost": "x"}, {"curve": 5}, {"names": "x"}, {"metrics": {"test": 5}},
        {"signature": {"corpus": "abc"}}, {"method": {"parameters": [1]}},
        {"method": {"gamma_plus": {"a": 1}, "gamma_minus": 0.1}}, {"method": {"gamma": "x"}},
    ],
)  # fmt: skip
def test_a_part_of_the_wrong_kind_is_damage(tmp_path: Path, change: dict) -> None:
    trees.write_run(tmp_path, trees.record("katz", 1) | change)
    with pytest.raises(FileFormatError, match="not what it should be"):
        load_runs(tmp_path)


def test_a_run_under_several_names_stands_for_each(tmp_path: Path) -> None:
    trees.write_run(tmp_path, trees.record("katz", 1, names=["katz", "mine"]))
    assert [run.name for run in load_runs(tmp_path).runs] == ["katz", "mine"]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    trees.write_run(tmp_path, trees.record("katz", 1, schema=2))
    with pytest.raises(FileFormatError, match="schema 2, this lidstone reads up to 1"):
        load_runs(tmp_path)


def test_unfinished_and_doubled_runs_are_left_out_with_a_note(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=2, names=("none",))
    trees.write_run(tmp_path, trees.record("none", 3, status="running"))
    trees.write_run(tmp_path / "copy", trees.record("none", 1))  # same setting and seed: not an independent seed
    (tmp_path / "cut" / "checkpoints").mkdir(parents=True)
    (tmp_path / "hopeless").mkdir()
    (tmp_path / "hopeless" / "pruned.json").write_text("{}")
    loaded = load_runs(tmp_path)
    assert sorted(run.seed for run in loaded.runs) == [1, 2]
    assert [note.split(":")[0].split(" as ")[0] for note in loaded.notes] == [
        "Left out, running",
        "Left out, same setting and seed",
        "Left out, unfinished",
        "Left out, stopped early by the search",
    ]


def test_a_run_given_as_a_value_and_in_a_folder_counts_once(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=2, names=("none",))
    report = Report.from_runs([*load_runs(tmp_path).runs, tmp_path])
    assert len(report.runs) == 2 and len(report.notes) == 2
    with pytest.raises(InputError, match="none of the runs is complete"):
        Report.from_runs([Run.from_dict(trees.record("none", 1, status="running"))])


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=2, names=("none",))
    assert len(load_runs([tmp_path, tmp_path / "."]).runs) == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vocabulary": "beef"}, "vocabulary differs"),
        ({"corpus": {"name": "other", "test": "zz"}}, r"test set differs: e0 \(\d runs of made-up"),
        ({"metric": "perplexity per word"}, "metric differs: perplexity per token"),
        ({"test_sentences": 7}, "test sentences differs"),
    ],
)
def test_runs_of_different_tests_are_refused_with_what_differs(tmp_path: Path, change: dict, told: str) -> None:
    one, other = trees.record("none", 1), trees.record("katz", 1)
    other["signature"] = other["signature"] | change
    for run in (one, other):
        trees.write_run(tmp_path, run)
    with pytest.raises(InputError, match=told) as caught:
        Report.from_runs(tmp_path)
    assert other["id"] in caught.value.message and "--split" in caught.value.hint
    assert [len(report.runs) for report in Report.split(tmp_path)] == [1, 1]


@pytest.mark.parametrize("what", ["nowhere", "empty"])
def test_no_runs_is_an_error(tmp_path: Path, what: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=what):
        load_runs(tmp_path / what)


def test_a_damaged_explorer_is_named(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=1, names=("none",))
    (tmp_path / "explorer.json").write_text("{")
    with pytest.raises(FileFormatError, match=r"explorer\.json is damaged"):
        load_runs(tmp_path)


def test_a_missing_sentences_file_is_named(tmp_path: Path) -> None:
    run = Run.from_dict(json.loads(json.dumps(trees.record("katz", 1))), tmp_path / "run.json")
    with pytest.raises(FileFormatError, match=r"sentences\.json\.gz"):
        run.sentences()
    trees.write_run(tmp_path, trees.record("katz", 1))
    (run,) = load_runs(tmp_path).runs
    whole = run.sentences_file.read_bytes()
    run.sentences_file.write_bytes(whole[:40] + bytes(byte ^ 255 for byte in whole[40:120]) + whole[120:])
    with pytest.raises(FileFormatError, match=r"sentences\.json\.gz"):
        run.sentences()


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../other/sentences.json.gz", "below/sentences.json", "c:s.json", "nul.json"]
)
def test_sentences_are_only_read_beside_the_record(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileFormatError, match="as its sentences"):
        Run.from_dict({**trees.record("katz", 1), "sentences": {"file": name}}, tmp_path / "run.json")


@pytest.mark.unix
def test_sentences_are_a_regular_file_of_an_honest_size(tmp_path: Path) -> None:
    run = Run.from_dict(trees.record("katz", 1), tmp_path / "run.json")
    assert run.sentences_file
    os.mkfifo(run.sentences_file)
    with pytest.raises(FileFormatError, match="not a regular one"):
        run.sentences()
    run.sentences_file.unlink()
    run.sentences_file.write_bytes(gzip.compress(b" " * 2**24))
    with pytest.raises(FileFormatError, match="much larger than it should be"):
        run.sentences()


def test_runs_that_say_little_are_noted_and_noise_is_not_ranked(tmp_path: Path) -> None:
    noise = {"metrics": {"valid": {"bleu": 0.1, "step": 40}, "test": {"bleu": 0.03}},
             "curve": [{"step": step, "valid_bleu": 0.1} for step in (20, 40)],
             "config": {"training": {"warmup_steps": 100}}}  # fmt: skip
    for name in ("none", "katz"):
        trees.write_run(tmp_path, trees.record(name, 1, task="mt", **noise))
    report = Report.from_runs(tmp_path)
    assert report.verdict == "No method has learned to translate: every BLEU is below 1."
    assert [row.rank for row in report.table().rows] == [0, 0]
    said = [note.partition(" (")[0] for note in report.warnings if "2 of 2 runs (none, katz)" in note]
    assert said == ["Ended in the warm-up: 2 of 2 runs", "BLEU below 1: 2 of 2 runs",
                    "Still improving at the last evaluation: 2 of 2 runs"]  # fmt: skip


def test_a_run_without_curve_and_recipe_has_no_shortcomings() -> None:
    assert Run.from_dict(trees.record("none", 1, curve=[], config={})).shortcomings == ()


def test_strengths_at_the_edge_of_those_tried_are_named(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=2, grid=True, names=("none", "jelinek-mercer", "katz"))
    (note,) = (note for note in Report.from_runs(tmp_path).warnings if "edge" in note)
    assert note.endswith("may lie beyond: jelinek-mercer γ₋=0.5 (highest of 5).")  # of 0.005 to 0.5, as γ₊=0.1 is not


def test_one_seed_is_tested_over_sentences_above_and_below(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=1, names=("none", "jelinek-mercer"))
    report = Report.from_runs(tmp_path, compare=compare_runs)
    assert "That was not tested over seeds; for the best seed of each it is p < 0.001" in report.verdict
    assert "Not tested over seeds" in report.table().caption and "‡" in report.best_seed_table().rows[1].marks


def test_seeds_too_few_to_be_significant_are_no_argument_for_chance(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=3, names=("none", "jelinek-mercer"))  # at best 2 of 20 ways to draw three of six
    report = Report.from_runs(tmp_path, compare=compare_runs)
    chance = "cannot be told from chance by so few seeds: p = 0.1, rank-sum-exact over seeds; for the best seed of each"
    assert f"{chance} it is p < 0.001, paired-permutation over sentences" in report.verdict
