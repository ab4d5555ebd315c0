"""Verbs that read finished runs: `report` makes tables, a page and figures, `compare` tests; `pack` and `unpack`."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Argument, Option

from lidstone.cli.console import print_json, print_table, say
from lidstone.cli.inputs import JSON, complete_runs, not_stdout
from lidstone.errors import InputError, printable

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


EXACT: TypeAlias = Annotated[bool, Option(help="Exact rank-sum; --no-exact: the paper's normal approximation.")]
CORRECTION: TypeAlias = Annotated[Correction, Option(help="For several systems against one baseline.")]
PERMUTATIONS: TypeAlias = Annotated[int, Option(min=1, help="Random flips of the permutation test.")]
SAMPLES: TypeAlias = Annotated[int, Option(min=1, help="Resamples of the paired bootstrap.")]
SEED: TypeAlias = Annotated[int, Option(min=1, help="The seed of the flips and resamples.")]
METRIC: TypeAlias = Annotated[str | None, Option(help="Instead of the task's own: word_perplexity, chrf, ...")]
SKIP_DAMAGED: TypeAlias = Annotated[bool, Option("--skip-damaged", help="Leave damaged runs out.")]


def report(
    runs: Annotated[list[Path], Argument(help="Folders of runs, packed studies, or run.json files.", metavar="RUNS")],
    format: Annotated[Format, Option(help="The format of the tables on stdout.")] = Format.text,
    json: Annotated[bool, Option("--json", help="Short for --format json.")] = False,
    html: Annotated[Path | None, Option(callback=not_stdout, help="Write one self-contained page here.")] = None,
    plots: Annotated[
        Path | None, Option(callback=not_stdout, help="Write figures as PNG and SVG into this folder.")
    ] = None,
    metric: METRIC = None,
    baseline: Annotated[str, Option(help="The method that daggers refer to.")] = "none",
    second: Annotated[str, Option(help="The second baseline of the best-seed table.")] = "add-lambda",
    exact: EXACT = True,
    correction: CORRECTION = Correction.holm,
    permutations: PERMUTATIONS = 10_000,
    samples: SAMPLES = 1_000,
    seed: SEED = 1,
    tests: Annotated[bool, Option(help="Make tests of significance.")] = True,
    split: Annotated[bool, Option("--split", help="One report for each test set and vocabulary.")] = False,
    skip_damaged: SKIP_DAMAGED = False,
    title: Annotated[str, Option(help="The heading of the page.")] = "",
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
    print(printable(_tables(reports, Format.json if json else format)), end="")
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


def compare(
    runs: Annotated[
        list[Path],
        Argument(
            help="Folders of runs, or packed studies: every method against the baseline. "
            "Or single runs: the others against the first, over sentences.",
            metavar="RUNS",
            autocompletion=complete_runs,
        ),
    ],
    baseline: Annotated[str, Option(help="The method to compare with.")] = "none",
    system: Annotated[list[str] | None, Option(help="Only this method; may be repeated.")] = None,
    exact: EXACT = True,
    correction: CORRECTION = Correction.holm,
    permutations: PERMUTATIONS = 10_000,
    samples: SAMPLES = 1_000,
    seed: SEED = 1,
    metric: METRIC = None,
    skip_damaged: SKIP_DAMAGED = False,
    json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Improvements with their intervals, p-values and signatures: over seeds, and over sentences of the best seeds.

    A positive improvement means that the system is better: a lower perplexity, a higher BLEU or log-likelihood.
    """
    from lidstone.lab.report.comparisons import CompareRuns

    tests = CompareRuns(exact, correction.value, permutations, samples, seed)
    if len(runs) > 1 and all(_is_single_run(path) for path in runs):
        found = compare_single_runs(runs, tests)
    else:
        found = compare_methods(runs, tests, baseline, tuple(system or ()), metric, skip_damaged)
    _print_comparisons(found, json)


def compare_single_runs(paths: list[Path], tests: Any) -> list[dict[str, Any]]:
    """The second and later runs against the first, over test sentences."""
    from lidstone.lab.report.runs import check_comparable, load_runs

    loaded = [load_runs(path).runs[0] for path in paths]
    check_comparable(loaded)
    names = {f"{run.name} seed {run.seed} ({run.id})": run for run in loaded}
    if len(names) < 2:
        raise InputError("a run cannot be compared with itself", hint="pass two different runs")
    return list(tests.paired(names, next(iter(names))))


def compare_methods(
    paths: list[Path], tests: Any, baseline: str, systems: tuple[str, ...], metric: str | None, skip_damaged: bool
) -> list[dict[str, Any]]:
    """Every method, or only `systems`, against the baseline: over seeds, and over sentences of the best seeds."""
    from lidstone.lab.report import Report

    report = Report.from_runs(paths, skip_damaged=skip_damaged, metric=metric, baseline=baseline)
    key = report.method(baseline).key  # an unknown name is an error that lists the known ones
    wanted = {report.method(name).key for name in systems} or {m.key for m in report.methods}
    runs = tuple(r for m in report.methods if m.key in wanted | {key} for s in m.settings for r in s.runs)
    if wanted == {key}:
        raise InputError(f"there are no methods to compare with {key!r}", hint="pass runs of another method")
    found = Report.from_runs(runs, metric=metric)
    if key not in {method.key for method in found.methods}:  # of its variants it alone is left, so its key is its name
        key = report.method(baseline).name
    report = replace(found, baseline_name=key, second_name=key)
    for note in report.notes:
        say(f"note: {note}")
    return list(tests(report))


def _print_comparisons(found: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json({"schema": 1, "comparisons": found})
    else:
        heads = ["system", "is", "than", "test", "improvement", "interval", "unit", "p", "adjusted"]
        print_table(heads, [_row(comparison) for comparison in found])
        for signature in dict.fromkeys(c["signature"] for c in found if c["signature"]):
            say(f"signature: {signature}")
    for warning in dict.fromkeys(w for c in found for w in c["warnings"]):
        say(f"warning: {warning}")


def _row(comparison: dict[str, Any]) -> list[str]:
    effect = comparison.get("effect") or {}
    interval = f"{effect['low']:+.4g}..{effect['high']:+.4g}" if effect.get("low") is not None else "-"
    difference = f"{effect['difference']:+.4g}" if effect else "-"
    ps = [f"{p:.4g}" if p is not None else "-" for p in (comparison["p_value"], comparison["adjusted_p"])]
    what = [comparison["system"], comparison["direction"] or "not tested", comparison["baseline"], comparison["test"]]
    return [*what, difference, interval, comparison["unit"], *ps]


def _is_single_run(path: Path) -> bool:
    from lidstone.lab.report.packed import RECORD, is_file

    return is_file(path / RECORD) or (path.name == RECORD and is_file(path))


def pack(
    runs: Annotated[list[Path], Argument(help="Folders of runs, or packed studies.", metavar="RUNS")],
    output: Annotated[
        Path, Option("--output", "-o", callback=not_stdout, help="The packed study, a name that ends in .runs.")
    ],
    as_json: JSON = False,
) -> None:
    """Pack finished runs, without their models, into one file that report and compare read.

    Runs are added to a study that is there; one with the same id is replaced.
    """
    from lidstone.lab.report.runs import pack_runs

    number, new = pack_runs(runs, output)
    if as_json:
        print_json({"study": str(output), "runs": number, "new": new, "bytes": output.stat().st_size})
    else:
        say(f"{output} has {number} runs, {new} of them new")


def unpack(
    study: Annotated[Path, Argument(help="A file made by pack.", metavar="STUDY")],
    output: Annotated[
        Path, Option("--output", "-o", callback=not_stdout, help="The folder of runs, which may have some already.")
    ],
    as_json: JSON = False,
) -> None:
    """Write the runs of a packed study as folders, where a sweep can continue; runs that are there stay as they are."""
    from lidstone.lab.report.packed import unpack as unpack_runs

    written, kept = unpack_runs(study, output)
    if as_json:
        print_json({"output": str(output), "written": written, "kept": kept})
    else:
        say(f"wrote {written} runs into {output}" + (f"; {kept} were there already" if kept else ""))
