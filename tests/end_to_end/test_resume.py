"""A training that is killed goes on as if nothing had happened; two processes train like one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml
from tests.tiny import lm_values, mt_values, write_texts

pytestmark = pytest.mark.slow
RUN = "from lidstone.cli.main import run; run()"


def command(*arguments):
    return [sys.executable, "-c", RUN, *map(str, arguments)]


def environment(folder):
    return {**os.environ, "LIDSTONE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


def train(folder, recipe, output, *options, launcher=()):
    arguments = command("train", recipe, "--output", folder / output, "--json", *options)
    if launcher:
        script = folder / "run.py"
        script.write_text(RUN)
        arguments = [*launcher, str(script), *arguments[3:]]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment(folder), timeout=600)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    return json.loads((folder / output / record["id"] / "run.json").read_text())


def kill_after_checkpoint(folder, recipe, output):
    """Start a training and kill it, without warning, a moment after its first checkpoint was begun."""
    with subprocess.Popen(command("train", recipe, "--output", folder / output), env=environment(folder),
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:  # fmt: skip
        deadline = time.monotonic() + 240
        while not list((folder / output).glob("*/checkpoints/checkpoint-*/trainer_state.json")):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not list((folder / output).glob("*/run.json"))


def comparable(record):
    """Everything but the time it took."""
    curve = [{key: value for key, value in point.items() if key != "seconds"} for point in record["curve"]]
    return curve, record["metrics"], record["cost"]["steps"], record["id"]


def write(folder, values):
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


@pytest.mark.unix
def test_a_killed_training_resumes_to_the_same_result(tmp_path):
    values = lm_values(write_texts(tmp_path), max_steps=300, eval_every=20, patience=4, accumulation=2)
    values["model"]["dropout"] = 0.3  # the state of the random numbers matters
    recipe = write(tmp_path, values)
    whole = train(tmp_path, recipe, "whole")
    kill_after_checkpoint(tmp_path, recipe, "killed")
    (checkpoints,) = (tmp_path / "killed").glob("*/checkpoints")
    refused = subprocess.run(command("train", recipe, "--output", tmp_path / "killed"), capture_output=True,
                             text=True, env=environment(tmp_path))  # fmt: skip
    assert refused.returncode == 1 and "interrupted at step" in refused.stderr and "--resume" in refused.stderr
    (checkpoints / "checkpoint-9999").mkdir()  # one that was only begun
    resumed = train(tmp_path, recipe, "killed", "--resume")
    assert comparable(resumed) == comparable(whole)


@pytest.mark.unix
def test_a_training_killed_after_its_last_step_is_not_trained_further(tmp_path):
    values = lm_values(write_texts(tmp_path), max_steps=40, eval_every=4, patience=1, learning_rate=0.3)
    recipe = write(tmp_path, values)
    whole = train(tmp_path, recipe, "whole")
    code = (
        "import os, signal; from lidstone.lab.run import run; "
        "run.SavedModel.save = lambda *a: os.kill(os.getpid(), signal.SIGKILL); " + RUN
    )
    arguments = [sys.executable, "-c", code, *command("train", recipe, "--output", tmp_path / "killed")[3:]]
    assert subprocess.run(arguments, env=environment(tmp_path)).returncode == -signal.SIGKILL
    resumed = train(tmp_path, recipe, "killed", "--resume")
    assert comparable(resumed) == comparable(whole)


@pytest.mark.parametrize("make", [lm_values, mt_values])
def test_two_processes_train_like_one(tmp_path, make):
    values = make(write_texts(tmp_path), max_steps=6, eval_every=3, accumulation=2, batch_tokens=64)
    values["model"]["dropout"] = 0.0  # each process draws its own
    recipe = write(tmp_path, values)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    one = train(tmp_path, recipe, "one")
    two = train(tmp_path, recipe, "two", launcher=launcher)
    assert two["signature"]["processes"] == 2
    for name in ("train_loss", "valid_loss"):
        first, second = ([point[name] for point in record["curve"]] for record in (one, two))
        assert second == pytest.approx(first, rel=1e-4)
    assert two["metrics"]["test"]["nll"] == pytest.approx(one["metrics"]["test"]["nll"], rel=1e-4)
