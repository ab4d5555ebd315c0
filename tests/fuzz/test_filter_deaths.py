"""Some ends of `filter` in every test run; `python -m tests.fuzz.filter_deaths` tries every event."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork and locks")
def test_filter_goes_on_after_any_end() -> None:
    """In a process of its own, which has no threads when it forks."""
    command = [sys.executable, "-m", "tests.fuzz.filter_deaths", "--every", "23"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 losses") == 8
