"""A study: a recipe in this folder and the runs of its sweep, put together by what was trained.

A row of a table is a method of the recipe: the setting that validation chose with the first seed, with all its seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from lidstone.lab.evaluation.significance import LEVEL, rank_sum, smallest_p
from lidstone.lab.recipe.recipe import Recipe, load_recipe
from lidstone.lab.report import Report
from lidstone.lab.report.comparisons import CompareRuns
from lidstone.lab.report.render import p_text
from lidstone.lab.report.runs import Run, load_runs
from lidstone.lab.sweep.grid import Cell, refine_cells, search_cells
from results import HERE

LANGUAGES = {"de": "German", "en": "English", "ibo": "Igbo", "swa": "Swahili"}


@dataclass(frozen=True)
class Study:
    """A recipe with the runs of its sweep."""

    recipe: Recipe
    file: Path

    @classmethod
    def of(cls, name: str, *overrides: str, runs: str = "") -> Study:
        """The study of a recipe in this folder, whose runs are in the packed study of that name or another one."""
        return cls(load_recipe(HERE / f"{name}.yaml", overrides), HERE / f"{runs or name}.runs")

    @property
    def metric(self) -> str:
        """What validation chooses by, and what is compared on the test set."""
        return self.recipe.evaluation.metric

    @property
    def languages(self) -> str:
        """What is translated into what."""
        corpus = self.recipe.corpus
        return f"{LANGUAGES[corpus.source_language]} to {LANGUAGES[corpus.target_language]}"

    @cached_property
    def settings(self) -> dict[str, list[Run]]:
        """The seeds of every setting, once each: a run may have been made under two names."""
        found: dict[str, dict[int, Run]] = {}
        for run in load_runs(self.file).runs if self.file.is_file() else ():
            found.setdefault(setting(run.config), {})[run.seed] = run
        return {name: list(runs.values()) for name, runs in found.items()}

    def tried(self, method: str) -> list[list[Run]]:
        """The seeds of each setting of a method: those of its grid, then those around the best of them."""
        return [*self.grid(method), *self.refined(method)]

    def grid(self, method: str) -> list[list[Run]]:
        """The seeds of each setting in the grid of a method."""
        return [self._trained(cell) for cell in search_cells(self.recipe, method)]

    def refined(self, method: str) -> list[list[Run]]:
        """The seeds of each setting around the best in the grid of a method; nothing before all of that is trained."""
        grid = self.grid(method)
        if not self._complete(grid):
            return []
        scores = [self.order(runs[0]) for runs in grid]
        best = search_cells(self.recipe, method)[scores.index(min(scores))]
        return [self._trained(cell) for cell in refine_cells(self.recipe, best)]

    def _trained(self, cell: Cell) -> list[Run]:
        runs = self.settings.get(setting(cell.recipe(self.recipe).to_dict()), [])
        return sorted((replace(run, name=cell.method) for run in runs), key=lambda run: run.seed)

    def _complete(self, settings: Iterable[Sequence[Run]]) -> bool:
        return all(map(self._has_first_seed, settings))

    def _has_first_seed(self, runs: Sequence[Run]) -> bool:
        """Whether a setting was trained with the seed that settings are chosen by."""
        return bool(runs) and runs[0].seed == self.recipe.sweep.seeds[0]

    def runs(self, method: str) -> list[Run]:
        """The seeds of the setting that validation chose; none before the grid of the method was tried."""
        if method not in self.recipe.method_names or not self._complete(self.grid(method)):
            return []
        chosen = min(filter(self._has_first_seed, self.tried(method)), key=lambda runs: self.order(runs[0]))
        name, _, _ = method.partition(", ")  # `jelinek-mercer, exact`: tables tell the form themselves
        return [replace(run, name=name) for run in chosen]

    def on_valid(self, runs: Iterable[Run]) -> float:
        """The mean on validation."""
        return mean(run.value("valid", self.metric) for run in runs)

    def order(self, run: Run) -> float:
        """A key that sorts the best on validation first."""
        return run.value("valid", self.metric) * (1 if self.metric == "perplexity" else -1)

    def report(self, methods: Iterable[str], metric: str | None = None, **options: Any) -> Report | None:
        """A report of the unregularized model and those methods; None if none of them has been run."""
        runs = {run.path: run for method in methods for run in self.runs(method)}  # two methods may share a setting
        compare = CompareRuns(exact=True, **options)
        if not runs:
            return None
        every = [*self.runs("none"), *runs.values()]
        return Report.from_runs(every, metric=metric, second="label-smoothing", compare=compare)

    @property
    def smoothers(self) -> list[str]:
        """The methods that use a smoother."""
        return [name for name in self.recipe.method_names if self.recipe.method(name).regularizer.smoother]

    def names(self, *variants: str) -> list[str]:
        """The smoothers whose name has one of these behind its comma."""
        return [name for name in self.smoothers if name.partition(", ")[2] in variants]

    @property
    def baselines(self) -> list[str]:
        """What one would use instead of a smoother."""
        return [name for name in self.recipe.method_names if name not in ("none", *self.smoothers)]


def missing_cells(study: Study) -> str:
    """Which settings and seeds of a study have not been run; nothing where it is complete."""
    told, planned = [], len(study.recipe.sweep.seeds)
    for name in study.recipe.method_names:
        tried = study.tried(name)
        waiting, left = sum(not runs for runs in tried), planned - len(study.runs(name))
        parts = [f"{waiting} of {len(tried)} settings"] if waiting and len(tried) > 1 else []
        parts += [f"{left} of {planned} seeds"] if left else []
        if parts:
            told.append(f"`{name}`: {' and '.join(parts)}")
    return "; ".join(told)


def of_common_seeds(*methods: Sequence[Run]) -> list[list[Run]]:
    """The runs of several methods with the seeds that all of them have."""
    common = set.intersection(*({run.seed for run in runs} for runs in methods))
    return [[run for run in runs if run.seed in common] for runs in methods]


def seeds(count: int) -> str:
    """A number of seeds in words."""
    return "1 seed" if count == 1 else f"{count} seeds"


def p_value(first: Sequence[float], second: Sequence[float]) -> str:
    """The exact rank-sum test of two methods; says so where few seeds allow nothing smaller than p, and p is large."""
    if min(len(first), len(second)) < 2:
        return "no p-value"
    p = rank_sum(first, second, exact=True).p_value
    least = smallest_p("rank-sum-exact", (len(first), len(second)))
    return p_text(p) + (", the least possible" if least > LEVEL and math.isclose(p, least) else "")


def on_test(runs: Iterable[Run], metric: str = "perplexity") -> list[float]:
    """The scores on the test set."""
    return [run.value("test", metric) for run in runs]


def mean_on_test(runs: Iterable[Run], metric: str) -> float:
    """The mean of a metric on the test set."""
    return mean(on_test(runs, metric))


def setting(config: dict[str, Any]) -> str:
    """All of a recipe but the seed, names and where a checkpoint lies, with one strength written as two."""
    kept = {key: value for key, value in config.items() if key not in ("name", "methods", "sweep")}
    kept["regularizer"] = {key: value for key, value in kept["regularizer"].items() if key not in ("name", "gamma")}
    for key in ("gamma_plus", "gamma_minus"):
        if kept["regularizer"][key] is None:
            kept["regularizer"][key] = config["regularizer"]["gamma"]
    if checkpoint := kept["model"].get("checkpoint"):
        kept["model"] = {**kept["model"], "checkpoint": Path(checkpoint).name}
    kept["training"] = {key: value for key, value in kept["training"].items() if key not in ("seed", "threads")}
    return json.dumps(kept, sort_keys=True)


def percent(fraction: float) -> str:
    """A fraction in per cent."""
    return f"{100 * fraction:g} %"
