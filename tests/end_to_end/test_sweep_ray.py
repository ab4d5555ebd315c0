"""A sweep on a real Ray: a worker killed in a cell, the sweep itself killed, a training by the command line.

Ray lives in processes of its own, with its files in a temporary folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sweep_cells import BEST, CELLS, begun, ended

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = """
import sys, ray
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80_000_000, _temp_dir=sys.argv[1])
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a process that finds the cluster."""
    cache = str(tmp_path_factory.getbasetemp() / "cache")
    own = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "LIDSTONE_CACHE": cache}
    environment = {**os.environ, **own}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder,  # sockets want short names
        subprocess.Popen([sys.executable, "-c", CLUSTER, folder], env=environment, text=True, **pipes) as head,
    ):
        assert head.stdout is not None
        yield {**environment, "RAY_ADDRESS": head.stdout.readline().strip()}
        head.communicate()


def start(output: Path, environment: dict[str, str], seconds: float, *die: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.sweep_cells", str(output), "grid", "ray", "2", str(seconds), *die]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def finish(process: subprocess.Popen[str]) -> dict[str, object]:
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return json.loads(text.splitlines()[-1])


def test_a_worker_killed_in_a_cell_is_replaced(tmp_path: Path, ray: dict[str, str]) -> None:
    best = finish(start(tmp_path, ray, 0.0, "die"))
    assert best["katz"] == BEST
    counts = Counter(begun(tmp_path))
    assert counts.pop((tmp_path / "died").read_text()) == 2
    assert set(counts.values()) == {1}
    assert len(ended(tmp_path)) == CELLS


@pytest.mark.unix
def test_a_killed_sweep_goes_on(tmp_path: Path, ray: dict[str, str]) -> None:
    process = start(tmp_path, ray, 0.3)
    while len(ended(tmp_path)) < 4:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = ended(tmp_path)
    finish(start(tmp_path, ray, 0.0))
    after = ended(tmp_path)
    assert {name: after[name] for name in kept} == kept
    assert len(after) == CELLS
    assert len(begun(tmp_path)) <= CELLS + 2  # the two that were under way may have begun again


def test_a_training_as_a_task(tmp_path: Path, ray: dict[str, str]) -> None:
    settings = [
        "corpus.limit=100",
        "training.epochs=1",
        "model={layers: 1, width: 8, heads: 1, ffn: 8, max_positions: 64, kind: transformer-lm}",
        "sweep.seeds=[1]",
    ]
    options = [part for setting in settings for part in ("--set", setting)]
    run = [sys.executable, "-c", "from lidstone.cli.main import run; run()", "sweep", "demo", "--method", "none"]
    environment = {name: value for name, value in ray.items() if name != "RAY_ADDRESS"}
    where = ["--engine", "ray", "--address", ray["RAY_ADDRESS"], "--output", "runs", "--json"]
    done = subprocess.run(
        [*run, *options, *where], cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert [file.parent.name for file in (tmp_path / "runs").glob("*/run.json")] == result["ids"]
