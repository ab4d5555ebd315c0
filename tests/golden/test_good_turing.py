"""Simple Good-Turing on the two samples that Gale & Sampson publish with their results (1995; Sampson 2001, ch. 7)."""

from __future__ import annotations

import numpy as np
import pytest

from lidstone.errors import SmoothingUndefined
from lidstone.ngram.smoothers.good_turing import simple_good_turing

# frequency r and how many types have it, n_r
PROSODY = """
1 120  2 40  3 24  4 13  5 15  6 5  7 11  8 2  9 2  10 1  12 3  14 2  15 1  16 1  17 3  19 1  20 3  21 2  23 3  24 3
25 3  26 2  27 2  28 1  31 2  32 2  33 1  34 2  36 2  41 3  43 1  45 3  46 1  47 1  50 1  71 1  84 1  101 1  105 1
121 1  124 1  146 1  162 1  193 1  199 1  224 1  226 1  254 1  257 1  339 1  421 1  456 1  481 1  483 1  1140 1  1256 1
1322 1  1530 1  2131 1  2395 1  6925 1  7846 1
"""
CHINESE_PLURALS = """
1 268  2 112  3 70  4 41  5 24  6 14  7 15  8 14  9 8  10 11  11 9  12 6  13 6  14 3  15 7  16 9  17 4  18 4  19 8  20 2
21 4  22 2  23 2  24 3  25 4  26 4  27 4  28 1  29 1  31 2  33 1  39 3  41 1  46 1  47 1  50 1  52 2  53 1  55 1  57 1
60 1  74 1  84 1  108 1  109 1  177 1  400 1  1918 1
"""


def sample(table: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(table.split(), int).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@pytest.mark.parametrize(
    ("table", "total", "unseen", "adjusted"),
    [
        (PROSODY, 30902, 0.003883244, (0.7628079, 1.706448, 2.679796)),
        (CHINESE_PLURALS, 6551, 0.04090978, (0.8414893, 1.887716, 2.288452)),
    ],
    ids=["prosody", "chinese plurals"],
)
def test_published_values(table: str, total: int, unseen: float, adjusted: tuple[float, ...]) -> None:
    r, n = sample(table)
    found = simple_good_turing(r, n)
    assert found.total == total
    assert found.unseen == pytest.approx(unseen, rel=1e-6)
    assert found.adjusted[:3] == pytest.approx(adjusted, rel=1e-6)
    # The mass of all that was seen is what P_0 leaves.
    assert found.adjusted @ n / total == pytest.approx(1 - found.unseen, rel=1e-12)


def test_the_confidence_decides_where_the_line_takes_over() -> None:
    """The published plurals fit 1.65: r = 2 is then Turing's 3*70/112. With 1.96 it would come from the line."""
    usual, wider = (simple_good_turing(*sample(CHINESE_PLURALS), confidence=c) for c in (1.65, 1.96))
    assert (usual.switch, wider.switch) == (3, 2)
    assert usual.adjusted[1] / usual.adjusted[0] == pytest.approx((3 * 70 / 112) / (2 * 112 / 268))
    assert wider.adjusted[1] == pytest.approx(1.374675, rel=1e-6)


def test_the_line_serves_the_prosody_from_the_start() -> None:
    found = simple_good_turing(*sample(PROSODY))
    assert found.switch == 1
    assert found.slope == pytest.approx(-1.389374, rel=1e-6)


@pytest.mark.parametrize("wrong", [([], []), ([1], [5]), ([2, 1], [3, 4]), ([1, 2], [3, 0]), ([0, 1], [3, 4])])
def test_what_is_no_table(wrong: tuple[list[int], list[int]]) -> None:
    with pytest.raises(SmoothingUndefined, match="two or more ascending frequencies"):
        simple_good_turing(*wrong)
