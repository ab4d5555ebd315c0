"""The Triton programs: interpreted on a CPU, compiled for GPUs that are not here, run on one that is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.interpreted_kernels import cases

ROOT = Path(__file__).parents[2]
# In float32 both the reference's rounding and ours are below these. A half-precision gradient is rounded once at the
# label, whose share is at most 2.1, and once per order elsewhere, where numbers are small.
LIMITS = {"value": 5e-7, "gradient": 5e-6, "parts": 5e-7}
HALF = {"torch.bfloat16": 2.0**-7, "torch.float16": 2.0**-10}

pytest.importorskip("triton", reason="Triton is not installed: pip install lidstone[gpu]")


def run_cases(device: str, **environment: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "tests.interpreted_kernels", "--device", device]
    found = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def interpreted():
    return run_cases("cpu", TRITON_INTERPRET="1")


def too_large(name, found):
    limits = {**LIMITS, "gradient": HALF.get(name.split()[0], LIMITS["gradient"])}
    return {part: error for part, error in found.items() if not error <= limits[part]}


@pytest.mark.slow
@pytest.mark.parametrize("name", cases())
def test_values_and_gradients_are_those_of_the_reference(interpreted, name):
    assert too_large(name, interpreted[name]) == {}


@pytest.mark.gpu
def test_on_a_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no GPU is here: the programs are interpreted and compiled only")
    wrong = {name: too_large(name, found) for name, found in run_cases("cuda").items()}
    assert {name: errors for name, errors in wrong.items() if errors} == {}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_every_program_compiles_without_spilling(target, tmp_path, monkeypatch):
    if os.environ.get("TRITON_INTERPRET"):
        pytest.skip("the interpreter does not compile")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from _gpu_targets import CASES, compile_all

    made = list(compile_all((target,), cases=CASES[1:4]))
    programs = {"losses_program", "gradient_program", "plan_program", "probabilities_program"}
    assert {each.program for each in made} == programs
    for each in made:
        assert each.code_bytes > 1000
        assert each.registers <= 96
        spills = {("plan_program", "ngram"): 16, ("gradient_program", "teacher"): 8}
        assert each.spilled <= spills.get((each.program, each.form), 0), each
