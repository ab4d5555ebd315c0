"""Tables with the n-gram model and the mixture beside the network: columns, words, and runs that lack them."""

from __future__ import annotations

import csv
import io

import pytest
from tests.run_trees import record

from lidstone.lab.report import Report
from lidstone.lab.report.render import to_csv, to_latex, to_markdown, to_text
from lidstone.lab.report.runs import Run


def run(name, seed, mixture=None, ngram=100.0, **changes):
    beside = {}
    if mixture is not None:
        beside = {
            "ngram": {"order": 4, "valid": {"perplexity": 99.0}, "test": {"perplexity": ngram}},
            "mixture": {"weight": 0.4, "valid": {"perplexity": 88.0}, "test": {"perplexity": mixture}},
        }
    return Run.from_dict(record(name, seed, **beside, **changes))


def scored_as(name, value):
    kind = {"method": {"kind": "residual"}} if name == "residual" else {}
    return {**kind, "metrics": {"valid": {"perplexity": value}, "test": {"perplexity": value}}}


@pytest.fixture
def scored():
    return Report.from_runs([run("none", 1, 90.0), run("none", 2, 92.0), run("katz", 1, 94.0), run("katz", 2, 94.0)])


def test_the_mixture_is_a_column_and_the_ngram_model_a_row(scored):
    lines = to_markdown(scored.table()).splitlines()
    assert lines[0] == "| Method | Perplexity ↓, alone | + n-gram | seeds |"
    assert "| **91.00 ± 1.00** | 2 |" in next(line for line in lines if line.startswith("| None"))
    assert "| n-gram alone (MKN, n=4) | **100.00** | | |" in lines  # the networks alone have 147 and 140


def test_every_format_has_it(scored):
    assert "n-gram alone (MKN, n=4)" in to_text(scored.table())
    latex = to_latex(scored.table())
    assert r"\begin{tabular}{llll}" in latex and "+ n-gram" in latex and "91.00" in latex
    rows = list(csv.DictReader(io.StringIO(to_csv(scored.tables()))))
    assert [float(row["mixture"]) for row in rows[:2]] == [91.0, 94.0]
    assert {float(row["ngram"]) for row in rows} == {100.0}
    pytest.importorskip("jinja2", reason="lidstone[report] is not installed")
    from lidstone.lab.report.page import page

    html = page(scored)
    assert "n-gram alone (MKN, n=4)" in html and "+ n-gram" in html


def test_a_mixture_of_fewer_seeds_says_so():
    report = Report.from_runs([run("none", 1, 90.0), run("none", 2), run("katz", 1, 94.0), run("katz", 2, 94.0)])
    lines = to_markdown(report.table()).splitlines()
    assert "| **90.00 (1 of 2)** | 2 |" in next(line for line in lines if line.startswith("| None"))
    assert "| <u>94.00 ± 0.00</u> | 2 |" in next(line for line in lines if line.startswith("| Katz"))


def test_the_residual_is_not_ranked_because_it_needs_the_ngram_model():
    scores = {"none": 120.0, "katz": 110.0, "residual": 90.0}
    runs = [run(name, 1, 130.0, 125.0, **scored_as(name, value)) for name, value in scores.items()]
    report = Report.from_runs(runs)
    assert {row.key: row.rank for row in report.table().rows} == {"none": 2, "katz": 1, "residual": 0}
    assert "Residual needs the n-gram model at test time, too, and is not ranked" in report.table().caption
    assert report.verdict.startswith("Katz has the lowest perplexity, 110.00")
    assert "not ranked" not in Report.from_runs(runs[:2]).table().caption


@pytest.mark.parametrize(
    ("mixtures", "ngram", "ranks", "words"),
    [
        # alone: none 120, katz 110; the third number is the place of the n-gram model among these
        ((90.0, 95.0), 100.0, (0, 2, 1, 1, 2), "None mixed with the n-gram model is best of all, 90.00; the n-gram "
         "model alone, 100.00, is better than every network alone. Of the networks alone, Katz has the lowest"),
        ((115.0, 112.0), 115.0, (0, 1, 2, 2, 1), "Katz has the lowest perplexity, 110.00"),
        ((115.0, 112.0), 105.0, (0, 2, 1, 2, 1), "The n-gram model alone, 105.00, is better than every network"),
        ((115.0, 109.0), 130.0, (2, 1, 0, 2, 1), "Katz mixed with the n-gram model is best of all, 109.00. Of the"),
    ],
)  # fmt: skip
def test_no_network_is_called_best_while_something_in_the_table_is_better(mixtures, ngram, ranks, words):
    pairs = zip(("none", "katz"), (120.0, 110.0), mixtures, strict=True)
    report = Report.from_runs(
        [run(name, 1, mixture, ngram, **scored_as(name, value)) for name, value, mixture in pairs]
    )
    table = report.table()
    none, katz = table.rows
    assert (none.rank, katz.rank, table.ngram.rank, none.mixed_rank, katz.mixed_rank) == ranks
    assert report.verdict.startswith(words)
    assert "Best of each column in bold" in table.caption


def test_the_best_seed_has_its_own_mixture(scored):
    row = next(row for row in scored.best_seed_table().rows if row.key == "none")
    best = min((r for r in scored.runs if r.name == "none"), key=lambda r: r.value("test", "perplexity"))
    assert row.mixed == best.value("test", "perplexity", "mixture")


@pytest.mark.parametrize(
    ("ngram", "words"),
    [
        (100.0, "better than every network here"),
        (145.0, "better than 1 of the 2 networks here"),
        (200.0, "every network here is better"),
    ],
)
def test_words_say_who_is_better(ngram, words):
    report = Report.from_runs([run("none", 1, 90.0, ngram), run("jelinek-mercer", 1, 90.0, ngram)])  # 147 and 137
    assert words in report.table().caption


def test_runs_that_lack_it_say_so():
    report = Report.from_runs([run("none", 1), run("katz", 1)])
    assert "not scored beside an n-gram model" in report.table().caption
    assert "+ n-gram" not in to_text(report.table())
    some = Report.from_runs([run("none", 1, 90.0), run("katz", 1)])
    assert "1 of 2 runs were scored beside it" in some.table().caption
    assert "| – |" in to_markdown(some.table())


def test_translation_has_no_such_words():
    report = Report.from_runs([run("none", 1, task="mt"), run("katz", 1, task="mt")])
    assert "n-gram model" not in report.table().caption
