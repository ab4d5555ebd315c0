"""A full disk at some writes in every test run; `python -m tests.fuzz.full_disk` tries every one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.fuzz.full_disk import fill_disk, library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or "LD_PRELOAD" in os.environ, reason="needs LD_PRELOAD of Linux"),
]


@pytest.fixture(autouse=True)
def compiler(tmp_path: Path) -> None:
    if library(tmp_path) is None:
        pytest.skip("there is no C compiler")


@pytest.mark.parametrize(("work", "first", "every"), [("count", 1, 1), ("train", 35, 32)])
def test_a_full_disk_loses_nothing(work: str, first: int, every: int) -> None:
    outcome = fill_disk(work, first=first, every=every)
    assert outcome.losses == []
    assert outcome.failures >= 6 and outcome.refused == outcome.failures
