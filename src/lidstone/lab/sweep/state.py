"""The state of a sweep: for each method, the tasks to do, those being computed, and the outcomes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from lidstone.errors import RunError
from lidstone.files import parse_json, write_text
from lidstone.lab.sweep.grid import Cell
from lidstone.lab.sweep.jobs import Outcome, TrialName
from lidstone.lab.sweep.search import Search

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
