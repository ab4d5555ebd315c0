"""Cells that are trained by two processes each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tiny import SIX_METHODS

TINY = [
    "corpus.limit=100",
    "training.epochs=1",
    "model={layers: 1, width: 8, heads: 1, ffn: 8, max_positions: 64, kind: transformer-lm}",
    "sweep.axes={training.accumulation: [1, 2]}",  # one batch cannot be shared by two processes
    "sweep.seeds=[1]",
]


@pytest.mark.slow
def test_torchrun_inside_a_cell(tmp_path: Path) -> None:
    settings = [part for setting in TINY for part in ("--set", setting)]
    run = [sys.executable, "-c", "from lidstone.cli.main import run; run()", "sweep", SIX_METHODS, "--method", "katz"]
    environment = {**os.environ, "LIDSTONE_CACHE": str(tmp_path / "cache")}
    command = [*run, *settings, "--processes", "2", "--output", str(tmp_path / "runs"), "--json"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=240, env=environment)
    (result,) = json.loads(done.stdout)
    assert result["best"] == {"training.accumulation": 2}, done.stderr
    (identity,) = result["ids"]
    record = json.loads((tmp_path / "runs" / identity / "run.json").read_text())
    assert record["signature"]["processes"] == 2
    assert done.returncode == 1
    assert "1/2  katz accumulation=1 seed=1: failed" in done.stderr
    assert "2/2  katz accumulation=2 seed=1: complete, valid perplexity" in done.stderr
    assert "katz accumulation=2 seed=1: training starts" in (tmp_path / "runs" / "sweep.log").read_text()
    assert "failed: katz accumulation=1 seed=1: 1 batches per update cannot be shared by 2 processes" in done.stderr
