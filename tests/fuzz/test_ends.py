"""Some ends at file events in every test run; `python -m tests.fuzz.ends` tries every event in every way."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.fuzz.ends import end_at_events, library

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or "LD_PRELOAD" in os.environ, reason="needs LD_PRELOAD of Linux"
)


@pytest.fixture(autouse=True)
def compiler(tmp_path: Path) -> None:
    if library(tmp_path) is None:
        pytest.skip("there is no C compiler")


@pytest.mark.parametrize(
    ("work", "first", "every"),
    [
        ("filter", 2, 11),
        pytest.param("count --memory", 3, 7, marks=pytest.mark.slow),
        pytest.param("merge", 2, 7, marks=pytest.mark.slow),
        pytest.param("train", 35, 61, marks=pytest.mark.slow),
    ],
)
def test_an_end_loses_nothing(work: str, first: int, every: int) -> None:
    outcome = end_at_events(work, first=first, every=every, rotate=True)
    assert outcome.losses == []
    assert outcome.ends >= 4
