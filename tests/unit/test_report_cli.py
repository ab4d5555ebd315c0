"""`lidstone report` and `lidstone compare`: data on stdout, talk on stderr, errors with a hint."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from lidstone.cli.main import app

pytest.importorskip("scipy", reason="lidstone[report] is not installed")
trees = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "run_trees.py")))


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return trees.write_tree(tmp_path / "runs", seeds=5, names=("none", "add-lambda", "jelinek-mercer"))


def test_report_prints_tables_and_talks_on_stderr(tree: Path) -> None:
    answer = call("report", tree)
    assert answer.exit_code == 0 and answer.stdout.startswith("method")
    assert "Jelinek–Mercer has the lowest perplexity" in answer.stderr and "lowest" not in answer.stdout


@pytest.mark.parametrize(
    ("format", "start"), [("markdown", "| Method"), ("latex", r"\begin{table}"), ("csv", "table,method")]
)
def test_report_formats(tree: Path, format: str, start: str) -> None:
    assert call("report", tree, "--format", format, "--no-tests").stdout.startswith(start)


def test_report_json_html_and_plots(tree: Path, tmp_path: Path) -> None:
    answer = call("report", tree, "--json", "--html", tmp_path / "r.html", "--plots", tmp_path / "plots")
    data = json.loads(answer.stdout)
    assert [table["kind"] for table in data["tables"]] == ["seeds", "best-seed"]
    assert all(comparison["signature"] for comparison in data["comparisons"])
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "plots" / "scores.svg").exists()
    assert (tmp_path / "plots" / "scores.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("option", ["--baseline", "--second"])
def test_report_refuses_a_baseline_that_has_no_runs(tree: Path, option: str) -> None:
    answer = call("report", tree, option, "jelinek-mercr", "--no-tests")
    assert answer.exit_code == 1 and "error: there is no method 'jelinek-mercr'" in answer.stderr
    assert "jelinek-mercer" in answer.stderr.partition("hint: ")[2] and answer.stdout == ""
    assert call("report", tree, option, "jelinek-mercer", "--no-tests").exit_code == 0


def test_report_refuses_to_mix_and_splits_on_request(tree: Path, tmp_path: Path) -> None:
    trees.write_tree(tmp_path / "mt", seeds=2, task="mt", names=("none", "katz"))
    mixed = call("report", tree, tmp_path / "mt")
    assert mixed.exit_code == 1 and "error: these 19 runs cannot be in one table" in mixed.stderr
    assert "hint: " in mixed.stderr and mixed.stdout == ""
    split = call("report", tree, tmp_path / "mt", "--split", "--no-tests", "--json", "--html", tmp_path / "r.html")
    assert [one["metric"] for one in json.loads(split.stdout)] == ["perplexity", "bleu"]
    assert (tmp_path / "r-1.html").exists() and (tmp_path / "r-2.html").exists()


def test_report_names_a_damaged_run_and_skips_it_on_request(tree: Path) -> None:
    (tree / "bad").mkdir()
    (tree / "bad" / "run.json").write_text("{")
    refused = call("report", tree)
    assert refused.exit_code == 1 and "bad/run.json is damaged" in refused.stderr
    skipped = call("report", tree, "--skip-damaged", "--no-tests")
    assert skipped.exit_code == 0 and "note: Left out, damaged" in skipped.stderr


def test_report_into_a_folder_that_is_not_there_is_an_error(tree: Path, tmp_path: Path) -> None:
    answer = call("report", tree, "--no-tests", "--html", tmp_path / "no" / "r.html")
    assert answer.exit_code == 1 and "hint: create the folder first" in answer.stderr


def test_compare_methods(tree: Path) -> None:
    answer = call("compare", tree, "--json")
    found = json.loads(answer.stdout)["comparisons"]
    assert {(c["system"], c["test"]) for c in found} == {
        (system, test)
        for system in ("add-lambda", "jelinek-mercer")
        for test in ("rank-sum-exact", "paired-permutation")
    }
    assert found[0]["p_value"] == pytest.approx(2 / 252) and found[0]["correction"] == "holm-2"
    one = json.loads(call("compare", tree, "--json", "--system", "jelinek-mercer").stdout)["comparisons"]
    assert {c["correction"] for c in one} == {"none"}


def test_compare_prints_a_table_with_signatures_on_stderr(tree: Path) -> None:
    answer = call("compare", tree, "--permutations", 500, "--seed", 3)
    assert answer.stdout.split()[:3] == ["system", "is", "than"]
    assert "permutations:500|seed:3" in answer.stderr


def test_compare_two_runs_over_their_sentences(tree: Path) -> None:
    files = {json.loads(f.read_text())["name"]: f.parent for f in tree.rglob("run.json")}
    answer = call("compare", files["none"], files["jelinek-mercer"], "--json")
    (found,) = json.loads(answer.stdout)["comparisons"]
    assert found["baseline"].startswith("none seed") and found["better"] and found["p_value"] < 0.01
    same = call("compare", files["none"], files["none"])
    assert same.exit_code == 1 and "cannot be compared with itself" in same.stderr


def test_compare_says_when_there_are_too_few_seeds(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=1, names=("none", "katz"))
    answer = call("compare", tmp_path)
    assert answer.exit_code == 0
    assert "warning: no p-value: rank-sum-exact needs at least two seeds of each, got 1 and 1" in answer.stderr


def test_compare_refuses_unknown_methods_and_a_lonely_baseline(tree: Path, tmp_path: Path) -> None:
    unknown = call("compare", tree, "--system", "kats")
    assert unknown.exit_code == 1 and "no method 'kats'" in unknown.stderr and "add-lambda" in unknown.stderr
    trees.write_tree(tmp_path / "lonely", seeds=2, names=("none",))
    lonely = call("compare", tmp_path / "lonely")
    assert lonely.exit_code == 1 and "there are no methods to compare with" in lonely.stderr


def test_usage_errors_exit_with_two(tree: Path) -> None:
    assert call("report").exit_code == 2
    assert call("report", tree, "--format", "docx").exit_code == 2
    assert call("compare", tree, "--permutations", 0).exit_code == 2


def test_a_run_that_diverged_is_left_out_of_the_tests_over_sentences(tmp_path: Path) -> None:
    folder = trees.write_tree(tmp_path / "runs", seeds=1, names=("none", "add-lambda", "katz"))
    for file in folder.glob("*/run.json"):
        record = json.loads(file.read_text())
        if record["name"] == "katz":
            scores = {"nll": [None] * 200, "tokens": [3] * 200}
            (file.parent / "sentences.json.gz").write_text(json.dumps(scores))
    for verb in ("report", "compare"):
        answer = call(verb, folder)
        assert answer.exit_code == 0 and "best seed of katz" in answer.stderr and "diverged" in answer.stderr


def test_compare_takes_one_of_several_variants_as_the_baseline(tmp_path: Path) -> None:
    for seed in (1, 2):
        trees.write_run(tmp_path, trees.record("none", seed))
        for form in ("exact", "published"):
            trees.write_run(tmp_path, trees.record("katz", seed, method={"form": form}, shift=len(form) / 10))
    for baseline in ("katz", "katz form=exact"):
        answer = call("compare", tmp_path, "--baseline", baseline, "--system", "none", "--json")
        found = json.loads(answer.stdout)["comparisons"]
        assert {(c["system"], c["baseline"]) for c in found} == {("none", "katz")}, baseline


def test_split_reports_make_one_csv_and_labels_of_their_own(tmp_path: Path) -> None:
    for name, sums in (("one", "e0"), ("two", "e1")):
        for method in ("none", "katz"):
            made = trees.record(method, 1)
            made["signature"]["corpus"] = {"name": name, "train": "t", "valid": "v", "test": sums}
            trees.write_run(tmp_path / name, made)
    lines = call("report", tmp_path, "--split", "--format", "csv", "--no-tests").stdout.splitlines()
    assert len(lines) == 1 + 2 * 2 * 2 and lines[0].endswith(",about")
    assert sum("the test set of two" in line for line in lines) == 4
    latex = call("report", tmp_path, "--split", "--format", "latex", "--no-tests").stdout
    assert [latex.count(f"\\label{{tab:{n}-seeds}}") for n in (1, 2)] == [1, 1]
