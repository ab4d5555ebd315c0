"""A cell of a sweep trained by several processes: `torchrun` started by the worker that holds the cell's lock.

Each of its processes runs this module, which finds the job in the environment.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lidstone.errors import LidstoneError, RunError

JOB, MESSAGE = "LIDSTONE_JOB", "LIDSTONE_MESSAGE"


def train_with_torchrun(config: dict[str, Any], output: str, processes: int) -> None:
    """Train a recipe in so many processes; its run.json tells the rest."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as message:
        job = json.dumps({"config": config, "output": output})
        environment = {**os.environ, JOB: job, MESSAGE: message.name}
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        done = subprocess.run([*torchrun, "-m", __name__], env=environment, check=False, preexec_fn=_end_with_parent)
        if done.returncode:
            said = message.read() or f"torchrun ended with {done.returncode}; sweep.log in the folder of runs says more"
            raise RunError(said)


def _end_with_parent() -> None:
    """On Linux: have torchrun stop its processes when the worker that started it is killed."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def main() -> None:
    """One of the processes."""
    from lidstone.experiment.run import train
    from lidstone.recipe.recipe import make_recipe

    job = json.loads(os.environ[JOB])
    try:
        train(make_recipe(job["config"]), job["output"], resume=True, claimed=True)
    except LidstoneError as error:
        Path(os.environ[MESSAGE]).write_text(str(error), encoding="utf-8")
        raise


if __name__ == "__main__":
    main()
