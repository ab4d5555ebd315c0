"""A sweep: search the axes of each method on validation, then train the best setting with every seed.

All state is files: finished cells are `run.json`s, cells in work are locked, a search remembers in its journal. So a
sweep may be killed at any point and started again, and several processes may work on one at the same time.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lidstone.errors import RunError
from lidstone.experiment.record import add_name, run_name
from lidstone.files import write_text
from lidstone.recipe.recipe import Recipe
from lidstone.sweep.engines import Engine
from lidstone.sweep.grid import Cell, axes_of, check_axes, sample_cells, search_cells, seed_cells, seeds_of
from lidstone.sweep.search import TRIALS, Search
from lidstone.sweep.state import BUSY_SECONDS, MethodState, Task
from lidstone.sweep.work import Job, Outcome, TrialName, finished

SCHEMA = 1
Watch = Callable[[list[MethodState], float | None], None]
"""Called after every change with the state of all methods and the estimated seconds left."""
Jobs = dict[str, tuple[MethodState, Task]]


class Sweep:
    """The sweep of one recipe into one folder of runs.

        Sweep(load_recipe("wikitext2"), "runs").run(Processes(jobs=2, threads=1))

    Whatever is wrong with the axes is said here, before anything is computed.
    """

    def __init__(self, recipe: Recipe, output: str | Path, methods: Sequence[str] = (), *, processes: int = 1) -> None:
        self.recipe, self.output, self.processes = recipe, Path(output).absolute(), processes
        self.metric = recipe.evaluation.metric
        self.better = min if self.metric == "perplexity" else max
        self.threads: int | None = None
        self.methods = list(dict.fromkeys(methods or recipe.method_names))
        check_axes(recipe)
        cells_of = search_cells if recipe.sweep.search == "grid" else sample_cells
        for cells in [cells_of(recipe, method) for method in self.methods]:
            for cell in [*cells, *seed_cells(recipe, cells[0])]:
                cell.recipe(recipe)

    def run(self, engine: Engine, *, threads: int | None = None, watch: Watch | None = None) -> list[MethodState]:
        """Compute what is missing; ends when the best setting of each method has all its seeds."""
        self.threads = threads
        self._check_folder()
        self._sign_folder()
        states, jobs = [self._state(method) for method in self.methods], Jobs()
        while True:
            self._hand_out(engine, states, jobs)
            if watch is not None:
                watch(states, self.seconds_left(states, engine.width))
            waiting = any(state.todo for state in states)
            if jobs:
                self._take_back(engine, jobs, BUSY_SECONDS if waiting else None)
            elif waiting:
                time.sleep(BUSY_SECONDS)
            else:
                return states

    def look(self) -> list[MethodState]:
        """What is done and what is to do, as far as it is known; computes nothing."""
        self._check_folder()
        states = [self._state(method) for method in self.methods]
        for state in states:
            self._sort_out(state, [*state.todo, *state.left_over()])
            if not state.todo and len(state.outcomes) >= state.planned:
                self._sort_out(state, self._seeds(state))
        return states

    def job(self, cell: Cell, trial: TrialName | None = None) -> Job:
        """A cell as an engine takes it."""
        recipe = cell.recipe(self.recipe)
        return Job(run_name(recipe), recipe.to_dict(), str(self.output), self.threads, trial, self.processes)

    def seconds_left(self, states: list[MethodState], width: int) -> float | None:
        """An estimate from the cells that are done; None before the first."""
        seconds = [value for state in states for value in state.seconds()]
        left = sum(map(self.cells_left, states))
        return left * sum(seconds) / len(seconds) / width if seconds else None

    def cells_left(self, state: MethodState) -> int:
        """How many trainings of a method are still to come, seeds included."""
        if state.over:
            return len(state.todo) + len(state.working)
        return max(0, state.planned - len(state.outcomes)) + len(seeds_of(self.recipe)) - 1

    def _state(self, method: str) -> MethodState:
        settings = math.prod(map(len, axes_of(self.recipe, method).values()))
        if self.recipe.sweep.search == "grid" or settings == 1:
            tasks = [Task(cell) for cell in search_cells(self.recipe, method)]
            return MethodState(method, len(tasks), tasks)
        planned = min(self.recipe.sweep.trials or TRIALS, settings)
        begun = (self.output / "sweep.json").exists()  # before, there is nothing to remember
        return MethodState(method, planned, search=Search(self.recipe, method, self.output) if begun else None)

    def _hand_out(self, engine: Engine, states: list[MethodState], jobs: Jobs) -> None:
        """Start tasks as long as there are tasks to start and workers for them."""
        while len(jobs) < engine.width:
            found = self._next_task(states)
            if found is None:
                return
            state, task = found
            job = self.job(task.cell, task.trial)
            outcome = finished(job)
            if outcome is not None:
                self._settle(state, task, outcome)
            elif job.name in jobs:  # two methods may ask for the same training
                state.put_off(task)
            else:
                jobs[job.name] = found
                state.working[task.cell.key] = task
                engine.submit(job)

    def _take_back(self, engine: Engine, jobs: Jobs, timeout: float | None) -> None:
        done = engine.next(timeout)
        if done is not None:
            job, outcome = done
            state, task = jobs.pop(job.name)
            del state.working[task.cell.key]
            self._settle(state, task, outcome)

    def _settle(self, state: MethodState, task: Task, outcome: Outcome) -> None:
        if outcome.state == "busy":
            return state.put_off(task)
        state.outcomes[task.cell.key] = (task.cell, outcome)
        if outcome.record and outcome.state == "complete":
            add_name(self.job(task.cell).folder, outcome.record, task.cell.method)
        if task.trial is not None and state.search is not None:
            state.search.tell(task.trial, outcome, self.metric)

    def _next_task(self, states: list[MethodState]) -> tuple[MethodState, Task] | None:
        for state in states:
            if not state.todo and not state.over:
                self._plan(state)
            task = state.ready()
            if task is not None:
                return state, task
        return None

    def _plan(self, state: MethodState) -> None:
        """When all that was planned is under way: another trial; when all has ended: the seeds of the best."""
        if state.search is not None:
            asked = state.search.ask(state.planned)
            state.todo = [Task(*asked)] if asked else state.left_over()
        if not state.todo and not state.working:
            state.todo = self._seeds(state)

    def _seeds(self, state: MethodState) -> list[Task]:
        """End the search: choose the best on validation alone."""
        scores = state.scores(self.metric)
        state.over = True
        if not scores:
            return []
        state.best = self.better(scores, key=lambda scored: scored[0])[1]
        return [Task(cell) for cell in seed_cells(self.recipe, state.best) if cell.key not in state.outcomes]

    def _sort_out(self, state: MethodState, tasks: list[Task]) -> None:
        """Into those that are done and those that are not."""
        state.todo = []
        for task in tasks:
            outcome = finished(self.job(task.cell, task.trial))
            if outcome is None:
                state.todo.append(task)
            else:
                state.outcomes[task.cell.key] = (task.cell, outcome)

    def _check_folder(self) -> None:
        """Refuse a folder whose sweep was written by a later version."""
        file = self.output / "sweep.json"
        if not file.exists():
            return
        try:
            schema = int(json.loads(file.read_text(encoding="utf-8"))["schema"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file} is damaged", hint="delete it; finished runs are kept") from error
        if schema > SCHEMA:
            raise RunError(f"{file} was written by a newer version (schema {schema})", hint="update lidstone")

    def _sign_folder(self) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        if not (self.output / "sweep.json").exists():
            write_text(self.output / "sweep.json", json.dumps({"schema": SCHEMA}) + "\n")
