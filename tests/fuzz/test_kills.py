"""A few kills at random moments in every test run; `python -m tests.fuzz.kills` makes as many as you like."""

from __future__ import annotations

import pytest
from tests.fuzz.kills import kill_at_random
from tests.fuzz.works import WORKS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "work", [work for work in WORKS if work not in ("train", "sweep")]
)  # the resumed ones begin so
def test_a_kill_loses_nothing(work: str) -> None:
    outcome = kill_at_random(work, kills=1 if work.startswith(("train", "sweep")) else 2, seed=3)
    assert outcome.losses == []
