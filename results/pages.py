"""Where the pages of results are written, and their pictures."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from study import HERE

from lidstone.files import write_text
from lidstone.lab.report import Report

DOCS = HERE.parent / "docs"
README = HERE.parent / "README.md"
PAGES = HERE


def picture(report: Report, name: str) -> str:
    """Scores and learning curves of a report, as figures in docs/images."""
    figures = {"Test scores": "scores", "Learning curves": f"curves-valid-{report.metric.key}"}
    with TemporaryDirectory() as folder:
        report.plots(folder, formats=("svg",))
        for kind in figures.values():
            write_text(DOCS / "images" / f"{name}-{kind}.svg", (Path(folder) / f"{kind}.svg").read_text())
    return "".join(f"![{title}](images/{name}-{kind}.svg)\n\n" for title, kind in figures.items())


def percent(fraction: float) -> str:
    """A fraction in per cent."""
    return f"{100 * fraction:g} %"
