"""The Trainer under its own FSDP2 gives the value and the gradient of the dense reference, with two gloo processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import judge, same

WORKER = Path(__file__).resolve().parent / "fsdp_worker.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    folder = tmp_path_factory.mktemp("fsdp")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(WORKER)]
    done = subprocess.run(
        [*command, str(folder)], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[Any, Any] = torch.load(folder / "found.pt")
    return results


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "accumulation"), [(4, 1), (2, 2)])
@pytest.mark.parametrize("way", ["hook", "mixin", "linear"])
def test_a_sharded_model_has_the_loss_and_gradient_of_the_reference(
    found: dict[Any, Any], way: str, batch: int, accumulation: int
) -> None:
    step, (loss, gradient) = found[way, batch, accumulation], judge("opt", "token")
    assert step["model"] == "FSDPOPTForCausalLM"
    assert step["loss"] == pytest.approx(loss, rel=1e-5)
    assert step["eval_loss"] == pytest.approx(judge("opt", "plain")[0], rel=1e-5)
    assert same(step["gradient"], gradient)
