"""Engines that compute the cells of a sweep elsewhere: in worker processes, or as tasks of a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, Protocol, TextIO

from lidstone.errors import RunError
from lidstone.lab.sweep.work import Job, Outcome, compute
from lidstone.ray_cluster import connect, first_line

RETRIES = 3
Compute = Callable[[Job], Outcome]
_THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class Engine(Protocol):
    """Computes jobs; they finish in any order."""

    width: int
    """how many jobs run at once"""

    def submit(self, job: Job) -> None:
        """Start a job; at most `width` may be running."""

    def next(self, timeout: float | None = None) -> tuple[Job, Outcome] | None:
        """The next finished job; None if none finishes within `timeout` seconds."""

    def close(self) -> None:
        """Stop everything, running jobs too."""


class Processes:
    """Worker processes on this machine, each limited to its share of the cores.

    A worker that dies, for instance for lack of memory, is replaced, and its cell started again. Workers end with the
    process that started them. What they print and log is appended to the file `log`.
    """

    def __init__(
        self, jobs: int = 1, threads: int | None = None, log: Path | None = None, compute: Compute = compute
    ) -> None:
        self.width, self.threads, self.compute = jobs, threads, compute
        self.log = str(log or os.devnull)
        self.idle: list[_Worker] = []
        self.busy: dict[Any, tuple[_Worker, Job, int]] = {}

    def submit(self, job: Job) -> None:
        """Start a job in a worker."""
        self._start(job, tries=1)

    def next(self, timeout: float | None = None) -> tuple[Job, Outcome] | None:
        """The next finished job."""
        while ready := connection.wait(list(self.busy), timeout):
            worker, job, tries = self.busy.pop(ready[0])
            try:
                outcome = worker.pipe.recv()
            except (EOFError, ConnectionError):
                worker.stop()
                if tries > RETRIES:
                    return job, Outcome(
                        "failed", message=f"its worker process died {tries} times. hint: is memory short? See sweep.log"
                    )
                self._start(job, tries + 1)
                continue
            self.idle.append(worker)
            return job, outcome
        return None

    def close(self) -> None:
        """Stop the workers; an interrupted training can be continued."""
        for worker in [*self.idle, *(worker for worker, _, _ in self.busy.values())]:
            worker.stop()
        self.idle, self.busy = [], {}

    def _start(self, job: Job, tries: int) -> None:
        worker = self.idle.pop() if self.idle else _Worker(self.compute, self.threads, self.log)
        with contextlib.suppress(ConnectionError):  # it died while idle: `next` finds out
            worker.pipe.send(job)
        self.busy[worker.pipe] = (worker, job, tries)


class Ray:
    """Tasks on a Ray cluster; Ray starts a cell again when its worker or node is lost.

    A cell gets `cpus` cores, and `gpus` GPUs where the cluster has any. Without an address a cluster is started on this
    machine.
    """

    def __init__(
        self,
        address: str | None = None,
        jobs: int | None = None,
        cpus: int = 1,
        gpus: int = 1,
        compute: Compute = compute,
    ) -> None:
        self.ray = connect(address)
        wanted = {"CPU": cpus, **({"GPU": gpus} if self._largest_node("GPU") else {})}
        for resource, amount in wanted.items():
            self._check_node(resource, amount)
        total = self.ray.cluster_resources()
        fitting = [int(total[resource]) // amount for resource, amount in wanted.items()]
        self.width = max(1, min([*fitting, jobs or max(fitting)]))
        settings = {name: value for name, value in os.environ.items() if name.startswith("LIDSTONE_")}
        remote = self.ray.remote(_in_place(compute, str(Path.cwd()), settings))
        self.task = remote.options(num_cpus=cpus, num_gpus=wanted.get("GPU", 0), max_retries=RETRIES)
        self.running: dict[Any, Job] = {}

    def submit(self, job: Job) -> None:
        """Start a job as a task."""
        self.running[self.task.remote(job)] = job

    def next(self, timeout: float | None = None) -> tuple[Job, Outcome] | None:
        """The next finished job."""
        done, _ = self.ray.wait(list(self.running), num_returns=1, timeout=timeout)
        if not done:
            return None
        job = self.running.pop(done[0])
        try:
            return job, self.ray.get(done[0])
        except self.ray.exceptions.RayError as error:
            return job, Outcome("failed", message=f"Ray could not compute the cell: {first_line(error)}")

    def close(self) -> None:
        """Disconnect; the cluster ends the tasks of this sweep."""
        self.ray.shutdown()

    def _check_node(self, resource: str, amount: int) -> None:
        """Raise an error if a cell fits no node: its task would never start."""
        most = int(self._largest_node(resource))
        if most < amount:
            self.close()
            hint = "lower --threads or --processes"
            raise RunError(f"a cell needs {amount} {resource}s on one node; the largest has {most}", hint=hint)

    def _largest_node(self, resource: str) -> float:
        return max((node["Resources"].get(resource, 0) for node in self.ray.nodes() if node["Alive"]), default=0)


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
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


def _work(pipe: Any, compute: Compute, log: str) -> None:
    """Compute jobs until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started the workers handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with Path(log).open("a", buffering=1, encoding="utf-8") as file, contextlib.suppress(EOFError):
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
        log_to(sys.stderr)
        while True:
            pipe.send(compute(pipe.recv()))


def log_to(stream: TextIO) -> None:
    """Write the log of a sweep, one line per event, to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("lidstone.lab.sweep")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _environment(threads: int | None) -> Iterator[None]:
    """The thread limits that a new process must have before any library starts its threads."""
    before = dict(os.environ)
    if threads is not None:
        os.environ.update(dict.fromkeys(_THREAD_LIMITS, str(threads)), TOKENIZERS_PARALLELISM="false")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _in_place(compute: Compute, folder: str, settings: dict[str, str]) -> Compute:
    """Compute a job with the working folder and the settings of the sweep; log to the folder of runs."""

    def cell(job: Job) -> Outcome:
        os.chdir(folder)
        os.environ.update(settings)
        with (Path(job.output) / "sweep.log").open("a", buffering=1, encoding="utf-8") as file:
            log_to(file)
            return compute(job)

    return cell
