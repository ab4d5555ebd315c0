"""What a sweep costs beyond its trainings, and what two jobs on two cores gain.

    python benchmarks/sweep.py [ROUNDS]

Overhead: cells that take no time, in a worker process that is already there, for a grid and for a search. Jobs: the
same real trainings one after the other, each with all cores or with one, and two side by side, each with half of the
cores; imports and workers' start included, in interleaved rounds after a warm-up that fills the caches. Two jobs are
compared with both: threads that wait for each other suffer most on a busy machine, and alone would flatter them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from _timing import write_results

from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.sweep.engines import Processes
from lidstone.lab.sweep.sweep import Sweep
from lidstone.lab.sweep.work import Job, Outcome, compute_once

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 and __name__ == "__main__" else 2
CELLS = 4
STEPS = 150  # enough for training to outweigh imports, as it does in earnest
GAMMAS = "regularizer.gamma_plus: [0.005, 0.01, 0.05, 0.1, 0.5], regularizer.gamma_minus: [0.005, 0.01, 0.05, 0.1, 0.5]"


def instant(job: Job) -> Outcome:
    return compute_once(job, _record)


def _record(job: Job) -> Outcome:
    score = 100 + abs(job.recipe.regularizer.strengths[0] - 0.1)
    record = {"status": "complete", "metrics": {"valid": {"perplexity": score}}, "cost": {"total_seconds": 0.0}}
    job.folder.mkdir()
    (job.folder / "run.json").write_text(json.dumps(record))
    return Outcome("complete", record, computed=True)


def overhead(search: str) -> float:
    """Seconds per cell of a sweep of 25 cells whose trainings take no time."""
    with tempfile.TemporaryDirectory() as output:
        settings = [f"sweep.axes={{{GAMMAS}}}", f"sweep.search={search}", "sweep.trials=25", "sweep.seeds=[1]"]
        sweep = Sweep(load_recipe("demo", [*settings, "corpus.limit=100"]), output, ["katz"])
        engine = Processes(1, compute=instant)
        engine.submit(Job("warm-up", load_recipe("demo"), output))
        engine.next()
        began = time.perf_counter()
        sweep.run(engine)
        seconds = time.perf_counter() - began
        engine.close()
    return seconds / 25


def trainings(*options: str, steps: int = STEPS) -> float:
    """Seconds of a sweep of four real trainings in a fresh folder, from the command line."""
    settings = [
        "training.epochs=null",
        f"training.max_steps={steps}",
        "sweep.axes={regularizer.gamma_plus: [0.01, 0.05, 0.1, 0.5]}",
        "sweep.seeds=[1]",
    ]
    set_all = [part for setting in settings for part in ("--set", setting)]
    run = [sys.executable, "-c", "from lidstone.cli.main import run; run()", "sweep", "demo", "--method", "katz"]

    with tempfile.TemporaryDirectory() as output:
        command = [*run, *set_all, *options, "--output", output]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - began


def main() -> None:
    per_cell = {search: statistics.median(overhead(search) for _ in range(3)) for search in ("grid", "tpe")}
    for search, value in per_cell.items():
        print(f"overhead per cell, {search}: {value * 1000:.0f} ms", flush=True)
    cores = str(os.cpu_count() or 1)
    ways = {"all cores": ("--threads", cores), "one core": ("--threads", "1"), "two jobs": ("--jobs", "2")}
    trainings("--jobs", "2", steps=1)
    load = os.getloadavg()[0]
    rounds = [{way: trainings(*options) for way, options in ways.items()} for _ in range(ROUNDS)]
    seconds = {way: statistics.median(one_round[way] for one_round in rounds) for way in ways}
    speedups = {f"over {way}": seconds[way] / seconds["two jobs"] for way in ("all cores", "one core")}
    figures = {
        "overhead_seconds_per_cell": per_cell,
        "trainings": CELLS,
        "steps": STEPS,
        "seconds": seconds,
        "rounds": ROUNDS,
        "speedup_of_two_jobs": speedups,
        "load_average": {"before": load, "after": os.getloadavg()[0]},
    }
    path = write_results("sweep", figures)
    for way, value in seconds.items():
        print(f"{CELLS} trainings, {way}: {value:.1f} s")
    for way, value in speedups.items():
        print(f"two jobs {way}: {value:.2f}x")
    print(f"load average {load:.1f} on {cores} cores before, {os.getloadavg()[0]:.1f} after; see {path.name}")


if __name__ == "__main__":
    main()
