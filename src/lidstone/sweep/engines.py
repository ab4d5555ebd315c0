"""Where the cells of a sweep are computed on one machine: in this process, or in workers beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, Protocol

from lidstone.sweep.work import Job, Outcome, compute

RETRIES = 3
Compute = Callable[[Job], Outcome]
_THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class Engine(Protocol):
    """Takes jobs and gives them back done, in any order."""

    width: int
    """how many jobs run at once"""

    def submit(self, job: Job) -> None:
        """Hand in a job, when fewer than `width` are under way."""

    def next(self, timeout: float | None = None) -> tuple[Job, Outcome] | None:
        """The next job that is done; None if there is none in so many seconds."""

    def close(self) -> None:
        """Let go of everything, jobs under way too."""


class Here:
    """One cell after the other in this very process, for scripts and notebooks."""

    width = 1

    def __init__(self, compute: Compute = compute) -> None:
        self.compute = compute
        self.jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        """Hand in a job."""
        self.jobs.append(job)

    def next(self, timeout: float | None = None) -> tuple[Job, Outcome] | None:
        """Compute it, however long that takes."""
        job = self.jobs.pop(0)
        return job, self.compute(job)

    def close(self) -> None:
        """Nothing is held."""


class Processes:
    """Worker processes on this machine, each kept to its share of the cores.

    A worker that dies, say for want of memory, is replaced, and its cell handed in again. Workers end with the process
    that started them; what they print goes to a file.
    """

    def __init__(
        self, jobs: int = 1, threads: int | None = None, log: Path | None = None, compute: Compute = compute
    ) -> None:
        self.width, self.threads, self.compute = jobs, threads, compute
        self.log = str(log or os.devnull)
        self.idle: list[_Worker] = []
        self.busy: dict[Any, tuple[_Worker, Job, int]] = {}

    def submit(self, job: Job) -> None:
        """Hand in a job."""
        self._start(job, tries=1)

    def next(self, timeout: float | None = None) -> tuple[Job, Outcome] | None:
        """The next job that is done."""
        while ready := connection.wait(list(self.busy), timeout):
            worker, job, tries = self.busy.pop(ready[0])
            try:
                outcome = worker.pipe.recv()
            except (EOFError, ConnectionError):
                worker.stop()
                if tries > RETRIES:
                    return job, Outcome("failed", message=f"its worker died {tries} times; is memory short?")
                self._start(job, tries + 1)
                continue
            self.idle.append(worker)
            return job, outcome
        return None

    def close(self) -> None:
        """Stop the workers; a training under way can be taken up again."""
        for worker in [*self.idle, *(worker for worker, _, _ in self.busy.values())]:
            worker.stop()
        self.idle, self.busy = [], {}

    def _start(self, job: Job, tries: int) -> None:
        worker = self.idle.pop() if self.idle else _Worker(self.compute, self.threads, self.log)
        with contextlib.suppress(ConnectionError):  # it died while idle: `next` will notice
            worker.pipe.send(job)
        self.busy[worker.pipe] = (worker, job, tries)


class _Worker:
    """A process that computes one job after the other."""

    def __init__(self, compute: Compute, threads: int | None, log: str) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, compute, log), daemon=False)
        with _environment(threads):
            self.process.start()
        theirs.close()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


def _work(pipe: Any, compute: Compute, log: str) -> None:
    """What a worker does until its pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with Path(log).open("a", buffering=1) as file, contextlib.suppress(EOFError):
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
        while True:
            pipe.send(compute(pipe.recv()))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _environment(threads: int | None) -> Iterator[None]:
    """What a new process must find before any library starts its threads."""
    before = dict(os.environ)
    if threads is not None:
        os.environ.update(dict.fromkeys(_THREAD_LIMITS, str(threads)), TOKENIZERS_PARALLELISM="false")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
