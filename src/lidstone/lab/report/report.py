"""`Report`: runs in, tables, plots and pages out.

It makes no test of significance itself. Comparisons are passed as plain dictionaries, or made by a function that
is passed: `Report.from_runs("runs", compare=compare_runs)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lidstone.errors import InputError
from lidstone.lab.report import render
from lidstone.lab.report.calibration import CalibrationRow, calibration_rows
from lidstone.lab.report.methods import (
    Method,
    Metric,
    edges,
    find_methods,
    metric_for,
    shortcomings,
    unlike,
    validation_metric,
)
from lidstone.lab.report.runs import LoadedRuns, Run, check_comparable, load_runs, split_comparable, without_copies
from lidstone.lab.report.tables import Table, best_seed_table, seed_table

Source = str | Path | Iterable[str | Path | Run]
Compare = Callable[["Report"], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Report:
    """The runs of one test set and vocabulary, as tables, comparisons, figures and a page.

    >>> report = Report.from_runs("runs", compare=lidstone.compare_runs)  # doctest: +SKIP
    >>> report.to_html("report.html")  # doctest: +SKIP
    """

    runs: tuple[Run, ...]
    metric: Metric
    comparisons: tuple[Mapping[str, Any], ...] = ()
    """Plain dictionaries: system, baseline, scope (`seeds` or `best-seed`), test, adjusted_p, better, effect, ..."""
    notes: tuple[str, ...] = ()
    explorer: Mapping[str, Any] | None = None
    baseline_name: str = "none"
    second_name: str = "add-lambda"
    title: str = ""

    @classmethod
    def from_runs(cls, source: Source, *, skip_damaged: bool = False, **options: Any) -> Report:
        """A report of comparable runs, from folders, files or `Run` values.

        Options: `metric`, `baseline`, `second`, `comparisons`, `compare` (a function of the report), `title`.
        """
        loaded = _load(source, skip_damaged)
        check_comparable(loaded.runs)
        return cls._of(loaded, **options)

    @classmethod
    def split(cls, source: Source, *, skip_damaged: bool = False, **options: Any) -> list[Report]:
        """One report for each test set, vocabulary and metric among the runs."""
        loaded = _load(source, skip_damaged)
        return [cls._of(replace(loaded, runs=group), **options) for group in split_comparable(loaded.runs)]

    @classmethod
    def _of(
        cls,
        loaded: LoadedRuns,
        *,
        metric: str | None = None,
        baseline: str = "none",
        second: str = "add-lambda",
        comparisons: Sequence[Mapping[str, Any]] = (),
        compare: Compare | None = None,
        title: str = "",
    ) -> Report:
        report = cls(
            loaded.runs, metric_for(loaded.runs, metric), tuple(comparisons), loaded.notes, loaded.explorer,
            baseline, second, title,
        )  # fmt: skip
        return replace(report, comparisons=tuple(compare(report))) if compare else report

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """The methods, each with the setting that validation chose."""
        return find_methods(self.runs, self.metric)

    @cached_property
    def chosen_by(self) -> Metric:
        """The metric on validation, which chooses settings: not the report's where runs do not have that."""
        return validation_metric(self.runs, self.metric)

    def method(self, key: str) -> Method:
        """The method with this key, or with this name if only one has it."""
        found = [m for m in self.methods if m.key == key] or [m for m in self.methods if m.name == key]
        if not found:
            raise InputError(f"there is no method {key!r}", hint="use one of " + ", ".join(m.key for m in self.methods))
        return min(found, key=lambda m: m.chosen.place(self.metric))

    @cached_property
    def baselines(self) -> tuple[str | None, str | None]:
        """Keys of the unregularized and of the second baseline, None for one that has no runs."""
        names = {m.name for m in self.methods} | {m.key for m in self.methods}
        first, second = (self.method(n).key if n in names else None for n in (self.baseline_name, self.second_name))
        return first, second if second != first else None

    @property
    def about(self) -> str:
        """What was tested: corpus, size, metric signature."""
        signature = self.runs[0].signature
        corpus = (signature.get("corpus") or {}).get("name", "an unnamed corpus")
        size = signature.get("test_sentences")
        facts = [f"{size:,} sentences"] if isinstance(size, int) else []
        if self.metric == metric_for(self.runs):  # the signature is that of the task's own metric
            facts.append(str(signature.get("metric", self.metric.key)))
        return f"the test set of {corpus}" + (f" ({', '.join(facts)})" if facts else "")

    def table(self) -> Table:
        """Mean ± standard error over seeds: the paper's main tables."""
        return seed_table(
            self.methods, self.metric, self.comparisons, self.baselines[0] or self.baseline_name, self.about
        )

    def best_seed_table(self) -> Table:
        """The best seed of each method: the tables of the paper's appendix C."""
        first, second = self.baselines
        return best_seed_table(
            self.methods, self.metric, self.comparisons, (first or self.baseline_name, second), self.about
        )

    def tables(self) -> tuple[Table, Table]:
        """The table of means over seeds, and that of the best seeds."""
        return self.table(), self.best_seed_table()

    @cached_property
    def calibration(self) -> list[CalibrationRow]:
        """How far each method's probabilities can be trusted; empty for runs that did not record it."""
        return calibration_rows(self.methods)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Notes for the reader: runs left out or trained too little, rows that are unlike, tests without power."""
        from_tests = (w for c in self.comparisons for w in c.get("warnings") or ())
        missing = () if self.baselines[0] else (f"There is no baseline {self.baseline_name!r}, so no daggers.",)
        from_runs = (*shortcomings(self.methods), *edges(self.methods), *unlike(self.methods))
        return tuple(dict.fromkeys([*missing, *self.notes, *from_runs, *from_tests]))

    def to_text(self) -> str:
        """The tables for a terminal."""
        more = [render.calibration_to_text(self.calibration)] if self.calibration else []
        return "\n".join([*map(render.to_text, self.tables()), *more])

    def to_markdown(self) -> str:
        """The tables as Markdown."""
        more = [render.calibration_to_markdown(self.calibration)] if self.calibration else []
        return "\n".join([*map(render.to_markdown, self.tables()), *more])

    def to_latex(self) -> str:
        """Both tables as LaTeX, for `booktabs`."""
        return "\n".join(map(render.to_latex, self.tables()))

    def to_csv(self) -> str:
        """Both tables as CSV; the first column is the kind of table."""
        return render.to_csv(self.tables())

    def to_dict(self) -> dict[str, Any]:
        """Tables, comparisons and notes as plain values."""
        return render.to_dict(
            self.tables(), metric=self.metric.key, about=self.about, verdict=self.verdict, runs=len(self.runs),
            comparisons=list(self.comparisons), notes=list(self.warnings),
            calibration=[row.record() for row in self.calibration],
        )  # fmt: skip

    def to_json(self) -> str:
        """Tables, comparisons and notes as JSON."""
        return render.to_json(self.to_dict())

    @property
    def verdict(self) -> str:
        """The outcome in a sentence or two."""
        return render.verdict(self.table(), self.baselines[0], self.comparisons)

    def to_html(self, path: str | Path) -> Path:
        """Write one self-contained page."""
        from lidstone.files import write_text
        from lidstone.lab.report.page import page

        write_text(path, page(self))
        return Path(path)

    def plots(self, folder: str | Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
        """Write figures for papers into a folder."""
        from lidstone.lab.report.plots import write_plots

        return write_plots(self, Path(folder), formats)


def _load(source: Source, skip_damaged: bool) -> LoadedRuns:
    items = [source] if isinstance(source, (str, Path)) else list(source)
    runs = tuple(item for item in items if isinstance(item, Run))
    paths = [item for item in items if not isinstance(item, Run)]
    if not items:
        raise InputError("no runs were given", hint="pass a folder of runs")
    loaded = load_runs(paths, skip_damaged=skip_damaged) if paths else LoadedRuns(())
    kept, notes = without_copies((*runs, *loaded.runs))
    if not kept:
        raise InputError("none of the runs is complete", hint="wait until a run is complete")
    return replace(loaded, runs=kept, notes=(*loaded.notes, *notes))
