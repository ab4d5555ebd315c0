"""A short round of hostile input in every test run; `python -m tests.fuzz` makes it as long as you like."""

from __future__ import annotations

import sys

import pytest
from tests.fuzz.parsers import PARSERS
from tests.fuzz.runner import fuzz

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits on memory are those of Linux")


TRAINED = {name: pytest.param(name, marks=pytest.mark.slow) for name in ("prepared", "model")}


@pytest.mark.parametrize("parser", [TRAINED.get(name, name) for name in PARSERS])
def test_hostile_input_gets_an_answer_or_a_refusal(parser: str) -> None:
    if parser in ("tokenizer", "sentencepiece"):
        pytest.importorskip(f"{parser}s".replace("pieces", "piece"))
    result = fuzz(parser, 100, seed=20)
    assert result.findings == {}
    assert result.inputs == 100 and result.refusals > 0
