"""Strengths over training: constant, linear, cosine."""

from __future__ import annotations

import pytest

from lidstone.errors import InputError
from lidstone.loss.schedule import CONSTANT, Schedule


def test_constant_is_the_start_all_along():
    assert [CONSTANT(t) for t in (0.0, 0.3, 1.0)] == [1.0, 1.0, 1.0]
    assert Schedule("constant", start=0.5, end=0.1)(0.7) == 0.5


def test_linear():
    assert [Schedule("linear")(t) for t in (0.0, 0.25, 0.5, 1.0)] == [1.0, 0.75, 0.5, 0.0]
    # a warm-up: 0.2 + 0.6 t
    assert Schedule("linear", start=0.2, end=0.8)(0.5) == pytest.approx(0.5)


def test_cosine():
    # (1 + cos(pi t)) / 2: at a third cos = 1/2, at two thirds -1/2
    fade = Schedule("cosine")
    assert [fade(t) for t in (0, 1 / 3, 0.5, 2 / 3, 1)] == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    assert Schedule("cosine", start=0.2, end=1.0)(1 / 3) == pytest.approx(0.2 + 0.8 * 0.25)


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_beyond_the_ends_nothing_changes(kind):
    schedule = Schedule(kind, start=0.9, end=0.3)
    assert schedule(-1) == schedule(0) == pytest.approx(0.9)
    assert schedule(7) == schedule(1)


def test_it_says_what_it_is():
    assert str(CONSTANT) == "constant"
    assert str(Schedule("cosine", start=1, end=0.25)) == "cosine 1->0.25"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "exponential"}, "unknown schedule 'exponential'. hint: choose constant, linear or cosine"),
        ({"start": 1.5}, "factors must be from 0 to 1, not 1.5 and 0.0"),
        ({"kind": "linear", "end": -0.1}, "factors must be from 0 to 1, not 1.0 and -0.1"),
        ({"start": float("nan")}, "factors must be from 0 to 1"),
    ],
)
def test_mistakes(fields, message):
    with pytest.raises(InputError, match=message):
        Schedule(**fields)
