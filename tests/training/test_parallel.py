"""Two gloo processes give the value and the gradient of one: DDP, FSDP2, tensor-parallel logits, accumulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

WORKER = Path(__file__).resolve().parent / "parallel_worker.py"
KINDS = ("token", "ngram")
SCENARIOS = [
    *(f"{way}-{kind}" for kind in KINDS for way in ("ddp", "ddp-accumulation", "tensor-parallel", "shard-by-hand")),
    *(
        f"fsdp-{loss}-{head}-{kind}"
        for kind in KINDS
        for head in ("root", "own", "tied")
        for loss in ("logits", "linear")
    ),
    *("ddp-accumulation-teacher", "fsdp-logits-root-teacher", "fsdp-linear-tied-teacher"),
    "fsdp-projection-tied",
    "fsdp-projection-own",
    "evaluation",
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("parallel")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(WORKER)]
    done = subprocess.run(
        [*command, str(folder)], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = torch.load(folder / "found.pt")
    return results


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_processes_equal_one(name: str, found: dict[str, Any]) -> None:
    (value, gradient), (expected, truth) = found["scenarios"][name]
    assert value == pytest.approx(expected, rel=1e-5)
    assert gradient.keys() == truth.keys()
    assert name == "evaluation" or max(part.abs().max() for part in truth.values()) > 1e-2
    for parameter, right in truth.items():
        torch.testing.assert_close(gradient[parameter], right, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_every_scenario_of_the_worker_is_looked_at(found: dict[str, Any]) -> None:
    assert set(found["scenarios"]) == set(SCENARIOS)


@pytest.mark.slow
def test_what_cannot_be_right_is_refused(found: dict[str, Any]) -> None:
    assert "this process has the 26 ids from 0 to 25" in found["refusals"]["all logits"]
    assert "hint: sharded over the vocabulary: ld.VocabularyParallel" in found["refusals"]["sharded logits"]
