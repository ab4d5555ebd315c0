"""Kills at random moments: is the old file there or the whole new one, and does the work go on to the same result?

    python -m tests.fuzz.kills --kills 40 --seed 1       so many for each kind of work; prints a table

Each round starts the work as a user would, kills it without warning after a random share of the time it takes, looks at
what is there, and then does the work again to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass
class Outcome:
    """What became of the kills of one work."""

    work: str
    kills: int = 0
    too_late: int = 0
    """the work had ended before"""
    old: int = 0
    new: int = 0
    losses: list[str] = field(default_factory=list)


def lidstone(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        _command(arguments), cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-c", RUN, *arguments]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "LIDSTONE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


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


def sweeping(folder: Path) -> None:
    values = lm_values(write_texts(folder), max_steps=10, eval_every=5, accumulation=1)
    values["sweep"] = {"axes": {"regularizer.gamma": [0.1, 0.2]}, "seeds": [1, 2]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


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


WORKS = {
    "count": Work(counts, ("count", "a.txt", "-n", "3", "-o", "out.counts"), file("out.counts")),
    "fit": Work(table, ("fit", "a.counts", "--smoother", "jelinek-mercer", "-o", "out.table"), file("out.table")),
    "convert": Work(converted, ("convert", "out.table", "out.arpa"), file("out.arpa")),
    "report": Work(runs, ("report", "runs", "--html", "out.html", "--no-tests"), file("out.html")),
    "train": Work(training, ("train", "recipe.yaml", "--output", "runs"), records, ("--resume",)),
    "sweep": Work(sweeping, ("sweep", "recipe.yaml", "--output", "runs", "--jobs", "1", "--threads", "1"), records),
}  # fmt: skip


def kill_at_random(name: str, kills: int, seed: int = 1) -> Outcome:
    """Kill a work so many times, each from a fresh start."""
    work, rng, outcome = WORKS[name], random.Random(f"{name}/{seed}"), Outcome(name)
    with tempfile.TemporaryDirectory() as root:
        start = Path(root) / "start"
        start.mkdir()
        work.prepare(start)
        old = work.result(start)
        whole = Path(shutil.copytree(start, Path(root) / "whole"))
        began = time.monotonic()
        lidstone(whole, *work.command)
        seconds, new = time.monotonic() - began, work.result(whole)
        assert new is not None and new != old
        for number in range(kills):
            folder = Path(shutil.copytree(start, Path(root) / f"kill{number}"))
            _one(work, folder, rng.uniform(0, seconds), old, new, outcome)
            shutil.rmtree(folder)
    return outcome


def _one(work: Work, folder: Path, after: float, old: object, new: object, outcome: Outcome) -> None:
    outcome.kills += 1
    outcome.too_late += not _killed(folder, work.command, after)
    found = work.result(folder)
    if found == new:
        outcome.new += 1
    elif found == old or _part_of(found, new):
        outcome.old += 1
    else:
        outcome.losses.append(f"after {after:.2f} s: neither the old nor the whole new result")
    try:
        lidstone(folder, *work.command, *work.again)
    except AssertionError as error:
        outcome.losses.append(f"after {after:.2f} s: going on failed: {error}")
        return
    if work.result(folder) != new:
        outcome.losses.append(f"after {after:.2f} s: going on gave another result")
    left = [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]
    if left:
        outcome.losses.append(f"after {after:.2f} s: left behind {left}")


def _part_of(found: object, new: object) -> bool:
    """Whether some runs of a sweep are done, and these are right."""
    return (
        isinstance(found, dict) and isinstance(new, dict) and found.items() <= new.items() if found else found is None
    )


def _killed(folder: Path, arguments: tuple[str, ...], after: float) -> bool:
    with subprocess.Popen(_command(arguments), cwd=folder, env=_environment(folder), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, start_new_session=True) as process:  # fmt: skip
        time.sleep(after)
        running = process.poll() is None
        if running:
            os.killpg(process.pid, signal.SIGKILL)
    return running


def main() -> int:
    """Kill, print, and fail if anything was lost."""
    reader = argparse.ArgumentParser(prog="python -m tests.fuzz.kills")
    reader.add_argument("--work", action="append", choices=sorted(WORKS))
    reader.add_argument("--kills", type=int, default=10)
    reader.add_argument("--seed", type=int, default=1)
    given = reader.parse_args()
    lost = False
    for name in given.work or WORKS:
        outcome = kill_at_random(name, given.kills, given.seed)
        lost |= bool(outcome.losses)
        states = f"{outcome.old} left the old state, {outcome.new} the new one, {len(outcome.losses)} losses"
        print(f"{name:8} {outcome.kills:4} kills ({outcome.too_late} too late): {states}", flush=True)
        print(*outcome.losses, sep="\n  ")
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
