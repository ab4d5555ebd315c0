"""Some hundred updates in every test run; `python -m tests.fuzz.many_steps` makes as many as you like."""

from __future__ import annotations

from tests.fuzz.many_steps import train


def test_no_update_gives_a_number_that_is_not_finite() -> None:
    outcome = train(400)
    assert outcome.steps == 400 and outcome.not_finite == 0
    assert outcome.last_nll < outcome.first_nll
