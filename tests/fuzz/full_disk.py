"""A full disk at every write of a command: one clear error, the old file or the whole new one, and resuming is right.

    python -m tests.fuzz.full_disk                       every write of count, fit, convert, report, train, sweep
    python -m tests.fuzz.full_disk --work train --every 10

`full_disk.c` lets the k-th write below the work's folder fail, for good or only once. Needs Linux and a C compiler.
A server process imports everything once and forks for each k, so that a failure costs a second, not ten.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from tests.fuzz.works import SWEEP, TRAIN, WORKS, Work, records
from tests.tiny import lm_values, write_texts

SOURCE = Path(__file__).with_suffix(".c")
SECONDS = 300


@dataclass
class Outcome:
    """What became of the failures of one work."""

    work: str
    writes: int = 0
    """of the whole command"""
    failures: int = 0
    refused: int = 0
    """the command ended with one clear error"""
    done: int = 0
    """the command did without that write"""
    losses: list[str] = field(default_factory=list)


def training(folder: Path) -> None:
    values = lm_values(write_texts(folder), max_steps=6, eval_every=3, accumulation=1)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def sweeping(folder: Path) -> None:
    values = lm_values(write_texts(folder, (40, 8, 8)), max_steps=2, eval_every=2, accumulation=1)
    values["sweep"] = {"axes": {"regularizer.gamma": [0.1, 0.2]}, "seeds": [1, 2]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


SHORT = {name: WORKS[name] for name in ("count", "fit", "convert", "report")} | {
    "train": Work(training, TRAIN, records, ("--resume",)),
    "sweep": Work(sweeping, SWEEP, records),
}


def library(folder: Path) -> Path | None:
    """The compiled library; None where there is no compiler or no way to load it."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None or sys.platform != "linux":
        return None
    made = folder / "full_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


def fill_disk(name: str, *, every: int = 1, first: int = 1) -> Outcome:
    """Let every n-th write of a work fail, in a server process that has the library loaded."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = library(Path(folder))
        assert loaded is not None, "needs Linux and a C compiler"
        command = [sys.executable, "-m", "tests.fuzz.full_disk", "--serve", "--work", name]
        command += ["--every", str(every), "--first", str(first)]
        environment = {**os.environ, "LD_PRELOAD": str(loaded), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def serve(name: str, every: int, first: int) -> Outcome:
    """Prepare the work, do it once to count its writes, then again and again with one that fails."""
    work, outcome = SHORT[name], Outcome(name)
    import_everything(name)
    with tempfile.TemporaryDirectory() as root:
        begin = Path(root) / "start"
        begin.mkdir()
        work.prepare(begin)
        whole = Path(shutil.copytree(begin, Path(root) / "whole"))
        code, error, outcome.writes = forked(whole, work.command)
        assert code == 0, error
        old, new = work.result(begin), work.result(whole)
        assert new is not None and new != old
        for number in range(first, outcome.writes + 1, every):
            for for_good in (True, False):
                with copied(begin) as folder:
                    _one(work, folder, number, for_good, old, new, outcome)
    return outcome


def import_everything(name: str) -> None:
    """What the command imports, so that forks need not."""
    modules = ["lidstone.cli.main"]
    if name in ("train", "sweep"):
        modules += ["transformers.trainer", "lidstone.lab.run.run", "lidstone.lab.sweep.sweep"]
    for module in modules:
        importlib.import_module(module)


@contextlib.contextmanager
def copied(begin: Path) -> Iterator[Path]:
    """A copy of a folder, at the same path each time: the length of a path is part of what is written."""
    folder = Path(shutil.copytree(begin, begin.with_name("fails")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _one(work: Work, folder: Path, number: int, for_good: bool, old: object, new: object, outcome: Outcome) -> None:
    outcome.failures += 1
    code, error, _ = forked(folder, work.command, number, for_good)
    found, problems = work.result(folder), []
    if found != new and found != old and not _is_part(found, new):
        problems.append("neither the old nor the whole new result")
    if code == 0:
        outcome.done += 1
        problems += [] if found == new else ["it claims to be done"]
    elif _is_clear(code, error):
        outcome.refused += 1
    else:
        problems.append(f"exit {code}: {error[-600:]}")
    code, error, _ = forked(folder, (*work.command, *work.again))
    if code != 0 or work.result(folder) != new:
        problems.append(f"going on gave another result: {error[-600:]}")
    problems += [f"left behind {path.name}" for path in folder.iterdir() if path.name.endswith(".tmp")]
    outcome.losses += [f"write {number}{'' if for_good else ' once'}: {problem}" for problem in problems]


def _is_part(found: object, new: object) -> bool:
    return isinstance(found, dict) and isinstance(new, dict) and found.items() <= new.items()


def _is_clear(code: int, error: str) -> bool:
    """Whether the command ended with one line of error, perhaps a hint, and nothing else that is wrong."""
    lines = [line for line in error.splitlines() if line.startswith("error: ")]
    return code == 1 and len(lines) == 1 and "Traceback" not in error and "space" in error


def forked(folder: Path, arguments: tuple[str, ...], number: int = 0, for_good: bool = True) -> tuple[int, str, int]:
    """Run `lidstone` in a fork: its exit code, what it said on stderr, and how many writes it made."""
    with tempfile.TemporaryDirectory() as said:
        child = os.fork()
        if child == 0:
            _child(folder, Path(said), arguments, number, for_good)
        _, status = os.waitpid(child, 0)
        writes = Path(said, "writes")
        made = int(writes.read_text()) if writes.exists() else 0
        return os.waitstatus_to_exitcode(status), Path(said, "error").read_text(errors="replace"), made


def _child(folder: Path, said: Path, arguments: tuple[str, ...], number: int, for_good: bool) -> None:
    import signal

    code = 99
    try:
        signal.alarm(SECONDS)
        for name, handle in (("out", 1), ("error", 2)):
            os.dup2(os.open(said / name, os.O_CREAT | os.O_WRONLY, 0o600), handle)
        os.chdir(folder)
        os.environ["LIDSTONE_CACHE"] = str(folder / "cache")
        disk = ctypes.CDLL(None)
        disk.disk_arm(os.fsencode(folder), ctypes.c_long(number), int(for_good))
        code = _run(arguments)
        sys.stderr.flush()
        (said / "writes").write_text(str(disk.disk_writes()))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _run(arguments: tuple[str, ...]) -> int:
    from lidstone.cli.main import run

    sys.argv = ["lidstone", *arguments]
    try:
        run()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def main() -> int:
    """Fill the disk, print, and fail if anything was lost."""
    reader = argparse.ArgumentParser(prog="python -m tests.fuzz.full_disk")
    reader.add_argument("--work", action="append", choices=sorted(SHORT))
    reader.add_argument("--every", type=int, default=1, help="only every n-th write")
    reader.add_argument("--first", type=int, default=1)
    reader.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = reader.parse_args()
    if given.serve:
        print(json.dumps(vars(serve(given.work[0], given.every, given.first))))
        return 0
    lost = False
    for name in given.work or SHORT:
        done = fill_disk(name, every=given.every, first=given.first)
        lost |= bool(done.losses)
        states = f"{done.refused:4} refused {done.done:4} done without {len(done.losses):4} losses"
        print(f"{name:8} {done.writes:4} writes {done.failures:4} failures: {states}", flush=True)
        print(*(f"  {loss}\n" for loss in done.losses), sep="", end="", flush=True)
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
