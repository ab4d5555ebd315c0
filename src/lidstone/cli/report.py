"""`lidstone report`: the paper's tables, a page and figures from finished runs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from lidstone.cli.console import say

if TYPE_CHECKING:
    from lidstone.lab.report import Report


class Format(str, Enum):
    """The formats of tables."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


class Correction(str, Enum):
    """How p-values are corrected for several systems."""

    holm = "holm"
    none = "none"


EXACT: TypeAlias = Annotated[bool, typer.Option(help="Exact rank-sum; --no-exact: the paper's normal approximation.")]
CORRECTION: TypeAlias = Annotated[Correction, typer.Option(help="For several systems against one baseline.")]
PERMUTATIONS: TypeAlias = Annotated[int, typer.Option(min=1, help="Random flips of the permutation test.")]
SAMPLES: TypeAlias = Annotated[int, typer.Option(min=1, help="Resamples of the paired bootstrap.")]
SEED: TypeAlias = Annotated[int, typer.Option(min=1, help="The seed of the flips and resamples.")]
METRIC: TypeAlias = Annotated[str | None, typer.Option(help="Instead of the task's own: word_perplexity, chrf, ...")]
SKIP_DAMAGED: TypeAlias = Annotated[bool, typer.Option("--skip-damaged", help="Leave damaged runs out.")]


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs, packed studies, or run.json files.", metavar="RUNS")
    ],
    format: Annotated[Format, typer.Option(help="The format of the tables on stdout.")] = Format.text,
    json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page here.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write figures as PNG and SVG into this folder.")] = None,
    metric: METRIC = None,
    baseline: Annotated[str, typer.Option(help="The method that daggers refer to.")] = "none",
    second: Annotated[str, typer.Option(help="The second baseline of the best-seed table.")] = "add-lambda",
    exact: EXACT = True,
    correction: CORRECTION = Correction.holm,
    permutations: PERMUTATIONS = 10_000,
    samples: SAMPLES = 1_000,
    seed: SEED = 1,
    tests: Annotated[bool, typer.Option(help="Make tests of significance.")] = True,
    split: Annotated[bool, typer.Option("--split", help="One report for each test set and vocabulary.")] = False,
    skip_damaged: SKIP_DAMAGED = False,
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "",
) -> None:
    """Tables of finished runs on stdout; with --html a page, with --plots figures."""
    from lidstone.lab.report import Report
    from lidstone.lab.report.comparisons import CompareRuns

    compare = CompareRuns(exact, correction.value, permutations, samples, seed) if tests else None
    options = {"metric": metric, "baseline": baseline, "second": second, "compare": compare, "title": title}
    make = Report.split if split else Report.from_runs
    made = make(runs, skip_damaged=skip_damaged, **options)
    reports = made if isinstance(made, list) else [made]
    for place, (name, usual) in enumerate(((baseline, "none"), (second, "add-lambda"))):
        if name != usual and not any(one.baselines[place] for one in reports):
            reports[0].method(name)  # an unknown name is an error that lists the known ones
    _write_files(reports, html, plots)
    print(_tables(reports, Format.json if json else format), end="")
    for one in reports:
        _print_notes(one)


def _tables(reports: list[Report], format: Format) -> str:
    from lidstone.lab.report import render

    if format is Format.json:
        values = [one.to_dict() for one in reports]
        return render.to_json(values[0] if len(values) == 1 else values) + "\n"
    tables = [getattr(one, f"to_{format.value}")() for one in reports]
    if format is Format.csv:  # one file with one line of names
        return "".join([tables[0], *(table.partition("\n")[2] for table in tables[1:])])
    if format is Format.latex and len(tables) > 1:  # a label may be used once
        tables = [table.replace("\\label{tab:", f"\\label{{tab:{n}-") for n, table in enumerate(tables, start=1)]
    return "\n".join(tables)


def _write_files(reports: list[Report], html: Path | None, plots: Path | None) -> None:
    for place, one in enumerate(reports, 1):
        several = len(reports) > 1
        if html is not None:
            page = html.with_stem(f"{html.stem}-{place}") if several else html
            say(f"wrote {one.to_html(page)}")
        if plots is not None:
            written = one.plots(plots / str(place) if several else plots)
            say(f"wrote {len(written)} figures into {written[0].parent}")


def _print_notes(report: Report) -> None:
    say(report.verdict)
    for warning in report.warnings:
        say(f"note: {warning}")
