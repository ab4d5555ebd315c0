"""`lidstone compare`: is one method, or one run, better than another?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lidstone.cli.console import print_json, print_table, say
from lidstone.cli.inputs import complete_runs
from lidstone.cli.report import CORRECTION, EXACT, METRIC, PERMUTATIONS, SAMPLES, SEED, SKIP_DAMAGED, Correction
from lidstone.errors import InputError


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, or packed studies: every method against the baseline. "
            "Or single runs: the others against the first, over sentences.",
            metavar="RUNS",
            autocompletion=complete_runs,
        ),
    ],
    baseline: Annotated[str, typer.Option(help="The method to compare with.")] = "none",
    system: Annotated[list[str] | None, typer.Option(help="Only this method; may be repeated.")] = None,
    exact: EXACT = True,
    correction: CORRECTION = Correction.holm,
    permutations: PERMUTATIONS = 10_000,
    samples: SAMPLES = 1_000,
    seed: SEED = 1,
    metric: METRIC = None,
    skip_damaged: SKIP_DAMAGED = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
    _print(found, json)


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


def _print(found: list[dict[str, Any]], json: bool) -> None:
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
