"""The figures on the front pages are those of the benchmarks' results."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks._timing import newest

ROOT = Path(__file__).parents[2]


def test_the_guide_gives_no_figures_of_its_own():
    """docs/kenlm.md names the benchmark; a figure typed there would go stale."""
    guide = (ROOT / "docs/kenlm.md").read_text(encoding="utf-8")
    speed = guide.split("## Speed\n")[1].split("\n## ")[0]
    assert "benchmarks/kenlm_module.py" in speed and not re.search(r"\d+(\.\d+)? ?(x|times|µs|microseconds)", speed)


def test_the_demo_on_the_page_is_the_one_that_was_run() -> None:
    found = newest("demo")["test_perplexity"]
    text = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8").replace("*", "").replace(" ‡", "")
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
