"""A sweep: search the axes of each method on validation, then train the best setting with every seed.

All state is files: finished cells are `run.json`s, cells in work are locked, a search remembers in its journal. So a
sweep may be killed at any point and started again, and several processes may work on one at the same time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lidstone.errors import RunError
from lidstone.experiment.cell import Job, Outcome, claim, finished, prepared_of
from lidstone.experiment.config import Recipe
from lidstone.experiment.engines import Engine
from lidstone.experiment.grid import Cell, search_cells, seed_cells
from lidstone.experiment.record import run_id
from lidstone.experiment.search import Search
from lidstone.files import write_text

SCHEMA = 1
BUSY_SECONDS = 2.0  # how long to wait before looking again at a cell that another process computes


@dataclass
class MethodState:
    """How far the sweep of one method is."""

    method: str
    planned: list[Cell]
    """what is to be computed, as far as it is known"""
    outcomes: dict[str, tuple[Cell, Outcome]] = field(default_factory=dict)
    """by the cell's text"""
    search: Search | None = None
    best: Cell | None = None
    """the best setting on validation, once the search is over"""
    in_work: int = 0

    def scores(self, metric: str) -> list[tuple[float, Cell]]:
        """Validation scores of the complete cells."""
        complete = [(cell, out) for cell, out in self.outcomes.values() if out.state == "complete" and out.record]
        return [(out.record["metrics"]["valid"][metric], cell) for cell, out in complete if out.record]


Watch = Callable[[list[MethodState], float | None], None]
"""Called after every change with the state of all methods and the estimated seconds left."""


class Sweep:
    """The sweep of one recipe into one folder of runs."""

    def __init__(self, recipe: Recipe, output: str | Path, methods: Sequence[str] = ()) -> None:
        self.recipe, self.output = recipe, Path(output)
        self.metric = recipe.evaluation.metric
        self.methods = [self._state(name) for name in methods or recipe.method_names]
        for state in self.methods:
            for cell in state.planned:
                cell.recipe(recipe)  # an unknown axis shows before anything is computed

    def _state(self, method: str) -> MethodState:
        return MethodState(method, search_cells(self.recipe, method))

    def cells(self) -> list[tuple[Cell, str, str]]:
        """Every cell of the search with its id and state: complete, pruned or waiting."""
        rows = []
        for state in self.methods:
            for cell in state.planned:
                name = self.name_of(cell)
                found = finished(self.output / name)
                rows.append((cell, name, found.state if found else "waiting"))
        return rows

    def name_of(self, cell: Cell) -> str:
        """The id of a cell's run."""
        recipe = cell.recipe(self.recipe)
        return run_id(recipe, prepared_of(recipe))

    def run(self, engine: Engine, *, threads: int | None = None, watch: Watch | None = None) -> list[MethodState]:
        """Compute what is missing; ends when the best setting of each method has all its seeds."""
        self.output.mkdir(parents=True, exist_ok=True)
        self._open_journal()
        tell = watch or (lambda states, left: None)
        pending: list[tuple[MethodState, Cell, Any]] = []
        jobs: dict[int, tuple[MethodState, Cell, Any]] = {}
        for state in self.methods:
            pending += self._first_cells(state)
        while pending or jobs:
            while pending and len(jobs) < engine.width:
                state, cell, trial = pending.pop(0)
                job = Job(cell.recipe(self.recipe).to_dict(), str(self.output), threads, trial)
                jobs[id(job)] = (state, cell, trial)
                state.in_work += 1
                engine.submit(job)
            tell(self.methods, self.seconds_left(engine.width))
            job, outcome = engine.next()
            state, cell, trial = jobs.pop(id(job))
            state.in_work -= 1
            pending = self._follow(state, cell, trial, outcome, pending)
        tell(self.methods, 0.0)
        return self.methods

    def _follow(
        self, state: MethodState, cell: Cell, trial: Any, outcome: Outcome, pending: list[tuple[MethodState, Cell, Any]]
    ) -> list[tuple[MethodState, Cell, Any]]:
        """What is to be done after an outcome: the same again, the next trial, or the seeds of the best."""
        if outcome.state == "busy":
            if not pending:
                time.sleep(BUSY_SECONDS)
            return [*pending, (state, cell, trial)]
        state.outcomes[str(cell)] = (cell, outcome)
        if trial is not None and state.search is not None:
            score = outcome.record["metrics"]["valid"][self.metric] if outcome.record else None
            state.search.tell(trial[2], score, pruned=outcome.state == "pruned")
        if state.best is None:
            pending = pending + self._next_trials(state)
            waiting = any(other is state for other, _, _ in pending) or state.in_work
            if not waiting:
                pending = pending + self._seeds(state)
        return pending

    def _first_cells(self, state: MethodState) -> list[tuple[MethodState, Cell, Any]]:
        if self.recipe.sweep.search == "grid" or len(state.planned) == 1:
            return [(state, cell, None) for cell in state.planned]
        state.search = Search(self.recipe, state.method, self.output / "sweep.journal")
        state.search.reclaim(self._is_busy)
        state.planned = []
        first = self._next_trials(state)
        return first or self._remembered(state)

    def _remembered(self, state: MethodState) -> list[tuple[MethodState, Cell, Any]]:
        """A search that is over: read its cells again, then go on with the seeds."""
        assert state.search is not None
        return [(state, cell, None) for cell in state.search.completed()]

    def _next_trials(self, state: MethodState) -> list[tuple[MethodState, Cell, Any]]:
        asked = state.search.ask() if state.search is not None else None
        if asked is None:
            return []
        cell, trial = asked
        state.planned.append(cell)
        return [(state, cell, trial)]

    def _seeds(self, state: MethodState) -> list[tuple[MethodState, Cell, Any]]:
        scores = state.scores(self.metric)
        if not scores:
            messages = {out.message for _, out in state.outcomes.values() if out.message}
            raise RunError(f"no cell of {state.method} could be computed: {'; '.join(messages) or 'all were pruned'}")
        choose = min if self.metric == "perplexity" else max
        state.best = choose(scores, key=lambda scored: scored[0])[1]
        seeds = [cell for cell in seed_cells(self.recipe, state.best) if str(cell) not in state.outcomes]
        state.planned = [*state.planned, *seeds]
        return [(state, cell, None) for cell in seeds]

    def _is_busy(self, cell: Cell) -> bool:
        with claim(self.output, self.name_of(cell)) as free:
            return not free

    def seconds_left(self, width: int) -> float | None:
        """An estimate from the cells computed so far; None before the first."""
        outcomes = [out for state in self.methods for _, out in state.outcomes.values()]
        seconds = [out.record["cost"]["total_seconds"] for out in outcomes if out.record and "cost" in out.record]
        return self.cells_left() * sum(seconds) / len(seconds) / width if seconds else None

    def cells_left(self) -> int:
        """How many trainings are still to come, seeds included."""
        seeds = max(0, len(self.recipe.sweep.seeds) - 1)
        left = 0
        for state in self.methods:
            total = len(state.planned)
            if state.search is not None and state.best is None:
                total = min(state.search.trials, state.search.settings)
            left += total - len(state.outcomes) + (seeds if state.best is None else 0)
        return left

    def _open_journal(self) -> None:
        """Refuse a folder whose sweep was written by a later version."""
        file = self.output / "sweep.json"
        if file.exists():
            try:
                schema = int(json.loads(file.read_text())["schema"])
            except (ValueError, KeyError, TypeError) as error:
                raise RunError(f"{file} is damaged", hint="delete it; finished runs are kept") from error
            if schema > SCHEMA:
                raise RunError(f"{file} was written by a newer version (schema {schema})", hint="update lidstone")
        write_text(file, json.dumps({"schema": SCHEMA, "recipe": self.recipe.name}) + "\n")
