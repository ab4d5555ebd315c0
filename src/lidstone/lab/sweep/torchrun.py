"""A cell of a sweep trained by several processes: `torchrun`, started by the worker that holds the cell's lock.

Each process that torchrun starts runs this module, which finds the job in the environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lidstone.errors import LidstoneError, RunError
from lidstone.lab.sweep.jobs import Job

JOB, MESSAGE = "LIDSTONE_JOB", "LIDSTONE_MESSAGE"


def train_with_torchrun(job: Job) -> None:
    """Train a job in `job.processes` processes; they write its run.json."""
    with tempfile.TemporaryDirectory() as folder:
        message = Path(folder) / "message"
        facts = {"config": job.recipe.to_dict(), "folder": str(job.folder), "corpus": job.corpus}
        environment = {**os.environ, JOB: json.dumps(facts), MESSAGE: str(message)}
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.processes}"]
        done = subprocess.run([*torchrun, "-m", __name__], env=environment, check=False, **_end_with_worker())
        if done.returncode:
            raise RunError(_reason(message) or f"torchrun ended with {done.returncode}", hint="see sweep.log")


def _reason(message: Path) -> str:
    return message.read_text(encoding="utf-8") if message.exists() else ""


def _end_with_worker() -> dict[str, Any]:
    """On Linux: torchrun stops its processes when the worker that started it is killed."""
    if sys.platform != "linux":
        return {}
    import ctypes

    set_parent_death_signal = 1
    prctl = ctypes.CDLL(None).prctl
    return {"preexec_fn": lambda: prctl(set_parent_death_signal, signal.SIGTERM)}


def main() -> None:
    """Train, in each of the processes."""
    from lidstone.lab.recipe.recipe import make_recipe
    from lidstone.lab.run.corpora import cached_corpus
    from lidstone.lab.run.run import train_run
    from lidstone.lab.training.arguments import first_process_first

    job = json.loads(os.environ[JOB])
    try:
        recipe = make_recipe(job["config"])
        with first_process_first():
            prepared = cached_corpus(recipe, job["corpus"])
        train_run(recipe, prepared, Path(job["folder"]), resume=True)
    except LidstoneError as error:
        Path(os.environ[MESSAGE]).write_text(str(error), encoding="utf-8")
        raise


if __name__ == "__main__":
    main()
