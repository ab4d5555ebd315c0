"""How far a sweep is: for each method, what is to do, what is under way, and what came of the rest."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from lidstone.sweep.grid import Cell
from lidstone.sweep.search import Search
from lidstone.sweep.work import Outcome, TrialName

BUSY_SECONDS = 2.0  # how long to wait before looking again at a cell that another process computes


@dataclass
class Task:
    """A cell on its way."""

    cell: Cell
    trial: TrialName | None = None
    not_before: float = 0.0
    """on the monotonic clock"""


@dataclass
class MethodState:
    """How far the sweep of one method is."""

    method: str
    planned: int
    """how many cells the search has"""
    todo: list[Task] = field(default_factory=list)
    search: Search | None = None
    """None for a grid, whose cells are all known"""
    working: dict[str, Task] = field(default_factory=dict)
    """by the cell's key, as are the outcomes"""
    outcomes: dict[str, tuple[Cell, Outcome]] = field(default_factory=dict)
    over: bool = False
    """the search is; what is still to do are seeds of the best"""
    best: Cell | None = None

    def ready(self) -> Task | None:
        """A task that can be started now."""
        now = time.monotonic()
        found = next((number for number, task in enumerate(self.todo) if task.not_before <= now), None)
        return None if found is None else self.todo.pop(found)

    def put_off(self, task: Task) -> None:
        """Do a task later: another process is at it."""
        task.not_before = time.monotonic() + BUSY_SECONDS
        self.todo.append(task)

    def left_over(self) -> list[Task]:
        """What a search has chosen and we have not seen: trials of earlier starts, and of others, dead or alive."""
        known = {**self.outcomes, **self.working}
        tried = self.search.tried() if self.search else []
        return [Task(cell, trial) for cell, trial in tried if cell.key not in known]

    def scores(self, metric: str) -> list[tuple[float, Cell]]:
        """Validation scores of the complete cells, ordered by their keys: ties are settled alike at every start."""
        ended = [outcome for _, outcome in sorted(self.outcomes.items())]
        complete = [(out.score(metric), cell) for cell, out in ended if out.state == "complete"]
        return [(score, cell) for score, cell in complete if score is not None]

    def seconds(self) -> list[float]:
        """How long its complete cells took."""
        records = [out.record for _, out in self.outcomes.values() if out.record and out.state == "complete"]
        return [float(record["cost"]["total_seconds"]) for record in records]

    def failures(self) -> list[str]:
        """The cells that could not be computed, and why."""
        return [f"{cell}: {out.message}" for cell, out in self.outcomes.values() if out.state == "failed"]
