"""What is interrupted and damaged: commands that write something, their inputs, and how to see what is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.tiny import lm_values, write_texts

RUN = "from lidstone.cli.main import run; run()"
TEXT = "the cat sat on the mat\na dog and a cat\nthe end\n" * 4000


@dataclass(frozen=True)
class Work:
    """One command that writes something."""

    prepare: Callable[[Path], None]
    """makes its input, and an older output where there can be one"""
    command: tuple[str, ...]
    """`lidstone` arguments, relative to the folder"""
    result: Callable[[Path], object]
    """what is there: None for nothing; must be the old or the whole new value at any moment"""
    again: tuple[str, ...] = ()
    """arguments that are added to go on"""


def start(folder: Path, *arguments: str, **changes: str) -> subprocess.Popen[str]:
    """A `lidstone` process in a session of its own, so that its children can be killed with it."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], cwd=folder, env=environment(folder, changes), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def run(folder: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run `lidstone` to its end."""
    with start(folder, *arguments, **changes) as process:
        out, error = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, out, error)


def lidstone(folder: Path, *arguments: str) -> None:
    """Run `lidstone`, which must succeed."""
    done = run(folder, *arguments)
    assert done.returncode == 0, done.stderr


def environment(folder: Path, changes: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "LIDSTONE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", **changes}


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process of `start` and its children without warning."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def text(folder: Path) -> None:
    (folder / "a.txt").write_text(TEXT)
    (folder / "old.txt").write_text("an older text\n" * 50)


def counts(folder: Path) -> None:
    text(folder)
    lidstone(folder, "count", "old.txt", "-n", "2", "-o", "out.counts")


def table(folder: Path) -> None:
    text(folder)
    lidstone(folder, "count", "a.txt", "-n", "3", "-o", "a.counts")
    lidstone(folder, "fit", "a.counts", "--smoother", "witten-bell", "-o", "out.table")


def converted(folder: Path) -> None:
    table(folder)
    lidstone(folder, "convert", "out.table", "out.arpa")
    lidstone(folder, "fit", "a.counts", "--smoother", "add-lambda", "-o", "out.table")


def training(folder: Path) -> None:
    values = lm_values(write_texts(folder), max_steps=60, eval_every=10, accumulation=1)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def interrupted_training(folder: Path) -> None:
    """A training that was killed when it had two checkpoints."""
    training(folder)
    _kill_when(folder, TRAIN, "runs/*/checkpoints/checkpoint-20/trainer_state.json")


def sweeping(folder: Path) -> None:
    values = lm_values(write_texts(folder), max_steps=10, eval_every=5, accumulation=1)
    values["sweep"] = {"axes": {"regularizer.gamma": [0.1, 0.2]}, "seeds": [1, 2]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def interrupted_sweep(folder: Path) -> None:
    """A sweep that was killed when its first cell was finished."""
    sweeping(folder)
    _kill_when(folder, SWEEP, "runs/*/run.json")


def _kill_when(folder: Path, arguments: tuple[str, ...], pattern: str) -> None:
    process = start(folder, *arguments)
    while process.poll() is None and not any(folder.glob(pattern)):
        time.sleep(0.002)
    assert process.poll() is None, f"it ended before there was {pattern}"
    kill(process)


def runs(folder: Path) -> None:
    import runpy

    trees = runpy.run_path(str(Path(__file__).parents[1] / "run_trees.py"))
    trees["write_tree"](folder / "runs", seeds=2, names=("none", "katz"))
    (folder / "out.html").write_text("an older page")


def file(name: str) -> Callable[[Path], bytes | None]:
    return lambda folder: (folder / name).read_bytes() if (folder / name).exists() else None


def records(folder: Path) -> object:
    """All finished runs without their times; a run.json that cannot be read would raise."""
    found = {}
    for path in sorted((folder / "runs").glob("*/run.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        curve = [{key: value for key, value in point.items() if key != "seconds"} for point in record["curve"]]
        found[path.parent.name] = [curve, record["metrics"], record["config"]]
    return found or None


TRAIN = ("train", "recipe.yaml", "--output", "runs")
SWEEP = ("sweep", "recipe.yaml", "--output", "runs", "--jobs", "1", "--threads", "1")
WORKS = {
    "count": Work(counts, ("count", "a.txt", "-n", "3", "-o", "out.counts"), file("out.counts")),
    "fit": Work(table, ("fit", "a.counts", "--smoother", "jelinek-mercer", "-o", "out.table"), file("out.table")),
    "convert": Work(converted, ("convert", "out.table", "out.arpa"), file("out.arpa")),
    "report": Work(runs, ("report", "runs", "--html", "out.html", "--no-tests"), file("out.html")),
    "train": Work(training, TRAIN, records, ("--resume",)),
    "train --resume": Work(interrupted_training, (*TRAIN, "--resume"), records),
    "sweep": Work(sweeping, SWEEP, records),
    "sweep again": Work(interrupted_sweep, SWEEP, records),
}  # fmt: skip
"""`train --resume` begins with the checkpoints of a killed training, `sweep again` with a finished cell of a sweep."""
