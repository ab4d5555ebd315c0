"""Kills at random moments: is the old file there or the whole new one, and does the work go on to the same result?

    python -m tests.fuzz.kills --kills 40 --seed 1       so many for each kind of work; prints a table

Each round starts the work as a user would, kills it without warning after a random share of the time it takes, looks at
what is there, and then does the work again to its end. A round in which the work ended before is not counted.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.works import WORKS, Work, kill, run, start


@dataclass
class Outcome:
    """What became of the kills of one work."""

    work: str
    kills: int = 0
    too_late: int = 0
    """rounds in which the work had ended before"""
    old: int = 0
    part: int = 0
    """some cells of a sweep were finished"""
    new: int = 0
    losses: list[str] = field(default_factory=list)


def kill_at_random(name: str, kills: int, seed: int = 1) -> Outcome:
    """Kill a work so many times, each from a fresh start."""
    work, rng, outcome = WORKS[name], random.Random(f"{name}/{seed}"), Outcome(name)
    with tempfile.TemporaryDirectory() as root:
        begin = Path(root) / "start"
        begin.mkdir()
        work.prepare(begin)
        old = work.result(begin)
        whole = Path(shutil.copytree(begin, Path(root) / "whole"))
        seconds = _finish(work, whole)
        new = work.result(whole)
        assert new is not None and new != old
        while outcome.kills < kills and outcome.too_late <= 3 * kills:
            folder = Path(shutil.copytree(begin, Path(root) / f"kill{outcome.kills}.{outcome.too_late}"))
            _one(work, folder, rng.uniform(0, seconds), old, new, outcome)
            shutil.rmtree(folder)
    return outcome


def _finish(work: Work, folder: Path, *more: str) -> float:
    began = time.monotonic()
    done = run(folder, *work.command, *more)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def _one(work: Work, folder: Path, after: float, old: object, new: object, outcome: Outcome) -> None:
    if not _killed(work, folder, after):
        outcome.too_late += 1
        return
    outcome.kills += 1
    found = work.result(folder)
    problems = []
    if found == new:
        outcome.new += 1
    elif found == old:
        outcome.old += 1
    elif _is_part(found, old, new):
        outcome.part += 1
    else:
        problems.append("neither the old nor the whole new result")
    problems += _going_on(work, folder, new)
    outcome.losses += [f"after {after:.2f} s: {problem}" for problem in problems]


def _going_on(work: Work, folder: Path, new: object) -> list[str]:
    """What is wrong after the work was done again."""
    finished = {path: path.read_bytes() for path in folder.glob("runs/*/run.json")}
    try:
        _finish(work, folder, *work.again)
    except AssertionError as error:
        return [f"going on failed: {error}"]
    problems = [] if work.result(folder) == new else ["going on gave another result"]
    problems += [
        f"{path.parent.name} was computed again" for path, data in finished.items() if path.read_bytes() != data
    ]
    left = [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]
    return [*problems, *([f"left behind {left}"] if left else [])]


def _is_part(found: object, old: Any, new: object) -> bool:
    """Whether more runs of a sweep are done than before, and these are right."""
    if not (isinstance(found, dict) and isinstance(new, dict)):
        return False
    return (old or {}).items() <= found.items() <= new.items()


def _killed(work: Work, folder: Path, after: float) -> bool:
    process = start(folder, *work.command)
    time.sleep(after)
    running = process.poll() is None
    kill(process) if running else process.communicate()
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
        states = f"{outcome.old:4} old {outcome.part:4} in part {outcome.new:4} new {len(outcome.losses):4} losses"
        print(f"{name:14} {outcome.kills:4} kills: {states} (and {outcome.too_late} too late)", flush=True)
        print(*(f"  {loss}\n" for loss in outcome.losses), sep="", end="", flush=True)
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
