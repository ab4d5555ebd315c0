"""Runs hostile inputs in a child process with limits on time and memory, and says which of them did harm.

A child takes one input after the other and writes down which. When it dies (a crash, or no answer in time), that input
is a finding and a new child goes on behind it.
"""

from __future__ import annotations

import json
import logging
import multiprocessing as mp
import os
import random
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS, WAIT, MEMORY = 10, 120, 4 << 30
"""of an input: CPU time, time on the clock (others may use the machine), memory"""
SHARED_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a million files need no disk


@dataclass
class Result:
    """What became of the inputs of one parser."""

    parser: str
    inputs: int = 0
    answers: int = 0
    refusals: int = 0
    findings: dict[str, str] = field(default_factory=dict)
    """by input, what went wrong; `reproduce` makes the input again"""


def reproduce(parser: str, seed: int, number: int) -> bytes:
    """The input of that number."""
    from tests.fuzz.parsers import PARSERS

    chosen = PARSERS[parser]
    rng = random.Random(f"{parser}/{seed}/{number}")
    return chosen.mutate(rng.choice(chosen.seeds()), rng)


def fuzz(parser: str, inputs: int, seed: int = 1) -> Result:
    """Feed a parser so many inputs."""
    result, start = Result(parser), 0
    context = mp.get_context("spawn")
    while start < inputs:
        with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
            child = context.Process(target=_child, args=(parser, seed, start, inputs, folder))
            child.start()
            start = _watch(child, Path(folder), result, start, inputs)
    return result


def _watch(child: Any, folder: Path, result: Result, start: int, inputs: int) -> int:
    """Wait for a child; returns the input to go on with."""
    child.join()
    if not (folder / "told").exists():
        raise RuntimeError(f"the seeds of {result.parser} are not sound, see above")
    told = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
    counts = Counter(kind for _, kind, _ in told)
    result.answers += counts["answer"]
    result.refusals += counts["refusal"]
    result.findings |= {f"{result.parser} {number}": what for number, kind, what in told if kind == "finding"}
    done = start + len(told)
    if done < inputs:
        result.findings[f"{result.parser} {done}"] = f"the process ended with {child.exitcode}"
        done += 1
    result.inputs += done - start
    return done


def _child(parser: str, seed: int, start: int, inputs: int, folder: str) -> None:
    from tests.fuzz.parsers import PARSERS

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    tempfile.tempdir = folder
    os.fsync = lambda file: None  # the mutated files need not survive anything
    chosen = PARSERS[parser]
    seeds = chosen.seeds()
    _warm(chosen, seeds, Path(folder))
    _limit()
    path = Path(folder) / f"{'run.json' if parser == 'run.json' else 'input' + chosen.suffix}"
    with (Path(folder) / "told").open("w", buffering=1) as told:
        for number in range(start, inputs):
            rng = random.Random(f"{parser}/{seed}/{number}")
            path.write_bytes(chosen.mutate(rng.choice(seeds), rng))
            told.write(json.dumps([number, *_try(chosen.use, path)]) + "\n")


def _warm(chosen: Any, seeds: list[bytes], folder: Path) -> None:
    """Compile what the parser compiles before the limits hold, and see that the seeds are sound."""
    path = folder / f"run.json{chosen.suffix}"
    for data in seeds:
        path.write_bytes(data)
        chosen.use(path)


def _limit() -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


class _TooLong(BaseException):
    pass


def _alarm(end: int, _: Any) -> None:
    raise _TooLong(f"{SECONDS} s of CPU time" if end == signal.SIGPROF else f"{WAIT} s")


def _try(use: Any, path: Path) -> tuple[str, str]:
    from lidstone.errors import LidstoneError

    for end in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(end, _alarm)
    signal.alarm(WAIT)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        use(path)
    except LidstoneError as error:
        return ("refusal", "") if "\n" not in str(error) else ("finding", f"more than a line: {str(error)[:200]}")
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-2 if isinstance(error, _TooLong) else -1]
        what = "no answer in" if isinstance(error, _TooLong) else f"{type(error).__name__}:"
        return "finding", f"{what} {str(error)[:150]} ({Path(where.filename).name}:{where.lineno})"
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "answer", ""
