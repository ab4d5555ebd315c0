"""The end of a command at every change of a file, in every way; then the same command again, to the same result.

    python -m tests.fuzz.ends                            every event of every work in every way; prints a table
    python -m tests.fuzz.ends --work train --rotate      each event once, the ways in turn
    python -m tests.fuzz.ends --work count --way death --every 10

`file_events.c` ends the process at the k-th change of a file below the work's folder, or lets that change fail. Needs
Linux and a C compiler. A server process imports and compiles everything once and forks for each end, so that one costs
a fraction of a second. After the first end the command is given again and dies at another event, then once more:
the result must be that of an undisturbed command, to the byte, and nothing else may be left. Before it is given again,
the times of all files are moved to 1985 or 2085, and the clock jumps to the other while it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.fuzz import works
from tests.fuzz.works import SWEEP, TRAIN, WORKS, Work
from tests.tiny import lm_values, write_texts

import lidstone as ld

SOURCE = Path(__file__).with_name("file_events.c")
WAYS = ("death", "Ctrl-C", "ENOSPC", "ENOSPC once", "EFBIG")  # in the order of file_events.c
REASONS = ("space", "File too large")  # of a stream of C++ only the hint says so
SECONDS, DEAD, STOPPED = 300, 9, 130
FAR = 1985, 2085
YEAR = 31_556_952
MODULES = "modules"


@dataclass
class Outcome:
    """What became of the ends of one work."""

    work: str
    events: int = 0
    """of the whole command"""
    ends: int = 0
    done: int = 0
    """the command did without that change"""
    losses: list[str] = field(default_factory=list)


def training(folder: Path) -> None:
    values = lm_values(write_texts(folder), max_steps=6, eval_every=3, accumulation=1)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def sweeping(folder: Path) -> None:
    values = lm_values(write_texts(folder, (40, 8, 8)), max_steps=2, eval_every=2, accumulation=1)
    values["sweep"] = {"axes": {"regularizer.gamma": [0.1, 0.2]}, "seeds": [1]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def teaching(folder: Path) -> None:
    values = lm_values(write_texts(folder, (40, 8, 8)), max_steps=2, eval_every=2, accumulation=1)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    works.lidstone(folder, "train", "recipe.yaml", "--output", "trained")
    (run,) = (folder / "trained").glob("*/model")
    run.rename(folder / "network")
    for name in ("trained", "cache"):
        shutil.rmtree(folder / name)


def filtering(folder: Path) -> None:
    (folder / "in.txt").write_bytes(b"the cat sat on the mat\nnul\0\na dog and a cat\nthe end\n" * 12)
    (folder / "model.txt").write_text("the cat sat\na dog sat on the mat\n")
    works.lidstone(folder, "count", "model.txt", "-n", "2", "-o", "model.counts")
    works.lidstone(folder, "fit", "model.counts", "--smoother", "witten-bell", "-o", "model.table")
    for name in ("out.gz", "out.gz.bad"):
        (folder / name).write_bytes(b"old")


def small_text(folder: Path) -> None:
    (folder / "a.txt").write_text("a b c a d\nb c e\nf a b\n" * 8)
    (folder / "old.txt").write_text("an older text\n" * 5)
    works.lidstone(folder, "count", "old.txt", "-n", "3", "-o", "out.counts")


def small_counts(folder: Path) -> None:
    small_text(folder)
    works.lidstone(folder, "count", "a.txt", "-n", "3", "-o", "a.counts")
    shutil.copyfile(folder / "a.counts", folder / "b.counts")
    works.lidstone(folder, "fit", "out.counts", "--smoother", "witten-bell", "-o", "out.table")


def prepared(folder: Path) -> object:
    """Every file of the prepared corpora that have their names."""
    homes = [home for home in (folder / "cache" / "prepared").glob("*") if not home.name.startswith(".")]
    return {path.name: path.read_bytes() for home in homes for path in home.iterdir()} or None


def taught(folder: Path) -> object:
    """The files of a finished teacher."""
    made = folder / "teacher"
    finished = (made / "teacher.json").exists() and json.loads((made / "teacher.json").read_text())["complete"]
    return {path.name: path.read_bytes() for path in made.iterdir() if path.is_file()} if finished else None


FILTER = ("filter", "model.table", "in.txt", "-o", "out.gz", "--jobs", "1", "--max-bad", "1")
COUNTED = ("count", "a.txt", "-n", "3", "--memory", "4G", "-o", "out.counts")
FITTED = ("fit", "a.counts", "--smoother", "jelinek-mercer", "-o", "out.table")
GZ = ("out.gz", "out.gz.bad")


def files(*names: str) -> Callable[[Path], object]:
    return lambda folder: [path.read_bytes() if (path := folder / name).exists() else None for name in names]


SHORT = {name: WORKS[name] for name in ("count", "fit", "convert", "report")} | {
    "filter": Work(filtering, FILTER, files(*GZ)),
    "filter --keep": Work(filtering, (*FILTER, "--keep", "0.5"), files(*GZ)),
    "count --memory": Work(small_text, COUNTED, works.file("out.counts")),
    "fit --memory": Work(small_counts, (*FITTED, "--memory", "4G"), works.file("out.table")),
    "merge": Work(small_counts, ("merge", "a.counts", "b.counts", "-o", "out.counts"), works.file("out.counts")),
    "data prepare": Work(training, ("data", "prepare", "recipe.yaml"), prepared),
    "train": Work(training, TRAIN, works.records, ("--resume",)),
    "sweep": Work(sweeping, SWEEP, works.records),
    "teach": Work(teaching, ("teach", "network", "test.target", "--top", "4", "--output", "teacher"), taught),
}  # fmt: skip
SLOW = ("data prepare", "train", "sweep", "teach")  # they start threads of torch, which no fork survives


def library(folder: Path) -> Path | None:
    """The compiled library; None where there is no compiler or no way to load it."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None or sys.platform != "linux":
        return None
    made = folder / "file_events.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


def end_at_events(
    name: str, *, ways: tuple[str, ...] = WAYS, every: int = 1, first: int = 1, rotate: bool = False
) -> Outcome:
    """End a work at every n-th event, in a server process that has the library loaded."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = library(Path(folder))
        assert loaded is not None, "needs Linux and a C compiler"
        command = [sys.executable, "-m", "tests.fuzz.ends", "--serve", "--work", name, "--every", str(every)]
        command += ["--first", str(first), *(["--rotate"] if rotate else []), *(f"--way={way}" for way in ways)]
        environment = {**os.environ, "LD_PRELOAD": str(loaded), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def serve(name: str, ways: list[str], every: int, first: int, rotate: bool) -> Outcome:
    """Prepare the work, do it once to count its events, then again and again with an end at one of them."""
    work, outcome = SHORT[name], Outcome(name)
    with tempfile.TemporaryDirectory() as root:
        begin = Path(root).resolve() / "start"
        begin.mkdir()
        work.prepare(begin)
        load(name, work, begin)
        gc.freeze()  # a collection in a fork need not look at what was there before
        with copied(begin) as whole:
            code, error, outcome.events = forked(whole, work.command)
            assert code == 0, error
            import_all(whole)
            old, new, names = work.result(begin), work.result(whole), all_names(whole)
        assert new is not None and new != old
        for place, number in enumerate(range(first, outcome.events + 1, every)):
            for way in [ways[place % len(ways)]] if rotate else ways:
                with copied(begin) as folder:
                    problems = list(_problems(work, folder, number, way, (old, new, names), outcome))
                outcome.losses += [f"{way} at event {number}: {problem}" for problem in problems]
    return outcome


def load(name: str, work: Work, begin: Path) -> None:
    """Import, compile and adapt what the command uses, so that forks need not."""
    modules = ["lidstone.cli.main"]
    if name in SLOW:
        modules += ["transformers.trainer", "lidstone.lab.run.run", "lidstone.lab.sweep.sweep"]
    for module in modules:
        importlib.import_module(module)
    adapt()
    if name in SLOW:
        from lidstone.hf import teach

        teach.ENTRIES = 200  # of a shard
        training_kernels()
    else:
        with copied(begin) as folder, Path(os.devnull).open("w") as none:
            os.chdir(folder)
            with contextlib.redirect_stdout(none), contextlib.redirect_stderr(none):
                _run(work.command)
            os.chdir(begin)


def training_kernels() -> None:
    """Load the compiled code of a training's counts and table, without a thread."""
    vocab = ld.Vocabulary(size=9, eos=0)
    counts = ld.count([[1, 2, 3], [2, 3]] * 3, vocab, order=3)
    ld.KneserEssenNey(discount=0.5).fit(counts).perplexity([[1, 2]])


def import_all(folder: Path) -> None:
    """Import what the command in a folder imported on its way, for the next ones."""
    for name in (folder.parent / MODULES).read_text().split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def adapt() -> None:
    """Many small steps instead of a few large ones: states, chunks, runs and buckets; cells in this process."""
    from lidstone.cli import sweep
    from lidstone.lab.sweep.work import InProcess
    from lidstone.ngram.disk import count_file, write_counts
    from lidstone.ngram.filter import checkpoint
    from lidstone.ngram.filter.filter import filter_documents

    checkpoint.SECONDS = 0.0
    filter_documents.__kwdefaults__["chunk_bytes"] = 200
    reading: Any = count_file
    writing: Any = write_counts
    reading.block_tokens, writing.bucket_nodes = lambda *_: 20, lambda *_: 60
    sweep._engine = lambda *_: InProcess()


@contextlib.contextmanager
def copied(begin: Path) -> Iterator[Path]:
    """A copy of a folder, at the same path each time: the length of a path is part of what is written."""
    folder = Path(shutil.copytree(begin, begin.with_name("ends")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def all_names(folder: Path) -> set[str]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _problems(
    work: Work, folder: Path, number: int, way: str, expected: tuple[object, Any, set[str]], outcome: Outcome
) -> Iterator[str]:
    """End the command, look at what is there, and go on with another death on the way."""
    old, new, names = expected
    outcome.ends += 1
    code, error, _ = forked(folder, work.command, number, way)
    found = work.result(folder)
    outcome.done += code == 0
    if not _is_partly(found, old, new):
        yield "neither the old nor the whole new result"
    if not (found == new if code == 0 else _is_clear(way, code, error)):
        yield f"exit {code}: {error[-600:]}"
    again = (*work.command, *work.again)
    past, future = FAR if number % 2 else FAR[::-1]
    date(folder, past)
    code, error, _ = forked(folder, again, number // 2 + 3, "death", future)
    outcome.ends += code == DEAD
    if code not in (0, DEAD):
        yield f"going on, exit {code}: {error[-600:]}"
    code, error, _ = forked(folder, again, year=past)
    if code != 0 or work.result(folder) != new:
        yield f"going on gave another result, exit {code}: {error[-600:]}"
    elif all_names(folder) != names:
        yield f"other files: {sorted(all_names(folder) ^ names)}"


def _is_partly(found: object, old: object, new: object) -> bool:
    """Whether each file is the old or the new one, or more runs are there than before, and these are right."""
    if isinstance(found, list) and isinstance(old, list) and isinstance(new, list):
        return all(one in pair for one, *pair in zip(found, old, new, strict=True))
    if isinstance(found, dict) and isinstance(new, dict):
        return found.items() <= new.items()
    return found in (old, new)


def _is_clear(way: str, code: int, error: str) -> bool:
    """Whether the command died, said that it was stopped, or ended with one line of error; or one for each cell."""
    if "Traceback" in error:
        return False
    if way in ("death", "Ctrl-C"):
        return code == (DEAD if way == "death" else STOPPED)
    errors, failed = (sum(line.startswith(word) for line in error.splitlines()) for word in ("error: ", "failed: "))
    return code == 1 and (errors == 1 or failed > errors == 0) and any(reason in error for reason in REASONS)


def date(folder: Path, year: int) -> None:
    """Let everything below a folder have been written in a year."""
    for path in folder.rglob("*"):
        os.utime(path, ((year - 1970) * YEAR,) * 2, follow_symlinks=False)


def forked(
    folder: Path, arguments: tuple[str, ...], number: int = 0, way: str = WAYS[0], year: int | None = None
) -> tuple[int, str, int]:
    """Run `lidstone` in a fork: its exit code, what it said on stderr, and how many events there were.

    The clock jumps to `year` at the first event.
    """
    with tempfile.TemporaryDirectory() as said:
        child = os.fork()
        if child == 0:
            _child(folder, Path(said), arguments, number, way, year)
        _, status = os.waitpid(child, 0)
        events = Path(said, "events")
        made = int(events.read_text()) if events.exists() else 0
        return os.waitstatus_to_exitcode(status), Path(said, "error").read_text(errors="replace"), made


def _child(folder: Path, said: Path, arguments: tuple[str, ...], number: int, way: str, year: int | None) -> None:
    code = 99
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(SECONDS)
        for name, handle in (("out", 1), ("error", 2)):
            os.dup2(os.open(said / name, os.O_CREAT | os.O_WRONLY, 0o600), handle)
        os.chdir(folder)
        os.environ["LIDSTONE_CACHE"] = str(folder / "cache")
        disk = ctypes.CDLL(None)
        disk.events_arm(os.fsencode(folder), ctypes.c_long(number), WAYS.index(way))
        if year is not None:
            disk.clock_jump(ctypes.c_long((year - 1970) * YEAR - int(time.time())))
        code = _run(arguments)
        sys.stderr.flush()
        (said / "events").write_text(str(disk.events_seen()))
        if not number:
            (folder.parent / MODULES).write_text("\n".join(sys.modules))
    except KeyboardInterrupt:
        code = STOPPED
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
    """End the works, print, and fail if anything was lost."""
    reader = argparse.ArgumentParser(prog="python -m tests.fuzz.ends")
    reader.add_argument("--work", action="append", choices=sorted(SHORT))
    reader.add_argument("--way", action="append", choices=WAYS)
    reader.add_argument("--every", type=int, default=1, help="only every n-th event")
    reader.add_argument("--first", type=int, default=1)
    reader.add_argument("--rotate", action="store_true", help="one way for each event, in turn")
    reader.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = reader.parse_args()
    ways = tuple(given.way or WAYS)
    if given.serve:
        print(json.dumps(vars(serve(given.work[0], list(ways), given.every, given.first, given.rotate))))
        return 0
    lost = False
    for name in given.work or SHORT:
        done = end_at_events(name, ways=ways, every=given.every, first=given.first, rotate=given.rotate)
        lost |= bool(done.losses)
        print(f"{name:15} {done.events:5} events {done.ends:6} ends {done.done:4} done without "
              f"{len(done.losses):4} losses", flush=True)  # fmt: skip
        print(*(f"  {loss}\n" for loss in done.losses), sep="", end="", flush=True)
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
