"""Where the cells of a sweep are computed: processes of this machine, or tasks of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from lidstone.errors import RunError
from lidstone.experiment.cell import Job, Outcome, compute

RETRIES = 3
Compute = Callable[[Job], Outcome]


class Engine(Protocol):
    """Takes jobs and gives them back done, in any order."""

    width: int
    """how many jobs run at once"""

    def submit(self, job: Job) -> None:
        """Hand in a job."""

    def next(self) -> tuple[Job, Outcome]:
        """The next job that is done; waits for it."""

    def close(self) -> None:
        """Let go of everything."""


class Processes:
    """Worker processes on this machine, each pinned to its share of the cores; one job runs right here.

    A worker that dies takes only its own cells with it: they are handed in again, to new workers.
    """

    def __init__(self, jobs: int = 1, compute: Compute = compute) -> None:
        self.width, self.compute = jobs, compute
        self.pool: ProcessPoolExecutor | None = None
        self.running: dict[Future[Outcome], Job] = {}
        self.waiting: list[Job] = []
        self.tries: dict[int, int] = {}

    def submit(self, job: Job) -> None:
        """Hand in a job."""
        if self.width == 1:
            self.waiting.append(job)
        else:
            self._start(job)

    def next(self) -> tuple[Job, Outcome]:
        """The next job that is done; waits for it."""
        if self.width == 1:
            job = self.waiting.pop(0)
            return job, self.compute(job)
        while True:
            done, _ = wait(self.running, return_when=FIRST_COMPLETED)
            future = done.pop()
            job = self.running.pop(future)
            try:
                return job, future.result()
            except BrokenProcessPool:
                self._restart([job, *self.running.values()])

    def close(self) -> None:
        """Stop the workers."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def _start(self, job: Job) -> None:
        if self.pool is None:
            import multiprocessing

            threads = str(job.threads or max(1, (os.cpu_count() or 1) // self.width))
            context = multiprocessing.get_context("spawn")
            self.pool = ProcessPoolExecutor(self.width, context, initializer=_pin, initargs=(threads,))
        self.running[self.pool.submit(self.compute, job)] = job

    def _restart(self, jobs: list[Job]) -> None:
        self.close()
        self.pool, self.running = None, {}
        for job in jobs:
            self.tries[id(job)] = self.tries.get(id(job), 0) + 1
            if self.tries[id(job)] > RETRIES:
                raise RunError(f"a worker died {RETRIES} times on one cell", hint="is memory short? try fewer --jobs")
            self._start(job)


class Ray:
    """Tasks on a Ray cluster; Ray starts a cell again when its worker or node is lost."""

    def __init__(self, address: str | None = None, threads: int | None = None, compute: Compute = compute) -> None:
        import ray

        try:
            ray.init(address=address, ignore_reinit_error=True, include_dashboard=False, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            where = f"at {address}" if address else "on this machine"
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RunError(
                f"there is no Ray cluster {where}: {reason}",
                hint="start one with `ray start --head`, or drop --address",
            ) from error
        cpus = threads or 1
        self.ray = ray
        self.width = max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)
        self.task = ray.remote(compute).options(num_cpus=cpus, max_retries=RETRIES)
        self.running: dict[Any, Job] = {}

    def submit(self, job: Job) -> None:
        """Hand in a job."""
        self.running[self.task.remote(job)] = job

    def next(self) -> tuple[Job, Outcome]:
        """The next job that is done; waits for it."""
        (done, *_), _ = self.ray.wait(list(self.running), num_returns=1)
        job = self.running.pop(done)
        try:
            return job, self.ray.get(done)
        except self.ray.exceptions.RayError as error:
            reason = str(error).splitlines()[0]
            return job, Outcome("failed", "", message=f"Ray gave the cell up: {reason}")

    def close(self) -> None:
        """Leave the cluster."""
        self.ray.shutdown()


def _pin(threads: str) -> None:
    """Keep a worker to its share of the cores, before any library starts its threads."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
        os.environ[name] = threads if name != "TOKENIZERS_PARALLELISM" else "false"
