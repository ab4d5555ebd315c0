"""Sweeps whose trainings are pretended, in this process or as a program that tests can start several times and kill.

    python -m tests.sweep_cells OUTPUT grid|tpe local|ray JOBS SECONDS [die]

Every training that begins adds a line to `begun.txt`; every one that ends writes a run.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.tiny import SIX_METHODS

from lidstone.lab.recipe.recipe import Recipe, load_recipe
from lidstone.lab.sweep.sweep import Sweep
from lidstone.lab.sweep.work import InProcess, Job, Outcome, compute_once

SECONDS, DIE = "LIDSTONE_PRETEND_SECONDS", "LIDSTONE_PRETEND_DIE"  # so named, they reach the workers of a cluster
AXES = "{regularizer.gamma_plus: [0.005, 0.01, 0.05, 0.1, 0.5], regularizer.gamma_minus: [0.05, 0.1]}"
CELLS = 11 + 2 * 2  # ten settings of Katz and one without regularizer; two more seeds of each best
BEST = {"regularizer.gamma_plus": 0.1, "regularizer.gamma_minus": 0.05}


def recipe(*more: str) -> Recipe:
    """A sweep of ten settings of Katz and one of no regularizer, three seeds each."""
    methods = "methods=[{name: none}, {smoother: katz, gamma: 0.1}]"
    small = ["corpus.limit=100", methods, f"sweep.axes={AXES}", "sweep.seeds=[1, 2, 3]"]
    return load_recipe(SIX_METHODS, [*small, *more])


def sweep(output: Path, *more: str) -> Sweep:
    """The sweep of that recipe."""
    return Sweep(recipe(*more), output, threads=1)


def valid(recipe: Recipe) -> float:
    """The pretended perplexity: lowest at gamma_plus 0.1, gamma_minus 0.05."""
    plus, minus = recipe.regularizer.strengths
    return 100 + abs(plus - 0.1) + minus + recipe.training.seed / 1000


def pretend(job: Job) -> Outcome:
    """Compute a cell, as far as the rest of a sweep can see."""
    if job.timing:
        return Outcome("complete", {"cost": {"total_seconds": 120.0}})
    return compute_once(job, pretend_training)


def pretend_training(job: Job) -> Outcome:
    """Take as long as asked for, perhaps die, then write a record."""
    output = Path(job.output)
    with (output / "begun.txt").open("a") as file:
        file.write(f"{job.name}\n")
    time.sleep(float(os.environ.get(SECONDS, "0")))
    if DIE in os.environ:
        with contextlib.suppress(FileExistsError):
            with (output / "died").open("x") as file:
                file.write(job.name)
            os.kill(os.getpid(), signal.SIGKILL)  # once in a sweep
    score = valid(job.recipe)
    record = {
        "schema": 1,
        "id": job.name,
        "status": "complete",
        "name": job.recipe.regularizer.name,
        "seed": job.recipe.training.seed,
        "metrics": {
            "valid": {"perplexity": score},
            "test": {"perplexity": -score},
        },  # whoever looks at test chooses ill
        "cost": {"total_seconds": 60.0},
        "threads": {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")},
    }
    job.folder.mkdir(exist_ok=True)
    (job.folder / "half").write_text(json.dumps(record))
    (job.folder / "half").replace(job.folder / "run.json")
    return Outcome("complete", record, computed=True)


class CutShort:
    """An engine that is gone after so many cells, as if the process had been killed."""

    width = 1

    def __init__(self, cells: int) -> None:
        self.here, self.cells = InProcess(pretend), cells

    def submit(self, job: Job) -> None:
        """Take a job."""
        self.here.submit(job)

    def next(self, timeout: float | None = None) -> tuple[Job, Outcome] | None:
        """Do it, if there are cells left."""
        if self.cells == 0:
            raise KeyboardInterrupt
        self.cells -= 1
        return self.here.next(timeout)

    def close(self) -> None:
        """Nothing is held."""


def begun(output: Path) -> list[str]:
    """The trainings that began, in order."""
    file = output / "begun.txt"
    return file.read_text().splitlines() if file.exists() else []


def ended(output: Path) -> dict[str, int]:
    """The trainings that ended, and when."""
    return {file.parent.name: file.stat().st_mtime_ns for file in output.glob("*/run.json")}


def main(output: str, search: str, engine: str, jobs: str, seconds: str, *die: str) -> None:
    """Run the sweep."""
    os.environ |= {SECONDS: seconds, **({DIE: "1"} if die else {})}
    planned = sweep(Path(output), f"sweep.search={search}", "sweep.trials=6")
    if engine == "ray":
        from lidstone.lab.sweep.engines import Ray

        running: Any = Ray(jobs=int(jobs), compute=pretend)
    else:
        from lidstone.lab.sweep.engines import Processes

        running = Processes(int(jobs), 1, compute=pretend)
    try:
        states = planned.run(running)
    finally:
        running.close()
    print(json.dumps({state.method: dict(state.best.settings) if state.best else None for state in states}))


if __name__ == "__main__":
    main(*sys.argv[1:])
