"""The progress of a sweep on stderr: a live table on a terminal, else one line per finished cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lidstone.cli.console import say

if TYPE_CHECKING:
    from lidstone.lab.sweep.grid import Cell
    from lidstone.lab.sweep.sweep import MethodState, Sweep
    from lidstone.lab.sweep.work import Outcome


class Live:
    """A table on stderr with the progress of each method."""

    def __init__(self, planned: Sweep) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self.planned = planned
        self.live = RichLive(console=Console(stderr=True), refresh_per_second=4)

    def __enter__(self) -> Live:
        self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.live.__exit__(*error)

    def update(self, states: list[MethodState], left: float | None) -> None:
        """Draw the table again."""
        self.live.update(progress_table(self.planned, states, left))


class Lines:
    """A line on stderr for every cell that has ended, for output that goes to a file."""

    def __init__(self, planned: Sweep) -> None:
        self.planned = planned
        self.ended: list[str] = []

    def report(self, cell: Cell, outcome: Outcome) -> None:
        """Store the line of a cell."""
        score = number_of(outcome.score(self.planned.metric))
        how = outcome.message if outcome.state == "failed" else f"valid {self.planned.metric} {score}"
        took = f", {outcome.seconds:.0f} s" if outcome.seconds is not None and outcome.computed else ""
        state = outcome.state if outcome.computed or outcome.state == "failed" else f"{outcome.state} already"
        self.ended.append(f"{cell}: {state}, {how}{took}")

    def update(self, states: list[MethodState], left: float | None) -> None:
        """Print the stored lines, with the progress of the sweep."""
        done = sum(len(state.outcomes) for state in states) - len(self.ended)
        total = sum(len(state.outcomes) + self.planned.cells_left(state) for state in states)
        for number, line in enumerate(self.ended, done + 1):
            say(f"{number}/{total}  {line}" + (f"; {clock(left)}" if number == done + len(self.ended) else ""))
        self.ended = []


def progress_table(planned: Sweep, states: list[MethodState], left: float | None) -> Any:
    """The progress of each method, as a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    headers = ("method", "done", "to come", "in work", f"best valid {planned.metric}", "setting")
    table = Table(*headers, caption=clock(left))
    for state in states:
        scores = state.scores(planned.metric)
        score, cell = planned.better(scores, key=lambda scored: scored[0]) if scores else (None, None)
        counts = (len(state.outcomes), planned.cells_left(state), len(state.working))
        table.add_row(Text(state.method), *map(str, counts), number_of(score), Text(cell.shown if cell else ""))
    return table


def number_of(score: float | None) -> str:
    """A score for a table; a dash where there is none."""
    return "-" if score is None else f"{score:.3f}"


def clock(seconds: float | None) -> str:
    """The time left, rounded.

    >>> clock(5400.0), clock(20.0), clock(0.0)
    ('about 1 h 30 min left', 'less than a minute left', 'nothing left to do')
    """
    if seconds is None:
        return "time left: unknown until a cell is done"
    minutes = round(seconds / 60)
    if not minutes:
        return "less than a minute left" if seconds else "nothing left to do"
    return f"about {minutes // 60} h {minutes % 60:02d} min left"
