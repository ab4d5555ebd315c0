"""The figures in the README are those of the benchmarks' results."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks._timing import newest

ROOT = Path(__file__).parents[2]
MODULE, FILTER = newest("kenlm_module"), newest("filter")["filter"]
NAMES = {"one core": "lines, one core", "all cores": "lines, all cores", "two cores": "lines, all cores"}


def expected(label: str) -> tuple[float, float, float]:
    """lidstone, kenlm and the ratio, for the first cell of a row."""
    if "lidstone filter" in label:
        kind, order = "jsonl" if "JSONL" in label else "text", re.search(r"order (\d)", label)[1]
        found = FILTER[f"{kind}, order {order}"]["lidstone filter"]
        return found["megabytes_per_second"], found["megabytes_per_second"] / found["ratio"], found["ratio"]
    called = re.search(r"`(\w+)`", label)[1]
    if called == "score_lines":
        called = next(name for words, name in NAMES.items() if words in label)
    return *MODULE[called]["microseconds"].values(), MODULE[called]["ratio"]


def rows(text: str) -> list[list[str]]:
    """The rows of the table whose head names the kenlm module."""
    table = re.search(r"^\| beside the kenlm module.*\n\|[-:|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def test_the_table_of_the_readme():
    found = rows((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) >= 5
    for label, *cells in found:
        for cell, value in zip(cells, expected(label), strict=True):
            digits = len(cell.partition(".")[2])
            assert cell == f"{value:.{digits}f}", f"{label}: the results say {value}"


def test_the_guide_gives_no_figures_of_its_own():
    """docs/kenlm.md names the benchmark; a figure typed there would go stale."""
    guide = (ROOT / "docs/kenlm.md").read_text(encoding="utf-8")
    speed = guide.split("## Speed\n")[1].split("\n## ")[0]
    assert "benchmarks/kenlm_module.py" in speed and not re.search(r"\d+(\.\d+)? ?(x|times|µs|microseconds)", speed)


def test_the_seconds_beside_lmplz_in_the_readme_are_those_measured() -> None:
    methods = newest("scale")["runs"]["72M, 5"]["methods"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"takes ([\d.]+) s for order 5 on two cores where lmplz takes ([\d.]+) s", text)
    assert found.groups() == tuple(f"{methods[name]['seconds']:.1f}" for name in ("memory", "lmplz"))


def test_the_demo_in_the_readme_is_the_one_that_was_run() -> None:
    found = newest("demo")["test_perplexity"]
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("*", "").replace(" ‡", "")
    table = text[text.index("| | test perplexity, alone") :].split("\n\n")[0].splitlines()[2:]
    networks = [found[name] for name in ("none", "jelinek-mercer", "modified-kneser-ney")]
    expected = [f"{one['alone']:.2f} | {one['mixture']:.2f} |" for one in networks] + [
        f"{networks[0]['ngram']:.2f} | |"
    ]
    assert [row.split(" | ", 1)[1] for row in table] == expected


def test_the_processor_seconds_in_the_readme_are_those_measured() -> None:
    found = newest("ngram")["estimation"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| from text file to fitted model") :].split("\n\n")[0].splitlines()[2:]
    for row, name in zip(table, ("lidstone", "lmplz", "counter"), strict=True):
        expected = [f"{found[f'wikitext-2, order {order}'][name]['cpu_seconds']:.2f}" for order in (2, 3, 5)]
        assert [cell.strip() for cell in row.strip("|").split("|")][1:] == expected
