"""`lidstone sweep`: search each method's settings on validation, then train the best with every seed."""

from __future__ import annotations

import contextlib
import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from lidstone.cli.console import print_json, print_table, say
from lidstone.cli.inputs import JSON, RUNS_FOLDER, complete_recipes
from lidstone.errors import printable
from lidstone.parallel import cores

if TYPE_CHECKING:
    from lidstone.lab.sweep.engines import Engine
    from lidstone.lab.sweep.grid import Cell
    from lidstone.lab.sweep.sweep import MethodState, Sweep
    from lidstone.lab.sweep.work import Outcome


class EngineName(str, Enum):
    """Where cells are computed."""

    local = "local"
    ray = "ray"


def sweep(
    recipe: Annotated[
        str,
        Argument(
            metavar="RECIPE", autocompletion=complete_recipes, help="A recipe file, or the name of one of lidstone's."
        ),
    ],
    settings: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Override a key: training.epochs=3.")
    ] = None,
    method: Annotated[list[str] | None, Option(help="Only this method of the recipe; may be repeated.")] = None,
    output: RUNS_FOLDER = Path("runs"),
    jobs: Annotated[
        int | None, Option(min=1, help="Cells computed in parallel. [default: 1; with ray: as many as fit]")
    ] = None,
    threads: Annotated[
        int | None, Option(min=1, help="CPU threads of a process. [default: the cores, shared; with ray: 1]")
    ] = None,
    processes: Annotated[int, Option(min=1, help="Processes that train one cell together, by torchrun.")] = 1,
    engine: Annotated[EngineName, Option(help="Processes here, or tasks of a Ray cluster.")] = EngineName.local,
    address: Annotated[str | None, Option(help="A running Ray cluster: auto, HOST:6379 or ray://HOST:10001.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the cells and the time left; compute nothing.")] = False,
    as_json: JSON = False,
) -> None:
    """Run a recipe's sweep: a grid or a search, chosen on validation, then the best setting over the seeds.

    It may be killed and started again at any time: finished cells are not computed again. Several processes share the
    work if each runs this command.
    """
    from lidstone.errors import InputError
    from lidstone.lab.recipe.recipe import load_recipe
    from lidstone.lab.run.record import write_explorer
    from lidstone.lab.sweep.sweep import Sweep

    if address is not None and engine is EngineName.local:
        raise InputError("--address is for --engine ray", hint="add --engine ray")
    threads = threads or _share(engine, (jobs or 1) * processes)
    planned = Sweep(load_recipe(recipe, settings or []), output, method or (), processes=processes, threads=threads)
    if dry_run:
        return _show_cells(planned, jobs or 1, as_json)
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints to stdout
        running = _engine(engine, jobs, threads, processes, address, output)
        try:
            states = _run(planned, running)
        finally:
            running.close()
    write_explorer(planned.recipe, output, planned.jobs.corpus(planned.recipe))
    _show_result(planned, states, as_json)


def _run(planned: Sweep, engine: Engine) -> list[MethodState]:
    """Estimate the time, then run the sweep: with a live table on a terminal, else with a line per finished cell."""
    before = planned.read_states()
    left = planned.seconds_left(before, engine.width)
    if left is None and any(map(planned.cells_left, before)):
        planned.estimate(engine)
        left = planned.seconds_left(before, engine.width)
    number = sum(map(planned.cells_left, before))
    for note in planned.recipe.notes if number else ():
        say(f"note: {note}")
    if number:
        say(f"{_to_come(number)}; {clock(left)} if none stops early")
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), refresh_per_second=4) as table:
            return planned.run(engine, watch=lambda states, left: table.update(progress_table(planned, states, left)))
    lines = Lines(planned)
    return planned.run(engine, watch=lines.update, report=lines.report)


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


def _share(engine: EngineName, processes: int) -> int | None:
    """The threads of a process: of several processes, its share of the cores; of one, the recipe's value."""
    if engine is EngineName.ray:
        return 1
    return max(1, cores() // processes) if processes > 1 else None


def _engine(
    name: EngineName, jobs: int | None, threads: int | None, processes: int, address: str | None, output: Path
) -> Engine:
    from lidstone.lab.sweep.engines import Processes, Ray

    if name is EngineName.ray:
        return Ray(address, jobs, (threads or 1) * processes, processes)
    output.mkdir(parents=True, exist_ok=True)
    return Processes(jobs or 1, threads, log=output / "sweep.log")


def _show_cells(planned: Sweep, jobs: int, as_json: bool) -> None:
    states = planned.read_states()
    rows = [row for state in states for row in _rows(planned, state)]
    left, seconds = sum(map(planned.cells_left, states)), planned.seconds_left(states, jobs)
    if as_json:
        cells = [{"id": name, "state": state, "cell": cell} for name, state, cell in rows]
        return print_json({"cells": cells, "to_compute": left, "seconds_left": seconds})
    for name, state, cell in rows:
        print(printable(f"{name}  {state:8}  {cell}"))
    unknown = left - sum(state == "waiting" for _, state, _ in rows)
    later = f", {unknown} of them seeds of the best settings or trials not chosen yet" if unknown else ""
    print(f"{_to_come(left)}{later}; {clock(seconds)}")


def _to_come(number: int) -> str:
    return "1 training to come" if number == 1 else f"{number} trainings to come"


def _rows(planned: Sweep, state: MethodState) -> list[tuple[str, str, str]]:
    done = [(planned.jobs.of(cell).name, out.state, str(cell)) for cell, out in state.outcomes.values()]
    return done + [(planned.jobs.of(task.cell).name, "waiting", str(task.cell)) for task in state.todo]


def _show_result(planned: Sweep, states: list[MethodState], as_json: bool) -> None:
    results = [_result(planned, state) for state in states]
    if as_json:
        print_json(results)
    else:
        rows = [[str(line["method"]), line["shown"], number_of(line["valid"]), str(line["runs"])] for line in results]
        print_table(["method", "best setting", f"valid {planned.metric}", "runs"], rows)
        for line in results:
            for key, where in line["at_edge"].items():
                say(f"note: {line['method']}: the best {key} is the {where} tried: better ones may lie beyond")
        say(f"runs are in {planned.output}; see `lidstone report {shlex.quote(str(planned.output))}`")
    failures = [failure for state in states for failure in state.failures()]
    failures += [f"{line['method']}: no training has a validation score" for line in results if not line["runs"]]
    for failure in failures:
        say(f"failed: {failure}")
    if failures:
        say("hint: start the sweep again to repeat these; see sweep.log in the folder of runs")
        raise typer.Exit(1)


def _result(planned: Sweep, state: MethodState) -> dict[str, Any]:
    scores = state.scores(planned.metric)
    best = state.best
    return {
        "method": state.method,
        "best": dict(best.settings) if best else None,
        "shown": (best.shown or "as in the recipe") if best else "-",
        "at_edge": _edges(state),
        "metric": planned.metric,
        "valid": next((score for score, cell in scores if best and cell.key == best.key), None),
        "runs": len(scores),
        "ids": [out.record["id"] for _, out in state.outcomes.values() if out.state == "complete" and out.record],
        "failed": state.failures(),
    }


def _edges(state: MethodState) -> dict[str, str]:
    """The strengths of the best setting that are the highest or lowest of those tried."""
    from lidstone.lab.report.methods import at_edge

    settings = state.best.settings if state.best else {}
    cells = [cell for cell, _ in state.outcomes.values()]
    found = {key: at_edge(value, (cell.settings.get(key) for cell in cells)) for key, value in settings.items()}
    return {key: where for key, where in found.items() if where and key.startswith("regularizer.gamma")}
