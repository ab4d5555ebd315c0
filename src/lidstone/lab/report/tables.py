"""The paper's two tables as values: means over seeds, and best seeds.

A table is a function of methods and of given comparisons; this module neither renders nor tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lidstone.files import jsonable
from lidstone.lab.evaluation.effect import standard_error
from lidstone.lab.methods.base import METHODS
from lidstone.lab.report.labels import Label
from lidstone.lab.report.methods import Method, Metric, validation_metric
from lidstone.lab.report.runs import Run

DAGGER, DOUBLE_DAGGER = "†", "‡"


@dataclass(frozen=True)
class NgramBaseline:
    """Modified Kneser-Ney of the training text on the same test set."""

    low: float
    high: float
    """differs from `low` where the runs were trained on different text"""
    orders: tuple[int, ...]
    scored: int
    """how many of the runs have these scores"""
    runs: int
    rank: int = 0
    """its place among the networks alone, as in `Row`"""

    @property
    def label(self) -> str:
        """The name of its row."""
        return f"n-gram alone (MKN, n={'/'.join(map(str, self.orders))})"


@dataclass(frozen=True)
class Row:
    """One method in a table."""

    key: str
    label: Label
    value: float
    error: float
    """Standard error of the mean; NaN where there is none."""
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    settings_tried: int
    rank: int = 0
    """1 for the best, 2 for the second, 0 for the others."""
    marks: str = ""
    """Daggers after the number."""
    comparisons: tuple[Mapping[str, Any], ...] = ()
    mixed: float = math.nan
    """The same network mixed with the n-gram model of its training text."""
    mixed_error: float = math.nan
    mixed_runs: int = 0
    """How many of the runs keep a score of the mixture."""
    mixed_rank: int = 0
    """The place of the mixture among the mixtures."""
    alone: bool = True
    """False for a network that needs the n-gram model at test time, too (the residual): not ranked among those."""


@dataclass(frozen=True)
class Table:
    """Rows and their caption."""

    kind: str
    """`seeds` or `best-seed`."""
    metric: Metric
    rows: tuple[Row, ...]
    caption: str
    about: str = ""
    """What was tested: corpus, size, metric."""
    rule_after: int = 1
    """Rows above the inner rule: the baselines."""
    ngram: NgramBaseline | None = None
    """Language models: the n-gram model of the training text, if the runs have its scores."""

    def records(self) -> list[dict[str, Any]]:
        """The rows as plain dictionaries."""
        return [_record(self, row) for row in self.rows]


def seed_table(
    methods: Sequence[Method], metric: Metric, comparisons: Sequence[Mapping[str, Any]], baseline: str, about: str
) -> Table:
    """Mean and standard error over seeds, best and second marked, a dagger for significantly better than `baseline`."""
    used = [c for c in comparisons if c.get("scope") == "seeds"]
    rows = [_row(method, method.chosen.runs, len(method.settings), metric, used, (baseline,)) for method in methods]
    rows = [replace(row, marks=DAGGER if row.marks and np.isfinite(row.values).all() else "") for row in rows]
    counts = sorted({len(row.values) for row in rows})
    mean = "mean ± standard error over " if counts[-1:] != [1] else ""
    daggers = _daggers(used, _caption_name(methods, baseline), {DAGGER: 0.05})
    facts = (f"{mean}{_seeds(counts)}", _settings_note(methods, metric), daggers)
    return _table("seeds", methods, metric, rows, (baseline,), about, *facts)


def best_seed_table(
    methods: Sequence[Method],
    metric: Metric,
    comparisons: Sequence[Mapping[str, Any]],
    baselines: tuple[str, str | None],
    about: str,
) -> Table:
    """The best seed of each method, with one symbol against each of the two baselines."""
    used = [c for c in comparisons if c.get("scope") == "best-seed"]
    best = [(method, method.chosen.best_run(metric)) for method in methods]
    rows = [_row(method, (run,), len(method.chosen.runs), metric, used, baselines) for method, run in best]
    both, *second = (_caption_name(methods, key) for key in baselines if key)
    both += f" (first symbol) and {second[0]} (second)" if second else ""
    counts = sorted({row.settings_tried for row in rows})
    facts = (
        f"best (on the test set) of {_seeds(counts)}",
        "",
        _daggers(used, both, {DAGGER: 0.05, DOUBLE_DAGGER: 0.01}),
    )
    table = _table("best-seed", methods, metric, rows, baselines, about, *facts)
    return replace(table, rule_after=sum(row.key in baselines for row in rows[:2]))


def _table(
    kind: str,
    methods: Sequence[Method],
    metric: Metric,
    rows: Sequence[Row],
    baselines: Sequence[str | None],
    about: str,
    what: str,
    settings: str,
    daggers: str,
) -> Table:
    """The table of these rows, with its caption."""
    runs = _runs(methods)
    ngram = ngram_baseline(runs, metric)
    caption = _join(
        f"{metric.name} on {about}, {what}",
        f"{'lower' if metric.lower_is_better else 'higher'} is better",
        f"best {'of each column ' if ngram else ''}in bold, second underlined",
        _not_ranked(rows),
        settings,
        daggers,
        *(_worse(methods, rows, baseline) for baseline in baselines if baseline),
        describe_ngram(ngram, [row.value for row in rows], metric, runs[0].task),
    )
    ranks, mixed_ranks, rank = ranked(rows, metric, ngram)
    placed = zip(rows, ranks, mixed_ranks, strict=True)
    marked = tuple(replace(row, rank=own, mixed_rank=mixed) for row, own, mixed in placed)
    return Table(kind, metric, marked, caption, about, ngram=ngram and replace(ngram, rank=rank))


def ranked(rows: Sequence[Row], metric: Metric, ngram: NgramBaseline | None) -> tuple[list[int], list[int], int]:
    """The places of the networks alone, of the mixtures, and of the n-gram model among the networks alone."""
    model = ngram.high if ngram else math.nan
    *alone, rank = _places([*(row.value if row.alone else math.nan for row in rows), model], metric)
    return alone, _places([row.mixed for row in rows], metric), rank


def _places(values: Sequence[float], metric: Metric) -> list[int]:
    """1 for the best, 2 for the second, 0 for the others and for a single score; equal scores share a place.

    >>> from lidstone.lab.report.methods import METRICS
    >>> _places([3.0, 1.0, math.nan, 2.0, 1.0], METRICS["perplexity"])
    [0, 1, 0, 2, 1]
    """
    told = [metric.order(value) for value in values if metric.tells(value)]
    best = sorted(set(told))[:2] if len(told) > 1 else []
    return [best.index(order) + 1 if (order := metric.order(value)) in best else 0 for value in values]


def ngram_baseline(runs: Sequence[Run], metric: Metric) -> NgramBaseline | None:
    """The n-gram model of these runs; None if no run has its scores."""
    kept = _kept(runs, metric, "ngram")
    if not kept:
        return None
    orders = sorted({int(run.ngram["order"]) for run in runs if isinstance(run.ngram.get("order"), int)})
    return NgramBaseline(min(kept), max(kept), tuple(orders), len(kept), len(runs))


def _kept(runs: Sequence[Run], metric: Metric, model: str) -> list[float]:
    """The scores of a model on the test set, of the runs that have it."""
    return [value for run in runs if math.isfinite(value := run.value("test", metric.key, model))]


def describe_ngram(ngram: NgramBaseline | None, values: Sequence[float], metric: Metric, task: str) -> str:
    """A sentence that compares the n-gram model with the networks of a table; empty for translation.

    >>> from lidstone.lab.report.methods import METRICS
    >>> describe_ngram(NgramBaseline(106.0, 106.0, (4,), 2, 2), [135.0, 123.8], METRICS["perplexity"], "lm")[:88]
    'an n-gram model of the same training text (MKN, n=4) has 106.00: better than every netwo'
    """
    if task != "lm" or not metric.lower_is_better:
        return ""
    if ngram is None:
        return "these runs were not scored beside an n-gram model of the same text"
    beaten = sum(ngram.high < value for value in values)
    than = "every network" if beaten == len(values) else f"{beaten} of the {len(values)} networks" if beaten else ""
    verdict = f"better than {than} here" if than else "every network here is better"
    shown = f"{ngram.low:.2f}" if ngram.low == ngram.high else f"{ngram.low:.2f} to {ngram.high:.2f}"
    some = "" if ngram.scored == ngram.runs else f" ({ngram.scored} of {ngram.runs} runs were scored beside it)"
    orders = "/".join(map(str, ngram.orders))
    return (
        f"an n-gram model of the same training text (MKN, n={orders}) has {shown}: {verdict}{some}. + n-gram: network "
        "and n-gram model mixed at test time, one weight chosen on validation"
    )


def _row(
    method: Method,
    runs: Sequence[Run],
    tried: int,
    metric: Metric,
    comparisons: Sequence[Mapping[str, Any]],
    baselines: Sequence[str | None],
) -> Row:
    """Mean and standard error over some runs of a method, with a symbol against each baseline."""
    values, mixed = [run.value("test", metric.key) for run in runs], _kept(runs, metric, "mixture")
    mine = tuple(c for c in comparisons if c["system"] == method.key and c["baseline"] in baselines)
    return Row(
        method.key, method.label, float(np.mean(values)), standard_error(values), tuple(values),
        tuple(run.seed for run in runs), tried,
        marks=two_way([next((_symbol(c) for c in mine if c["baseline"] == b), "") for b in baselines if b]),
        comparisons=mine, mixed=float(np.mean(mixed)) if mixed else math.nan, mixed_error=standard_error(mixed),
        mixed_runs=len(mixed), alone=_stands_alone(method),
    )  # fmt: skip


def _runs(methods: Sequence[Method]) -> list[Run]:
    return [run for method in methods for run in method.chosen.runs]


def two_way(symbols: Sequence[str]) -> str:
    """Symbols against the first and the second baseline as the paper prints them.

    >>> two_way(["‡", "†"]), two_way(["‡", ""]), two_way(["", "†"]), two_way(["", ""])
    ('‡/†', '‡', '–/†', '')
    """
    first, second = (*symbols, "")[:2] if len(symbols) < 2 else symbols[:2]
    return f"{first or '–'}/{second}" if second else first


def _symbol(comparison: Mapping[str, Any]) -> str:
    """A dagger if the system is significantly better; the caption names those that are significantly worse."""
    p = _adjusted_p(comparison) if comparison.get("better") else 1.0
    return DOUBLE_DAGGER if p < 0.01 else DAGGER if p < 0.05 else ""


def _worse(methods: Sequence[Method], rows: Sequence[Row], baseline: str) -> str:
    """Which rows are significantly worse than a baseline."""
    names = [
        _caption_name(methods, row.key)
        for row in rows
        for c in row.comparisons
        if c["baseline"] == baseline and c.get("direction") == "worse" and _adjusted_p(c) < 0.05
    ]
    return f"significantly worse than {_caption_name(methods, baseline)}: {', '.join(names)}" if names else ""


def _adjusted_p(comparison: Mapping[str, Any]) -> float:
    """The corrected p-value; 1 where no test could be made."""
    p = comparison.get("adjusted_p")
    return 1.0 if p is None else float(p)


def _stands_alone(method: Method) -> bool:
    kind = str(method.chosen.runs[0].method.get("kind"))
    return kind not in METHODS or METHODS[kind].stands_alone


def _not_ranked(rows: Sequence[Row]) -> str:
    names = " and ".join(row.label.short for row in rows if not row.alone)
    return (
        f"{names} needs the n-gram model at test time, too, and is not ranked among the networks alone" if names else ""
    )


def _seeds(counts: Sequence[int]) -> str:
    if len(counts) == 1:
        return f"{counts[0]} seed{'s' if counts[0] != 1 else ''}"
    return f"{counts[0]} to {counts[-1]} seeds"


def _settings_note(methods: Sequence[Method], metric: Metric) -> str:
    tried = max((len(method.settings) for method in methods), default=1)
    chosen_by = validation_metric(_runs(methods), metric) if methods else metric
    by = "" if chosen_by == metric else f" by {chosen_by.name}"
    return f"settings chosen on validation{by} among up to {tried} of each method" if tried > 1 else ""


def _daggers(comparisons: Sequence[Mapping[str, Any]], baseline: str, levels: Mapping[str, float]) -> str:
    tested = [c for c in comparisons if c.get("p_value") is not None]
    if not tested:
        seeds = any(c.get("scope") == "seeds" for c in comparisons)
        return "not tested over seeds" if seeds else "no test of significance was made"
    symbols = " and ".join(f"{symbol} p < {level:g}" for symbol, level in levels.items())
    tests = " and ".join(sorted({str(c["test"]) for c in tested}))
    corrections = _corrections(tested)
    return f"{symbols}: significantly better than {baseline} ({tests}, two-sided, {corrections})"


def _caption_name(methods: Sequence[Method], key: str) -> str:
    """The name of a method in a caption; its key also has what separates variants of one name."""
    return next((key.replace(m.name, m.label.short, 1) for m in methods if m.key == key), key)


def _corrections(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """How the p-values were corrected, and over how many systems."""
    found = dict.fromkeys(str(comparison.get("correction", "none")) for comparison in comparisons)
    counts = [name.partition("-")[2] for name in found if name != "none"]  # as the baselines are named: first, second
    holm = f"Holm-corrected over {' and '.join(counts)}" if counts else ""
    return " and ".join(filter(None, [holm, "uncorrected" if "none" in found else ""]))


def _join(*parts: str) -> str:
    sentences = [part for part in parts if part]
    return ". ".join(part[0].upper() + part[1:] for part in sentences) + "."


def _record(table: Table, row: Row) -> dict[str, Any]:
    first = row.comparisons[0] if row.comparisons else {}
    effect = first.get("effect") or {}
    record = {
        "table": table.kind,
        "method": row.key,
        "label": row.label.text(),
        "metric": table.metric.key,
        "value": row.value,
        "standard_error": row.error,
        "seeds": len(row.values) if table.kind == "seeds" else row.settings_tried,
        "rank": row.rank or None,
        "marks": row.marks,
        "baseline": first.get("baseline"),
        "p_value": first.get("p_value"),
        "adjusted_p": first.get("adjusted_p"),
        "direction": first.get("direction"),
        "difference": effect.get("difference"),
        "unit": first.get("unit"),
        "low": effect.get("low"),
        "high": effect.get("high"),
        "test": first.get("signature"),
        "mixture": row.mixed,
        "mixture_error": row.mixed_error,
        "ngram": table.ngram.low if table.ngram else None,
        "about": table.about,
    }
    return dict(jsonable(record))
