"""`lidstone sweep`: search each method's settings on validation, then train the best with every seed."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lidstone.experiment.sweep import MethodState, Sweep


def sweep(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of one of lidstone's own.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="Override a key: training.epochs=3.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only these methods of the recipe.")] = None,
    output: Annotated[str, typer.Option(help="The folder of the runs.")] = "runs",
    jobs: Annotated[int, typer.Option(min=1, help="Cells side by side; the cores are shared among them.")] = 1,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="A running Ray cluster, such as auto or ray://head:10001.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cells and the time left; compute nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a recipe's sweep: a grid or a search, chosen on validation, then the best setting over the seeds.

    Kill it and start it again at will: nothing is computed twice. Start it several times to share the work.
    """
    from lidstone.errors import InputError
    from lidstone.experiment.config import load_recipe
    from lidstone.experiment.sweep import Sweep

    if engine not in ("local", "ray"):
        raise InputError(f"unknown engine {engine!r}", hint="choose local or ray")
    planned = Sweep(load_recipe(recipe, settings or []), output, method or ())
    if dry_run:
        return _show_cells(planned, jobs, as_json)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    running = _engine(engine, jobs, address, threads)
    try:
        with _Live(planned) as live:
            states = planned.run(running, threads=threads, watch=live.update)
    finally:
        running.close()
    _show_result(planned, states, as_json)


def _engine(name: str, jobs: int, address: str | None, threads: int) -> Any:
    from lidstone.experiment.engines import Processes, Ray

    return Processes(jobs) if name == "local" else Ray(address, threads)


def _show_cells(planned: Sweep, jobs: int, as_json: bool) -> None:
    from lidstone.experiment.record import read_record

    rows = planned.cells()
    records = [read_record(planned.output / name) for _, name, state in rows if state == "complete"]
    seconds = [record["cost"]["total_seconds"] for record in records if record]
    waiting = sum(state == "waiting" for *_, state in rows)
    more = len(planned.methods) * max(0, len(planned.recipe.sweep.seeds) - 1)
    left = (waiting + more) * sum(seconds) / len(seconds) / jobs if seconds else None
    if as_json:
        cells = [{"cell": str(cell), "id": name, "state": state} for cell, name, state in rows]
        print(json.dumps({"cells": cells, "waiting": waiting, "seeds_to_come": more, "seconds_left": left}, indent=1))
        return
    for cell, name, state in rows:
        print(f"{name}  {state:8}  {cell}")
    print(f"{waiting} of {len(rows)} cells to compute, then {more} seeds of the best settings; {_clock(left)}")


def _show_result(planned: Sweep, states: list[MethodState], as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for state in states:
        runs = [out for cell, out in state.outcomes.values() if out.record and out.state == "complete"]
        best = {} if state.best is None else dict(state.best.settings)
        valid = min if planned.metric == "perplexity" else max
        score = valid(value for value, _ in state.scores(planned.metric))
        failed = [out.message for _, out in state.outcomes.values() if out.state == "failed"]
        rows.append(
            {
                "method": state.method,
                "best": best,
                f"valid_{planned.metric}": score,
                "runs": len(runs),
                "failed": failed,
            }
        )
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        settings = " ".join(f"{key.split('.')[-1]}={value}" for key, value in row["best"].items()) or "-"
        print(f"{row['method']:24} valid {planned.metric} {row[f'valid_{planned.metric}']:9.3f}  {settings}")
        for message in row["failed"]:
            print(f"  failed: {message}", file=sys.stderr)
    print(f"runs are in {planned.output}; see `lidstone report {planned.output}`", file=sys.stderr)


class _Live:
    """A table on stderr that shows how far each method is; nothing where stderr is no terminal."""

    def __init__(self, planned: Sweep) -> None:
        self.planned = planned
        self.live: Any = None

    def __enter__(self) -> _Live:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), refresh_per_second=4)
            self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.live is not None:
            self.live.__exit__(*error)

    def update(self, states: list[MethodState], left: float | None) -> None:
        """Draw the table anew."""
        if self.live is None:
            return
        from rich.table import Table

        table = Table(
            "method", "cells", "in work", f"best valid {self.planned.metric}", "setting", caption=_clock(left)
        )
        choose = min if self.planned.metric == "perplexity" else max
        for state in states:
            scores = state.scores(self.planned.metric)
            score, cell = choose(scores, key=lambda scored: scored[0]) if scores else (None, None)
            shown = "" if cell is None else " ".join(f"{k.split('.')[-1]}={v}" for k, v in cell.settings.items())
            done = f"{len(state.outcomes)}/{len(state.planned)}"
            table.add_row(state.method, done, str(state.in_work), "" if score is None else f"{score:.3f}", shown)
        self.live.update(table)


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "time left: unknown until a cell is done"
    minutes = round(seconds / 60)
    return f"about {minutes // 60} h {minutes % 60:02d} min left" if minutes else "about a minute left"
