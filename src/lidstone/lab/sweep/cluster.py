"""The cells of a sweep as tasks of a Ray cluster, whose nodes have lidstone and the folder of runs at the same path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lidstone.errors import RunError
from lidstone.lab.sweep.engines import RETRIES, Compute, log_to
from lidstone.lab.sweep.jobs import Job, Outcome
from lidstone.lab.sweep.work import compute
from lidstone.ray_cluster import connect, first_line


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
        task = self.ray.remote(_in_place(compute, str(Path.cwd()), _settings()))
        self.task = task.options(num_cpus=cpus, num_gpus=wanted.get("GPU", 0), max_retries=RETRIES)
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


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("LIDSTONE_")}


def _in_place(compute: Compute, folder: str, settings: dict[str, str]) -> Compute:
    """Compute a job with the working folder and the settings of the sweep; log to the folder of runs."""

    def cell(job: Job) -> Outcome:
        os.chdir(folder)
        os.environ.update(settings)
        with (Path(job.output) / "sweep.log").open("a", buffering=1, encoding="utf-8") as file:
            log_to(file)
            return compute(job)

    return cell
