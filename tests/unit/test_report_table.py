"""Which runs make a row, which setting speaks for a method, and what its daggers mean."""

from __future__ import annotations

import math
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lidstone.errors import InputError
from lidstone.lab.report import Report, Run
from lidstone.lab.report.comparisons import CompareRuns, compare_runs
from lidstone.lab.report.figures import curves, heat_maps, style_of
from lidstone.lab.report.tables import best_seed_table

trees = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "run_trees.py")))


def runs(name: str, scores: list[float], valid: float = 1.0, **changes: Any) -> list[Run]:
    made = []
    for seed, score in enumerate(scores, 1):
        metrics = {"test": {"perplexity": score}, "valid": {"perplexity": valid}}
        made.append(Run.from_dict(trees.record(name, seed, metrics=metrics, **changes)))
    return made


def rows(report: Report) -> dict[str, Any]:
    return {row.key: row for row in report.table().rows}


def test_mean_and_standard_error_are_the_papers() -> None:
    # 146, 147, 148: mean 147, sd 1, standard error 1 / sqrt(3) = 0.57735
    report = Report.from_runs(runs("none", [146.0, 147.0, 148.0]) + runs("katz", [140.0, 141.0, 142.0]))
    assert (rows(report)["none"].value, round(rows(report)["none"].error, 5)) == (147.0, 0.57735)
    assert [row.rank for row in report.table().rows] == [2, 1]


def calibrated(temperature: float, ece: float) -> dict[str, Any]:
    before = {"perplexity": 25.0, "ece": ece, "brier": 0.6}
    return {"temperature": temperature, "before": before, "after": {**before, "perplexity": 24.0, "ece": ece / 2}}


def test_calibration_is_a_table_of_means_of_the_methods_whose_runs_all_have_it(tmp_path: Path) -> None:
    none = runs("none", [25.0], calibration=calibrated(1.2, 0.04)) + runs("none", [25.0], calibration={})
    none[1] = replace(none[0], id="other", seed=2, calibration=calibrated(1.4, 0.08))
    report = Report.from_runs([*none, *runs("katz", [24.0, 24.5])])
    (row,) = report.calibration
    assert row.key == "none"
    assert row.cells == ["1.30", "25.00", "24.00", "0.0600", "0.0300", "0.6000", "0.6000"]
    assert report.to_dict()["calibration"][0] == {
        "method": "none", "temperature": pytest.approx(1.3), "perplexity": 25.0, "perplexity_after": 24.0,
        "ece": pytest.approx(0.06), "ece_after": pytest.approx(0.03), "brier": 0.6, "brier_after": 0.6,
    }  # fmt: skip
    for text in (report.to_text(), report.to_markdown()):
        assert "0.0600" in text and "expected calibration error" in text
    damaged = [replace(run, calibration={"temperature": "warm", "before": 3}) for run in none]
    without = Report.from_runs(damaged)
    assert without.calibration == [] and "calibration" not in without.to_text()
    pytest.importorskip("jinja2", reason="lidstone[report] is not installed")
    assert "0.0600" in report.to_html(tmp_path / "page.html").read_text()


def test_higher_is_better_for_bleu_and_lower_for_perplexity(tmp_path: Path) -> None:
    trees.write_tree(tmp_path / "lm", seeds=2)
    trees.write_tree(tmp_path / "mt", seeds=2, task="mt")
    for task in ("lm", "mt"):
        table = Report.from_runs(tmp_path / task).table()
        assert next(row.key for row in table.rows if row.rank == 1) == "jelinek-mercer"
    assert "Higher is better" in table.caption and "smooth:exp" in table.caption and "200 sentences" in table.caption


def test_the_setting_with_most_seeds_speaks_then_validation_decides_never_the_test_set() -> None:
    def jm(weight: float) -> dict[str, Any]:
        return {"parameters": {"weights": weight}}

    cells = runs("jelinek-mercer", [100.0], valid=1.0, method=jm(0.25))  # best everywhere, but one seed
    cells += runs("jelinek-mercer", [120.0, 120.0], valid=90.0, method=jm(0.5))
    cells += runs("jelinek-mercer", [110.0, 110.0], valid=95.0, method=jm(0.75))  # better on test, worse on validation
    report = Report.from_runs(runs("none", [147.0, 148.0]) + cells)
    chosen = rows(report)["jelinek-mercer"]
    assert chosen.value == 120.0 and chosen.settings_tried == 3
    assert chosen.label.text() == "JM (γ₊=0.1, γ₋=0.5, λ₁=0.5)"


def test_a_metric_that_validation_did_not_keep_leaves_the_choice_to_the_tasks_own() -> None:
    def katz(k: int, bleu: float, chrf: float) -> Run:
        metrics = {"test": {"bleu": bleu, "chrf": chrf}, "valid": {"bleu": bleu}}
        return Run.from_dict(trees.record("katz", 1, task="mt", metrics=metrics, method={"parameters": {"k": k}}))

    report = Report.from_runs([katz(3, 20.0, 60.0), katz(5, 30.0, 50.0)], metric="chrf")
    assert rows(report)["katz"].value == 50.0
    assert "chosen on validation by BLEU among up to 2" in report.table().caption


def test_form_and_empirical_make_rows_of_their_own_and_show_when_they_vary() -> None:
    exact = {"form": "exact", "empirical": "token"}
    both = runs("katz", [140.0, 141.0]) + runs("katz", [138.0, 139.0], method=exact)
    report = Report.from_runs(runs("none", [147.0, 148.0]) + both)
    assert set(rows(report)) == {"none", "katz form=published empirical=ngram", "katz form=exact empirical=token"}
    texts = [row.label.text() for row in report.table().rows]
    assert texts[0] == "None" and "exact, token" in "".join(texts)
    alone = Report.from_runs(runs("none", [147.0]) + runs("katz", [138.0], method=exact))
    assert set(rows(alone)) == {"none", "katz"}


def test_the_signature_of_a_metric_stands_beside_that_metric_alone() -> None:
    made = [Run.from_dict(trees.record("none", seed, task="mt")) for seed in (1, 2)]
    made = [replace(run, metrics={**run.metrics, "test": {**run.metrics["test"], "chrf": 50.0}}) for run in made]
    told = str(made[0].signature["metric"])
    assert told in Report.from_runs(made).about and told not in Report.from_runs(made, metric="chrf").about


def test_another_learning_rate_is_another_setting_not_another_seed() -> None:
    slow = [
        Run.from_dict(trees.record("katz", s, config={"seed": s, "training": {"learning_rate": 0.1}})) for s in (1, 2)
    ]
    fast = [Run.from_dict(trees.record("katz", s)) for s in (1, 2, 3)]
    row = rows(Report.from_runs(slow + fast))["katz"]
    assert len(row.values) == 3 and row.settings_tried == 2
    assert "learning_rate=0.001" in row.label.text()


def test_a_row_tells_what_was_varied_whatever_the_strength() -> None:
    def run(gamma: float, rate: float, score: float) -> Run:
        config = {"training": {"learning_rate": rate}, "regularizer": {"gamma": gamma}}
        record = trees.record("katz", 1, config=config, method={"gamma_plus": gamma, "gamma_minus": gamma})
        return replace(Run.from_dict(record), metrics={split: {"perplexity": score} for split in ("valid", "test")})

    made = [run(0.1, 0.1, 140.0), run(0.2, 0.3, 130.0)]  # the strength alone tells them apart
    label = rows(Report.from_runs(made))["katz"].label.text()
    assert "learning_rate=0.3" in label and label.count("0.2") == 1


def test_what_a_recipe_says_about_other_cells_makes_no_setting() -> None:
    def told(seed: int, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "sweep": {"seeds": [seed]},
            "methods": [name],
            "training": {"seed": seed, "threads": seed},
            "regularizer": {"name": name},
        }

    pair = [Run.from_dict(trees.record("katz", s, config=told(s, f"recipe {s}"))) for s in (1, 2)]
    assert len(rows(Report.from_runs(pair))["katz"].values) == 2


def test_baselines_with_one_strength_show_it() -> None:
    method = {"smoother": None, "gamma": 0.1, "gamma_plus": None, "gamma_minus": None, "parameters": {}}
    made = runs("label_smoothing", [140.0], method=method)
    row = rows(Report.from_runs(made))["label_smoothing"]
    assert (row.label.text(), row.label.long) == ("LS (γ=0.1)", "Label smoothing")
    beside = made + runs("katz", [139.0], method={"form": "exact"}) + runs("katz", [138.0])  # two forms in one table
    assert rows(Report.from_runs(beside))["label_smoothing"].label.text() == "LS (γ=0.1)"


def test_daggers_mean_significantly_better_and_never_worse() -> None:
    none, better, worse = (
        [147.0, 147.1, 147.2, 147.3, 147.4],
        [140.0, 140.1, 140.2, 140.3, 140.4],
        [150.1, 151, 152, 153, 154],
    )
    report = Report.from_runs(
        runs("none", none) + runs("katz", better) + runs("good-turing", worse), compare=compare_runs
    )
    assert {key: row.marks for key, row in rows(report).items()} == {"none": "", "katz": "†", "good-turing": ""}
    seeds = {c["system"]: c for c in report.comparisons if c["scope"] == "seeds"}
    assert seeds["good-turing"]["adjusted_p"] < 0.05 and not seeds["good-turing"]["better"]
    assert (
        "† p < 0.05: significantly better than None (rank-sum-exact, two-sided, Holm-corrected over 2)"
        in report.table().caption
    )
    assert "‡" not in report.table().caption
    assert "Significantly worse than None: GT." in report.table().caption


def test_captions_name_nobody_as_worse_without_significance() -> None:
    found = runs("none", [147.0, 147.2]) + runs("good-turing", [150.0, 152.0])
    untested = {"scope": "seeds", "system": "good-turing", "baseline": "none", "direction": "worse", "adjusted_p": None}
    for compare in (CompareRuns(scopes=("seeds",)), lambda report: [untested]):
        assert "worse" not in Report.from_runs(found, compare=compare).table().caption


def test_all_tests_agree_on_one_direction_and_name_it() -> None:
    report = Report.from_runs(
        runs("none", [147.0, 147.2]) + runs("katz", [140.0, 140.2]) + runs("good-turing", [150.0, 152.0]),
        compare=CompareRuns(scopes=("seeds",)),
    )
    found = {c["system"]: (c["direction"], c["better"], round(c["effect"]["difference"], 9), c["unit"])
             for c in report.comparisons}  # fmt: skip
    # improvements: 147.1 - 140.1 and 147.1 - 151
    assert found == {"katz": ("better", True, 7.0, "Perplexity"), "good-turing": ("worse", False, -3.9, "Perplexity")}
    for comparison in report.comparisons:
        effect = comparison["effect"]
        assert effect["low"] < effect["difference"] < effect["high"]


def test_a_worse_method_is_called_worse_however_small_its_p(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=2, names=("none", "jelinek-mercer"))
    report = Report.from_runs(tmp_path, baseline="jelinek-mercer", compare=CompareRuns(permutations=2_000))
    (seeds,), (best,) = ([c for c in report.comparisons if c["scope"] == s] for s in ("seeds", "best-seed"))
    assert seeds["direction"] == best["direction"] == "worse" and best["adjusted_p"] < 0.01
    assert (seeds["unit"], best["unit"]) == ("Perplexity", "nats per sentence")
    assert seeds["effect"]["difference"] < 0 and best["effect"]["difference"] < 0
    assert "Significantly worse than JM: None." in report.best_seed_table().caption
    page = report.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "worse than Jelinek–Mercer, p &lt; 0.001" in page or "worse than Jelinek–Mercer, p = 0.00" in page


def test_one_comparison_is_not_called_corrected() -> None:
    report = Report.from_runs(runs("none", [147.0, 147.1]) + runs("katz", [140.0, 141.0]), compare=compare_runs)
    assert "Holm" not in report.table().caption and "uncorrected" in report.table().caption


def test_without_comparisons_there_are_no_daggers_and_the_caption_says_so() -> None:
    report = Report.from_runs(runs("none", [147.0, 148.0]) + runs("katz", [100.0, 101.0]))
    assert not any(row.marks for row in report.table().rows)
    assert "No test of significance was made" in report.table().caption


@pytest.mark.parametrize("task", ["lm", "mt"])
def test_best_seed_table_has_two_way_daggers(tmp_path: Path, task: str) -> None:
    trees.write_tree(tmp_path, seeds=2, task=task, names=("none", "add-lambda", "jelinek-mercer"))
    report = Report.from_runs(tmp_path, compare=CompareRuns(permutations=2_000, samples=200))
    marks = {row.key: row.marks for row in report.best_seed_table().rows}
    assert marks["none"] == "" and "/" not in marks["add-lambda"] and marks["jelinek-mercer"] == "‡/‡"
    scores = [run.value("test", report.metric.key) for run in report.method("none").chosen.runs]
    assert report.best_seed_table().rows[0].value == (min(scores) if task == "lm" else max(scores))
    tests = {c["test"] for c in report.comparisons if c["scope"] == "best-seed"}
    assert tests == {"paired-permutation" if task == "lm" else "paired-bootstrap"}


def test_a_best_seed_without_sentences_is_left_out_alone(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=2, names=("none", "katz", "good-turing"))
    for file in tmp_path.rglob("run.json"):
        if '"name": "katz"' in file.read_text():
            (file.parent / "sentences.json.gz").write_bytes(b"\x1f\x8b not gzip")
    report = Report.from_runs(tmp_path, compare=CompareRuns(permutations=500, scopes=("best-seed",)))
    assert {c["system"]: c["p_value"] is None for c in report.comparisons} == {"katz": True, "good-turing": False}
    assert "no p-value for the best seed of katz against none" in report.warnings[0]


def test_one_seed_gives_no_p_value_and_says_so() -> None:
    report = Report.from_runs(runs("none", [147.0]) + runs("katz", [140.0]), compare=CompareRuns(scopes=("seeds",)))
    assert report.comparisons[0]["p_value"] is None
    assert "needs at least two seeds" in report.warnings[0]
    assert math.isnan(report.table().rows[0].error) and "±" not in report.to_text().splitlines()[2]


def test_a_diverged_run_shows_and_wins_nothing() -> None:
    report = Report.from_runs(
        runs("none", [147.0, 148.0]) + runs("katz", [140.0, math.nan]), compare=CompareRuns(scopes=("seeds",))
    )
    assert "diverged" in report.to_text()
    assert rows(report)["katz"].rank == 0 and rows(report)["katz"].marks == ""
    assert any("1 diverged seed of katz left out" in warning for warning in report.warnings)


def test_a_named_baseline_and_a_missing_one() -> None:
    both = runs("katz", [140.0, 141.0]) + runs("good-turing", [142.0, 143.0])
    assert Report.from_runs(both, baseline="katz").baselines == ("katz", None)
    report = Report.from_runs(both, compare=compare_runs)
    assert report.comparisons == () and "no baseline 'none'" in report.warnings[0]
    with pytest.raises(InputError, match="no method 'kats'") as caught:
        report.method("kats")
    assert "good-turing, katz" in caught.value.hint


def test_unknown_metric_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="no metric 'ppl'"):
        Report.from_runs(runs("none", [1.0]), metric="ppl")
    with pytest.raises(InputError, match="has the metric 'bleu'"):
        Report.from_runs(runs("none", [1.0]), metric="bleu")


def test_curves_are_mean_and_range_over_seeds_up_to_the_first_stop() -> None:
    long = [{"step": s, "valid_perplexity": 10.0 + s} for s in (1, 2, 3, 4)]
    short = [{"step": s, "valid_perplexity": 20.0 + s} for s in (1, 2, 3)]
    pair = [Run.from_dict(trees.record("none", seed, curve=curve)) for seed, curve in ((1, long), (2, short))]
    (curve,) = curves(Report.from_runs(pair), "valid_perplexity")
    assert (curve.x, curve.mean, curve.low, curve.high) == ((1, 2, 3), (16, 17, 18), (11, 12, 13), (21, 22, 23))


def test_heat_map_shows_validation_with_the_best_cell_and_holes() -> None:
    cells = {(0.1, 0.1): 5.0, (0.1, 0.5): 3.0, (0.5, 0.1): 4.0}
    made = [
        r for (p, m), v in cells.items() for r in runs("katz", [9.0], v, method={"gamma_plus": p, "gamma_minus": m})
    ]
    (heat,) = heat_maps(Report.from_runs(made))
    assert heat.cells == ((5.0, 3.0), (4.0, None)) and heat.best == (0, 1)
    assert heat_maps(Report.from_runs(made[:1])) == []


def test_a_map_compares_seeds_that_every_setting_has() -> None:
    def scored(gamma: float, values: list[float]) -> list[Run]:
        strengths = {"gamma_plus": gamma, "gamma_minus": gamma}
        made = [runs("katz", [9.0] * seed, value, method=strengths)[-1] for seed, value in enumerate(values, 1)]
        return made

    # seed 1 has 3 and 4; the mean of the three seeds of 0.1 is 5, which is no score of seed 1
    (heat,) = heat_maps(Report.from_runs(scored(0.1, [3.0, 6.0, 6.0]) + scored(0.5, [4.0])))
    assert (heat.cells, heat.best, heat.seeds) == (((3.0, 4.0),), (0, 0), (1,))
    other = [run for run in scored(0.5, [4.0, 4.0]) if run.seed == 2]
    assert heat_maps(Report.from_runs(scored(0.1, [3.0]) + other)) == []  # no seed in common


def test_looks_differ() -> None:
    assert len({style_of(style) for style in range(30)}) == 30


def test_corrections_are_named_in_the_order_of_the_baselines() -> None:
    report = Report.from_runs(runs("none", [147.0]) + runs("label-smoothing", [146.0]) + runs("katz", [140.0]))
    tested = {"scope": "best-seed", "p_value": 0.5, "adjusted_p": 0.5, "better": True, "test": "paired-permutation"}
    comparisons = [
        {**tested, "system": system, "baseline": baseline, "correction": correction}
        for system, baseline, correction in (
            ("label-smoothing", "none", "holm-2"),
            ("katz", "none", "holm-2"),
            ("katz", "label-smoothing", "holm-1"),
        )
    ]
    caption = best_seed_table(
        report.methods, report.metric, comparisons, ("none", "label-smoothing"), "a test set"
    ).caption
    assert "None (first symbol) and LS (second) (paired-permutation, two-sided, Holm-corrected over 2 and 1)" in caption


def test_paths_are_not_part_of_a_setting() -> None:
    def at(path: str) -> dict[str, Any]:
        return {"corpus": {"train": {"target": [path]}, "lowercase": True}}

    pair = [Run.from_dict(trees.record("katz", s, config=at(p))) for s, p in ((1, "a.txt"), (2, "/home/x/a.txt"))]
    assert len(rows(Report.from_runs(pair))["katz"].values) == 2


def test_settings_are_chosen_by_the_validation_score_that_the_runs_have() -> None:
    """Translation whose recipe validates by perplexity: there is no BLEU on validation."""

    def cell(gamma: float, perplexity: float, bleu: float) -> Run:
        metrics = {"test": {"bleu": bleu, "perplexity": 9.0}, "valid": {"perplexity": perplexity, "loss": 1.0}}
        config = {"evaluation": {"metric": "perplexity"}}
        return Run.from_dict(
            trees.record("katz", 1, task="mt", metrics=metrics, method={"gamma": gamma}, config=config)
        )

    report = Report.from_runs([cell(0.1, 9.0, 1.0), cell(0.2, 5.0, 2.0), cell(0.3, 7.0, 3.0)])
    assert report.chosen_by.key == "perplexity" and rows(report)["katz"].value == 2.0
    assert "chosen on validation by Perplexity among up to 3" in report.table().caption


def test_rows_that_differ_in_more_than_the_method_are_named() -> None:
    def trained(name: str, **model: int) -> list[Run]:
        return runs(name, [140.0], config={"model": {"layers": 2, **model}})

    small, large = trained("none", width=128), trained("katz", width=1024)
    assert "Rows differ in model.width, not only in the method." in Report.from_runs(small + large).warnings
    assert not Report.from_runs(small + trained("katz", width=128)).warnings
    searched = trained("katz", width=64) + trained("katz", width=256)  # a key that was searched may differ
    assert not any("Rows differ" in note for note in Report.from_runs(small + searched).warnings)


def test_one_training_under_two_names_is_noted() -> None:
    made = runs("katz", [140.0])
    report = Report.from_runs([*runs("none", [150.0]), *made, replace(made[0], name="my-katz")])
    assert "katz and my-katz are the same runs." in report.warnings


def test_diverged_seeds_are_told_and_get_no_dagger() -> None:
    clear = {"none": [147.0, 147.1, 147.2, 147.3, 147.4], "katz": [140.0, 140.1, 140.2, 140.3, float("nan")]}
    made = [run for name, scores in {**clear, "good-turing": [139.0] * 5}.items() for run in runs(name, scores)]
    report = Report.from_runs(made, compare=CompareRuns(scopes=("seeds",)))
    assert "1 diverged seed of katz left out of the rank-sum test" in report.warnings
    assert {key: row.marks for key, row in rows(report).items()} == {"none": "", "katz": "", "good-turing": "†"}
    swapped = Report.from_runs(made, baseline="katz", compare=CompareRuns(scopes=("seeds",)))
    assert "1 diverged seed of katz left out of the rank-sum test" in swapped.warnings


def test_equal_scores_share_a_place() -> None:
    report = Report.from_runs(runs("none", [150.0]) + runs("katz", [140.0]) + runs("good-turing", [140.0]))
    assert {key: row.rank for key, row in rows(report).items()} == {"none": 2, "katz": 1, "good-turing": 1}


def test_a_single_method_beats_nobody() -> None:
    assert Report.from_runs(runs("none", [150.0])).verdict.startswith("There is one method")
