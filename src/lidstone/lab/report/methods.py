"""From runs to methods: which runs are seeds of one setting, and which setting represents its method.

    setting   everything but the seed agrees
    method    name, n-gram order, form, empirical and schedule agree; the strengths and own parameters were searched

A method is represented by the setting with the most seeds, and among those by the one that is best on validation; the
test set is not used for this choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lidstone.errors import InputError
from lidstone.lab.report.labels import NAMES, Label, brief, parameter_pairs
from lidstone.lab.report.runs import NOISE, SHORTCOMINGS, STRENGTHS, Run, setting_of

VARIANTS = ("order", "form", "empirical", "schedule")
"""Keys that separate methods of one name; shown in labels when they vary."""


@dataclass(frozen=True)
class Metric:
    """A metric, and whether lower or higher is better."""

    key: str
    name: str
    lower_is_better: bool

    def better(self, a: float, b: float) -> bool:
        """Whether `a` is better than `b`; every number is better than NaN."""
        return self.order(a) < self.order(b)

    def tells(self, value: float) -> bool:
        """Whether a score tells anything: it is a number, and not a BLEU that is noise."""
        return math.isfinite(value) and not (self.key == "bleu" and value < NOISE)

    def order(self, value: float) -> float:
        """A key that sorts the best first."""
        if not math.isfinite(value):
            return math.inf
        return value if self.lower_is_better else -value

    @property
    def arrow(self) -> str:
        """The direction that is better."""
        return "↓" if self.lower_is_better else "↑"


METRICS = {
    metric.key: metric
    for metric in (
        Metric("perplexity", "Perplexity", True),
        Metric("word_perplexity", "Word perplexity", True),
        Metric("loss", "Loss", True),
        Metric("bleu", "BLEU", False),
        Metric("chrf", "chrF", False),
    )
}


OWN = {"lm": "perplexity", "mt": "bleu"}
"""The metric of each task."""


@dataclass(frozen=True)
class Setting:
    """The seeds of one setting."""

    runs: tuple[Run, ...]

    def values(self, split: str, metric: Metric) -> list[float]:
        """The metric of each seed."""
        return [run.value(split, metric.key) for run in self.runs]

    def mean(self, split: str, metric: Metric, seeds: Sequence[int] = ()) -> float:
        """The mean over seeds: over these, where there are any given."""
        return float(np.mean([run.value(split, metric.key) for run in self.runs if not seeds or run.seed in seeds]))

    def place(self, metric: Metric) -> float:
        """A key that sorts the best on validation first."""
        chosen_by = validation_metric(self.runs, metric)
        return chosen_by.order(self.mean("valid", chosen_by))

    def best_run(self, metric: Metric) -> Run:
        """The seed with the best test score, as in the paper's best-seed tables."""
        return min(self.runs, key=lambda run: metric.order(run.value("test", metric.key)))


@dataclass(frozen=True)
class Method:
    """One row of a table: a smoother with the setting that validation chose."""

    key: str
    label: Label
    settings: tuple[Setting, ...]
    chosen: Setting

    @property
    def name(self) -> str:
        """The bare name of the method."""
        return self.label.name


def metric_for(runs: Sequence[Run], name: str | None = None) -> Metric:
    """The metric asked for, or the one of the task: perplexity for `lm`, BLEU for `mt`."""
    key = name or OWN[runs[0].task]
    if key not in METRICS:
        raise InputError(f"there is no metric {key!r}", hint=f"use one of {', '.join(METRICS)}")
    if not any(math.isfinite(run.value("test", key)) for run in runs):
        raise InputError(f"none of the {len(runs)} runs has the metric {key!r} on its test set")
    return METRICS[key]


def validation_metric(runs: Sequence[Run], metric: Metric) -> Metric:
    """The metric that chooses settings on validation: the report's, or the first other one that these runs have.

    That is the one of their recipe, then the task's own, then the loss.
    """
    named = ((run.config.get("evaluation") or {}).get("metric") for run in runs[:1])
    keys = [metric.key, *(key for key in named if key in METRICS), OWN[runs[0].task], "loss"]
    kept = (key for key in keys if any(math.isfinite(run.value("valid", key)) for run in runs))
    return METRICS[next(kept, metric.key)]


def find_methods(runs: Sequence[Run], metric: Metric) -> tuple[Method, ...]:
    """Group runs into methods, in the paper's order: none, add-lambda, then by name."""
    varying = _varying([_variant(run) for run in runs])
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_key(run, varying), []).append(run)
    methods = [_method(key, group, metric, varying) for key, group in groups.items()]
    return tuple(sorted(methods, key=lambda method: (_place(method.name), method.key)))


def unlike(methods: Sequence[Method]) -> list[str]:
    """Notes on rows that differ in more than their method: in keys of the recipe that no method searched."""
    flat = [[_flat(_rest(setting.runs[0])) for setting in method.settings] for method in methods]
    searched = {key for recipes in flat for key in _differing(recipes)}
    chosen = [_flat(_rest(method.chosen.runs[0])) for method in methods]
    found = sorted(_differing(chosen) - searched)
    notes = [f"Rows differ in {', '.join(found[:6])}, not only in the method."] if found else []
    runs = [tuple(sorted(run.id for run in method.chosen.runs)) for method in methods]
    for place, same in enumerate(runs):
        if same in runs[:place]:
            notes.append(f"{methods[runs.index(same)].key} and {methods[place].key} are the same runs.")
    return notes


def shortcomings(methods: Sequence[Method]) -> list[str]:
    """Notes on runs in the table whose scores say little about their methods."""
    notes, runs = [], sum(len(method.chosen.runs) for method in methods)
    for reason, advice in SHORTCOMINGS.items():
        found = {m.key: sum(reason in run.shortcomings for run in m.chosen.runs) for m in methods}
        if number := sum(found.values()):
            names, runs = (
                ", ".join(key for key, count in found.items() if count),
                sum(len(m.chosen.runs) for m in methods),
            )
            notes.append(f"{reason[0].upper()}{reason[1:]}: {number} of {runs} runs ({names}); {advice}.")
    return notes


def at_edge(value: Any, tried: Iterable[Any]) -> str:
    """Whether the best value is the highest or the lowest of those that were tried.

    >>> at_edge(0.5, [0.1, 0.5]), at_edge(0.1, [0.05, 0.1, 0.5]), at_edge(0.1, [0.1])
    ('highest of 2', '', '')
    """
    values = sorted({number for number in tried if isinstance(number, (int, float))})
    if len(values) < 2 or value not in (values[0], values[-1]):
        return ""
    return f"{'lowest' if value == values[0] else 'highest'} of {len(values)}"


def edges(methods: Sequence[Method]) -> list[str]:
    """A note on chosen strengths at the edge of those that were tried."""
    found = []
    for method in methods:
        tried, chosen = [_strengths(setting) for setting in method.settings], _strengths(method.chosen)
        for symbol in ("γ", "γ₊", "γ₋"):
            values = [float(pairs[symbol]) for pairs in tried if symbol in pairs]
            where = at_edge(float(chosen[symbol]), values) if symbol in chosen else ""
            found += [f"{method.key} {symbol}={chosen[symbol]} ({where})"] if where else []
    return [f"Strengths at the edge of those tried, better ones may lie beyond: {', '.join(found)}."] if found else []


def _strengths(setting: Setting) -> dict[str, str]:
    method = setting.runs[0].method
    return dict(parameter_pairs({key: method.get(key) for key in STRENGTHS}))


def _rest(run: Run) -> dict[str, Any]:
    """The recipe of a run without its regularizer."""
    return {key: value for key, value in _recipe(run).items() if key != "regularizer"}


def _recipe(run: Run) -> dict[str, Any]:
    """The part of a run's recipe that makes its setting."""
    return dict(json.loads(setting_of(run))[2])


def _differing(recipes: Sequence[dict[str, Any]]) -> set[str]:
    """Keys whose values are not the same in all of them; a key that an older recipe lacks does not count."""
    keys = set.intersection(*map(set, recipes)) if recipes else set()
    return {key for key in keys if len({json.dumps(recipe[key], default=str) for recipe in recipes}) > 1}


def _method(key: str, runs: Sequence[Run], metric: Metric, varying: tuple[str, ...]) -> Method:
    by_setting: dict[str, list[Run]] = {}
    for run in runs:
        by_setting.setdefault(setting_of(run), []).append(run)
    settings = tuple(Setting(tuple(sorted(group, key=lambda r: r.seed))) for group in by_setting.values())
    chosen = min(settings, key=lambda s: (-len(s.runs), s.place(metric)))
    return Method(key, _label(chosen, settings, varying), settings, chosen)


def _label(chosen: Setting, settings: Sequence[Setting], varying: tuple[str, ...]) -> Label:
    run = chosen.runs[0]
    if run.method.get("smoother") is None and run.name == "none":
        return Label("none", _recipe_pairs(chosen, settings))
    shown = varying if _variant(run) else ()  # a baseline has no form, whatever its record says
    return Label(run.name, parameter_pairs(run.method, shown) + _recipe_pairs(chosen, settings))


def _recipe_pairs(chosen: Setting, settings: Sequence[Setting]) -> tuple[tuple[str, str], ...]:
    """What else the settings of a method vary, such as the learning rate.

    Of the regularizer's keys, those that differ between settings which the method's own parameters do not tell apart.
    """
    run, mine = chosen.runs[0], _flat(_recipe(chosen.runs[0]))
    same = [_flat(_recipe(s.runs[0])) for s in settings if s.runs[0].method == run.method]
    keys = {key for recipe in same for key in {**recipe, **mine} if recipe.get(key) != mine.get(key)}
    keys |= _differing([_flat(_rest(s.runs[0])) for s in settings])
    return tuple((key.split(".")[-1], str(mine.get(key))) for key in sorted(keys)[:4])


def _flat(recipe: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(recipe, dict):
        return {prefix.rstrip("."): recipe}
    return {k: v for key, value in recipe.items() for k, v in _flat(value, f"{prefix}{key}.").items()}


def _variant(run: Run) -> dict[str, Any]:
    return {} if run.method.get("smoother") is None else {key: run.method.get(key) for key in VARIANTS}


def _varying(variants: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    present = [variant for variant in variants if variant]
    return tuple(key for key in VARIANTS if len({json.dumps(v[key], default=str) for v in present}) > 1)


def _key(run: Run, varying: tuple[str, ...]) -> str:
    variant = _variant(run)
    return " ".join([run.name, *(f"{key}={brief(variant[key])}" for key in varying if variant.get(key) is not None)])


def _place(name: str) -> int:
    """The place in tables: as in the paper, up to its last smoother; others have one place, and are sorted by name."""
    paper = list(NAMES)[: list(NAMES).index("kneser-essen-ney") + 1]
    plain = name.replace("_", "-")
    return paper.index(plain) if plain in paper else len(paper)
