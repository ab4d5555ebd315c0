"""Text, Markdown, LaTeX, CSV and JSON: what they say and what they escape."""

from __future__ import annotations

import csv
import io
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from lidstone.lab.report import Report, Run
from lidstone.lab.report.labels import latex_escape
from lidstone.lab.report.plots import file_name

trees = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "run_trees.py")))

PAPER = {"none": (147.0, 147.24), "good-turing": (141.2, 142.66), "jelinek-mercer": (137.01, 137.81)}
"""Pairs with the means 147.12, 141.93 and 137.41; the standard error of a pair is half its distance."""


def paper_report(**more: object) -> Report:
    made = [
        Run.from_dict(trees.record(name, seed, metrics={"test": {"perplexity": score}, "valid": {"perplexity": score}}))
        for name, pair in PAPER.items()
        for seed, score in enumerate(pair, 1)
    ]
    marks = [
        {"scope": "seeds", "system": name, "baseline": "none", "test": "rank-sum", "p_value": 0.01, "adjusted_p": 0.02,
         "better": True, "correction": "holm-2", "signature": "test:rank-sum", "effect": None, "warnings": []}
        for name in list(PAPER)[1:]
    ]  # fmt: skip
    return Report.from_runs(made, comparisons=marks, **more)  # type: ignore[arg-type]


def test_text() -> None:
    assert paper_report().to_text().split("\n\n")[0] == (
        "method                        Perplexity ↓      seeds\n"
        "----------------------------  ----------------  -----\n"
        "None                          147.12 ± 0.12     2\n"
        "GT (γ₊=0.1, γ₋=0.05)          _141.93_† ± 0.73  2\n"
        "JM (γ₊=0.1, γ₋=0.5, λ₁=0.75)  *137.41*† ± 0.40  2"
    )


def test_markdown() -> None:
    lines = paper_report().to_markdown().splitlines()
    assert lines[3] == "| GT (γ₊=0.1, γ₋=0.05) | <u>141.93</u>† ± 0.73 | 2 |"
    assert lines[4] == "| JM (γ₊=0.1, γ₋=0.5, λ₁=0.75) | **137.41**† ± 0.40 | 2 |"


def test_latex_is_the_papers_table() -> None:
    lines = paper_report().to_latex().splitlines()
    assert lines[2:9] == [
        r"\begin{tabular}{lll}",
        r"\toprule",
        r"Smoothing method & Perplexity $\downarrow$ & seeds \\",
        r"\midrule",
        r"None & 147.12 {\small $\pm 0.12$} & 2 \\",
        r"\midrule",
        r"GT {\small ($\gamma_{+}=0.1$, $\gamma_{-}=0.05$)} & "
        r"\underline{141.93}$^{\dagger}$ {\small $\pm 0.73$} & 2 \\",
    ]
    assert r"\textbf{137.41}$^{\dagger}$" in lines[9] and r"\lambda_{1}=0.75" in lines[9]
    text = paper_report().to_latex()
    assert text.count("{") == text.count("}") and text.count("$") % 2 == 0


def test_csv_and_json_keep_full_precision_and_agree() -> None:
    report = paper_report()
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    data = json.loads(report.to_json())
    records = [record for table in data["tables"] for record in table["rows"]]
    assert [float(row["value"]) for row in rows] == [record["value"] for record in records]
    assert float(rows[2]["standard_error"]) == pytest.approx(0.4)
    assert rows[0]["table"] == "seeds" and rows[-1]["table"] == "best-seed"
    assert data["verdict"].startswith("Jelinek–Mercer has the lowest perplexity, 137.41 ± 0.40, against 147.12")


HOSTILE = r'a|b*_`<script>alert(1)</script>&%$#{}~^\cite{x} "q"' + "\n\u2028=1"


def hostile_report() -> Report:
    made = [Run.from_dict(trees.record(name, seed)) for name in ("none", HOSTILE, "=SUM(A1)") for seed in (1, 2)]
    return Report.from_runs(made)


def test_hostile_names_stay_text_in_every_format() -> None:
    report = hostile_report()
    markdown = report.to_markdown()
    assert "<script" not in markdown and r"a\|b\*\_" in markdown
    assert len(report.to_markdown().splitlines()[2].split(" | ")) == 3
    latex = report.to_latex()
    assert r"\cite" not in latex and r"\textbackslash{}cite\{x\}" in latex and r"\&\%\$\#" in latex
    cells = [row["method"] for row in csv.DictReader(io.StringIO(report.to_csv()))]
    assert "'=SUM(A1)" in cells and HOSTILE in cells
    assert HOSTILE in [row["method"] for row in json.loads(report.to_json())["tables"][0]["rows"]]


def test_latex_escape_leaves_no_special_character_bare() -> None:
    assert latex_escape("a_b{c}") == r"a\_b\{c\}"
    assert latex_escape("a$<b") == r"a\$$<$b" and latex_escape("γ<") == r"$\gamma<$"
    assert file_name("../../etc/passwd") == "etc-passwd" and file_name("///") == "method"


def test_plots_are_written_and_the_same_again(tmp_path: Path) -> None:
    trees.write_tree(tmp_path / "runs", seeds=2, names=("none", "katz"))
    trees.write_grid(tmp_path / "runs", "katz")
    report = Report.from_runs(tmp_path / "runs")
    first = report.plots(tmp_path / "a", formats=("svg",))
    second = report.plots(tmp_path / "b", formats=("svg",))
    assert [file.stem for file in first] == [
        "scores", "curves-valid-perplexity", "curves-train-loss", "strengths-katz",
    ]  # fmt: skip
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(first, second, strict=True))


def test_plots_take_names_that_look_like_formulas(tmp_path: Path) -> None:
    made = [
        Run.from_dict(trees.record(name, seed))
        for name in ("none", r"$\frac{$", "<b>", "方法", "x" * 300)
        for seed in (1, 2)
    ]
    written = Report.from_runs(made).plots(tmp_path, formats=("svg",))
    assert "<b>" not in written[0].read_text()


def test_plots_take_names_that_xml_cannot_hold(tmp_path: Path) -> None:
    made = [Run.from_dict(trees.record(name, seed)) for name in ("none", "a\x00\x1b\uffffb") for seed in (1, 2)]
    for file in Report.from_runs(made).plots(tmp_path, formats=("svg", "png", "pdf")):
        if file.suffix == ".svg":
            assert ElementTree.parse(file).getroot().tag.endswith("svg")
