"""From the cells of a sweep to jobs: recipes are checked once, corpora prepared once, run ids computed once."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.corpora import cached_corpus
from lidstone.lab.run.record import run_id
from lidstone.lab.sweep.grid import Cell


@dataclass(frozen=True)
class TrialName:
    """The trial of a search that a cell belongs to; any process can open it."""

    journal: str
    study: str
    number: int


@dataclass(frozen=True)
class Job:
    """A cell with everything that another process needs to compute it."""

    name: str
    """the id of its run"""
    recipe: Recipe
    """checked, with the CPU threads of this sweep"""
    output: str
    """the folder of runs"""
    corpus: str | None = None
    """the key of its prepared corpus"""
    label: str = ""
    """the name of the cell in logs"""
    trial: TrialName | None = None
    """for a search that may stop it early"""
    processes: int = 1
    """how many processes train it, by torchrun; a search does not stop such a training early"""
    timing: bool = False
    """do not train: time a few updates, and estimate the time of the training"""

    @property
    def folder(self) -> Path:
        """Where its run is recorded."""
        return Path(self.output) / self.name


@dataclass(frozen=True)
class Outcome:
    """The result of a job."""

    state: Literal["complete", "pruned", "busy", "failed"]
    """pruned: a search stopped it early; busy: another process computes it"""
    record: dict[str, Any] | None = None
    computed: bool = False
    """False if it was complete before"""
    message: str = ""

    def score(self, metric: str) -> float | None:
        """The score on validation; None if there is none, or if it is not finite."""
        return self.record["metrics"]["valid"].get(metric) if self.record else None

    @property
    def seconds(self) -> float | None:
        """How long the training took; None if it is not complete."""
        return float(self.record["cost"]["total_seconds"]) if self.record and self.state == "complete" else None


class Jobs:
    """The jobs of one sweep."""

    def __init__(self, recipe: Recipe, output: Path, *, processes: int = 1, threads: int | None = None) -> None:
        self.base, self.output, self.processes, self.threads = recipe, output, processes, threads
        self._recipes: dict[str, Recipe] = {}
        self._jobs: dict[str, Job] = {}
        self._keys: dict[str, str] = {}

    def of(self, cell: Cell, trial: TrialName | None = None) -> Job:
        """The job of a cell, for an engine."""
        if cell.key not in self._jobs:
            self._jobs[cell.key] = self._make(cell)
        return replace(self._jobs[cell.key], trial=trial)

    def recipe(self, cell: Cell) -> Recipe:
        """The recipe of a cell; an invalid one is a `RecipeError`."""
        if cell.key not in self._recipes:
            self._recipes[cell.key] = self._with_threads(cell.recipe(self.base))
        return self._recipes[cell.key]

    def corpus(self, recipe: Recipe) -> Prepared:
        """The prepared corpus of a recipe, which most cells share."""
        values = recipe.model_dump(mode="json", include={"task", "corpus", "tokenizer"})
        values["checkpoint"] = recipe.model.checkpoint
        section = json.dumps(values, sort_keys=True)
        prepared = cached_corpus(recipe, self._keys.get(section))
        self._keys[section] = prepared.key
        return prepared

    def _make(self, cell: Cell) -> Job:
        recipe = self.recipe(cell)
        prepared = self.corpus(recipe)
        return Job(
            run_id(recipe, prepared),
            recipe,
            str(self.output),
            corpus=prepared.key,
            label=str(cell),
            processes=self.processes,
        )

    def _with_threads(self, recipe: Recipe) -> Recipe:
        if self.threads is None:
            return recipe
        return recipe.model_copy(update={"training": recipe.training.model_copy(update={"threads": self.threads})})
