"""A sweep: search the axes of each method on validation, refine the best setting, and train it with every seed.

All state is in files: finished cells are `run.json`s, cells being computed are locked, a search keeps a journal. So a
sweep may be killed at any point and started again, and several processes may work on one at the same time.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lidstone.errors import RunError
from lidstone.files import parse_json, write_text
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.record import claim
from lidstone.lab.sweep.engines import Engine
from lidstone.lab.sweep.grid import (
    Cell,
    axes_of,
    check_axes,
    refine_cells,
    sample_cells,
    search_cells,
    seed_cells,
    seeds_of,
)
from lidstone.lab.sweep.search import TRIALS, Search
from lidstone.lab.sweep.work import InProcess, Jobs, Outcome, TrialName, finished

SCHEMA = 1
BUSY_SECONDS = 2.0  # how long to wait before checking again a cell that another process computes


@dataclass
class Task:
    """A cell that is to be computed."""

    cell: Cell
    trial: TrialName | None = None
    not_before: float = 0.0
    """on the monotonic clock"""


@dataclass
class MethodState:
    """The state of the sweep of one method."""

    method: str
    planned: int
    """how many cells the search has"""
    todo: list[Task] = field(default_factory=list)
    search: Search | None = None
    """None for a grid, whose cells are all known"""
    working: dict[str, Task] = field(default_factory=dict)
    """by the cell's key, as are the outcomes"""
    outcomes: dict[str, tuple[Cell, Outcome]] = field(default_factory=dict)
    found: Cell | None = None
    """the best setting of the search, once that has ended; it is refined before the seeds"""
    over: bool = False
    """all settings were tried; what is still to do are seeds of the best one"""
    best: Cell | None = None

    def ready(self) -> Task | None:
        """A task that can be started now."""
        now = time.monotonic()
        found = next((number for number, task in enumerate(self.todo) if task.not_before <= now), None)
        return None if found is None else self.todo.pop(found)

    def postpone(self, task: Task) -> None:
        """Check a task again later: another process computes it."""
        task.not_before = time.monotonic() + BUSY_SECONDS
        self.todo.append(task)

    def other_trials(self) -> list[Task]:
        """Trials in the search's journal that this process has not seen: of earlier starts and of other processes."""
        known = {**self.outcomes, **self.working}
        tried = self.search.tried() if self.search else []
        return [Task(cell, trial) for cell, trial in tried if cell.key not in known]

    def scores(self, metric: str) -> list[tuple[float, Cell]]:
        """Validation scores of the complete cells, ordered by their keys: ties are resolved alike at every start."""
        ended = [outcome for _, outcome in sorted(self.outcomes.items())]
        complete = [(out.score(metric), cell) for cell, out in ended if out.state == "complete"]
        return [(score, cell) for score, cell in complete if score is not None]

    def seconds(self) -> list[float]:
        """The training times of its complete cells."""
        return [out.seconds for _, out in self.outcomes.values() if out.seconds is not None]

    def failures(self) -> list[str]:
        """The cells that could not be computed, and why."""
        return [f"{cell}: {out.message}" for cell, out in self.outcomes.values() if out.state == "failed"]


Watch = Callable[[list[MethodState], float | None], None]
"""Called after every change with the state of all methods and the estimated seconds left."""
OnOutcome = Callable[[Cell, Outcome], None]
"""Called once for every cell that has ended."""
Running = dict[str, tuple[MethodState, Task]]


class Sweep:
    """The sweep of one recipe into one folder of runs.

    Axes and cells are checked here, before anything is computed; `run` computes them.

    >>> from lidstone import load_recipe
    >>> Sweep(load_recipe("demo"), "runs").methods
    ['none', 'jelinek-mercer', 'modified-kneser-ney']
    """

    def __init__(
        self,
        recipe: Recipe,
        output: str | Path,
        methods: Sequence[str] = (),
        *,
        processes: int = 1,
        threads: int | None = None,
    ) -> None:
        self.recipe, self.output = recipe, Path(output).absolute()
        self.jobs = Jobs(recipe, self.output, processes=processes, threads=threads)
        self.metric = recipe.evaluation.metric
        self.better = min if self.metric == "perplexity" else max
        self.methods = list(dict.fromkeys(methods or recipe.method_names))
        self.expected: float | None = None
        """estimated seconds of a training, before the first is complete"""
        check_axes(recipe)
        cells_of = search_cells if recipe.sweep.search == "grid" else sample_cells
        for cells in [cells_of(recipe, method) for method in self.methods]:
            refined = [other for cell in cells for other in refine_cells(recipe, cell)]
            for cell in [*cells, *refined, *seed_cells(recipe, cells[0])]:
                self.jobs.recipe(cell)

    def run(
        self, engine: Engine | None = None, *, watch: Watch | None = None, report: OnOutcome | None = None
    ) -> list[MethodState]:
        """Compute the missing cells, until the best setting has all seeds; without an engine in this process."""
        engine = engine or InProcess()
        check_folder(self.output)
        mark_folder(self.output)
        self._report = report
        states, running = [self._state(method) for method in self.methods], Running()
        for state in states:
            self._record_finished(state)
        while True:
            self._start_jobs(engine, states, running)
            if watch is not None:
                watch(states, self.seconds_left(states, engine.width))
            waiting = any(state.todo for state in states)
            if running:
                self._collect(engine, running, BUSY_SECONDS if waiting else None)
            elif waiting:
                time.sleep(BUSY_SECONDS)
            else:
                return states

    def read_states(self) -> list[MethodState]:
        """The finished cells and those to do, as far as they are known; computes nothing."""
        check_folder(self.output)
        states = [self._state(method) for method in self.methods]
        for state in states:
            self._read_outcomes(state, [*state.todo, *state.other_trials()])
            for stage in (self._refinements, self._seeds):
                if not state.todo and len(state.outcomes) >= state.planned:
                    self._read_outcomes(state, stage(state))
        return states

    def estimate(self, engine: Engine) -> float | None:
        """Seconds for one training, if it is not stopped early, from a few updates of the first; None if unknown."""
        if self.jobs.processes == 1:
            first = sample_cells(self.recipe, self.methods[0])[0]
            engine.submit(replace(self.jobs.of(first), timing=True))
            done = engine.next()
            self.expected = done[1].seconds if done else None
        return self.expected

    def seconds_left(self, states: list[MethodState], width: int) -> float | None:
        """An estimate from the finished cells, or from timed updates; None if there is neither."""
        seconds = [value for state in states for value in state.seconds()]
        mean = sum(seconds) / len(seconds) if seconds else self.expected
        return None if mean is None else sum(map(self.cells_left, states)) * mean / width

    def cells_left(self, state: MethodState) -> int:
        """The number of trainings of a method that are left, seeds included."""
        left = len(state.todo) + len(state.working)
        if state.over:
            return left
        if state.found is None:
            refined = refine_cells(self.recipe, Cell(state.method))
            left = max(0, state.planned - len(state.outcomes)) + len(refined)
        return left + len(seeds_of(self.recipe)) - 1

    def _state(self, method: str) -> MethodState:
        settings = math.prod(map(len, axes_of(self.recipe, method).values()))
        if self.recipe.sweep.search == "grid" or settings == 1:
            tasks = [Task(cell) for cell in search_cells(self.recipe, method)]
            return MethodState(method, len(tasks), tasks)
        planned = min(self.recipe.sweep.trials or TRIALS, settings)
        started = (self.output / "sweep.json").exists()  # before, there is no journal
        search = Search(self.recipe, method, self.output, self.jobs.recipe) if started else None
        return MethodState(method, planned, search=search)

    def _record_finished(self, state: MethodState) -> None:
        """Record the cells of a grid that are complete already: the time left is that of the others."""
        done = self._take_finished(state, state.todo)
        for task, outcome in done:
            self._record_outcome(state, task, outcome)
        if done and not state.todo:
            self._plan(state)
            self._record_finished(state)

    def _start_jobs(self, engine: Engine, states: list[MethodState], running: Running) -> None:
        """Start tasks while there are tasks and workers for them."""
        while len(running) < engine.width:
            found = self._next_task(states)
            if found is None:
                return
            state, task = found
            job = self.jobs.of(task.cell, task.trial)
            outcome = finished(job)
            if outcome is not None:
                self._record_outcome(state, task, outcome)
            elif job.name in running:  # two methods may share a training
                state.postpone(task)
            else:
                running[job.name] = found
                state.working[task.cell.key] = task
                engine.submit(job)

    def _collect(self, engine: Engine, running: Running, timeout: float | None) -> None:
        done = engine.next(timeout)
        if done is not None:
            job, outcome = done
            state, task = running.pop(job.name)
            del state.working[task.cell.key]
            self._record_outcome(state, task, outcome)

    def _record_outcome(self, state: MethodState, task: Task, outcome: Outcome) -> None:
        """Record the outcome of a task, for the user and for the search."""
        if outcome.state == "busy":
            return state.postpone(task)
        state.outcomes[task.cell.key] = (task.cell, outcome)
        if outcome.record and outcome.state == "complete":
            claim(self.jobs.of(task.cell).folder, outcome.record, task.cell.method)
        if task.trial is not None and state.search is not None:
            state.search.tell(task.trial, outcome, self.metric)
        if self._report is not None:
            self._report(task.cell, outcome)

    def _next_task(self, states: list[MethodState]) -> tuple[MethodState, Task] | None:
        for state in states:
            if not state.todo and not state.over:
                self._plan(state)
            task = state.ready()
            if task is not None:
                return state, task
        return None

    def _plan(self, state: MethodState) -> None:
        """Add tasks: another trial when all have been started; when all have ended, the next stage."""
        if state.search is not None:
            asked = state.search.ask(state.planned)
            state.todo = [Task(*asked)] if asked else state.other_trials()
        if not state.todo and not state.working:
            state.todo = self._refinements(state) or self._seeds(state)

    def _refinements(self, state: MethodState) -> list[Task]:
        """End the search: the cells around its best setting that are new; none if that has been done."""
        if state.found is not None:
            return []
        state.found = self._best(state)
        return self._new(state, refine_cells(self.recipe, state.found) if state.found else [])

    def _seeds(self, state: MethodState) -> list[Task]:
        """End the choice of settings: the other seeds of the best one."""
        state.over, state.best = True, self._best(state)
        return self._new(state, seed_cells(self.recipe, state.best) if state.best else [])

    def _best(self, state: MethodState) -> Cell | None:
        """The best cell on validation alone; None if none is complete."""
        scores = state.scores(self.metric)
        return self.better(scores, key=lambda scored: scored[0])[1] if scores else None

    def _new(self, state: MethodState, cells: Sequence[Cell]) -> list[Task]:
        return [Task(cell) for cell in cells if cell.key not in state.outcomes]

    def _read_outcomes(self, state: MethodState, tasks: list[Task]) -> None:
        """Sort tasks into those that are done and those that are not."""
        for task, outcome in self._take_finished(state, tasks):
            state.outcomes[task.cell.key] = (task.cell, outcome)

    def _take_finished(self, state: MethodState, tasks: list[Task]) -> list[tuple[Task, Outcome]]:
        """The tasks that are done, with their outcomes; the others are what is to do."""
        looked = [(task, finished(self.jobs.of(task.cell, task.trial))) for task in tasks]
        state.todo = [task for task, outcome in looked if outcome is None]
        return [(task, outcome) for task, outcome in looked if outcome is not None]


def check_folder(output: Path) -> None:
    """Raise an error if the sweep in a folder of runs was written by a newer version."""
    file = output / "sweep.json"
    if not file.exists():
        return
    try:
        schema = int(parse_json(file.read_bytes())["schema"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} is damaged", hint="delete it; finished runs are kept") from error
    if schema > SCHEMA:
        raise RunError(f"{file} was written by a newer version (schema {schema})", hint="update lidstone")


def mark_folder(output: Path) -> None:
    """Write `sweep.json`, which marks a folder of runs as that of a sweep, with the version."""
    output.mkdir(parents=True, exist_ok=True)
    if not (output / "sweep.json").exists():
        write_text(output / "sweep.json", json.dumps({"schema": SCHEMA}) + "\n")
