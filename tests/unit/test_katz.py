"""Katz: ratios, back-off weights and the three rules for what the definition leaves open, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lidstone.errors import InputError, SmoothingUndefined
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.base import FallbackUsed
from lidstone.ngram.smoothers.katz import Katz, discount_ratios
from lidstone.text.vocabulary import Vocabulary

# Bigrams: 1 3 three times; <s> 1 and 1 1 twice; 3 1, 3 </s>, 3 2, 2 1, 1 </s> once. So with k = 2
# A = 3*1/5 = .6,  d_1 = (2*2/5 - .6)/.4 = .5,  d_2 = (3*1/2/2 - .6)/.4 = .375
TEXT = [[1, 1, 3, 1, 3], [1, 1, 3, 2, 1]]


def test_by_hand() -> None:
    """After 1 (six times): 3 three times, 1 twice, eos once. All events are seen, so the unigrams are plain: c / 12.

    p(3|1) = 3/6, p(1|1) = .375*2/6, p(eos|1) = .5/6; the rest, 7/24, is left to 2 alone: alpha = (7/24) / (1/12) = 3.5.
    """
    counts = count(TEXT, Vocabulary(size=4, eos=0), 2)
    table = Katz(k=2).fit(counts)
    assert table.signature["cutoffs"] == {"2": 2} and table.signature["ratios"]["2"] == pytest.approx([0.5, 0.375])
    np.testing.assert_allclose(table.base, np.array([2, 6, 1, 3]) / 12)
    np.testing.assert_allclose(table.prob([[1]])[0], [0.5 / 6, 0.75 / 6, 7 / 24, 3 / 6])
    assert table.backoffs[1] == pytest.approx(3.5)


def test_ratios_are_chen_and_goodman_s() -> None:
    """n = 100, 40, 20, 12, 8, 5 and k = 5: A = 6*5/100 = .3; d_r = ((r+1) n_{r+1} / (r n_r) - .3) / .7."""
    found = discount_ratios(np.array([0, 100, 40, 20, 12, 8, 5]), 5)
    expected = [(0.8 - 0.3), (0.75 - 0.3), (0.8 - 0.3), (5 / 6 - 0.3), (0.75 - 0.3)]
    assert found == pytest.approx(np.array(expected) / 0.7)


@pytest.mark.parametrize(
    ("histogram", "k"),
    [
        ([0, 100, 40, 20, 12, 8], 5),  # n_6 = 0, so d_5 = 0
        ([0, 100, 0, 20, 12], 3),  # n_2 = 0
        ([0, 0, 40, 20], 2),  # n_1 = 0
        ([0, 10, 40, 20], 2),  # A = 3*20/10 > 1
        ([0, 100, 40, 90], 2),  # A > 1
        ([0, 100, 60, 20], 2),  # r*/r = 1.2: d_1 > 1
        ([0, 100, 40], 1),  # d_1 = 0 by definition
        ([0], 5),
    ],
)
def test_ratios_that_are_none(histogram: list[int], k: int) -> None:
    assert discount_ratios(np.array(histogram), k) is None


def test_an_irregular_order_uses_a_smaller_k() -> None:
    """In TEXT n_4 = 0, so that neither 5, 4 nor 3 will do."""
    table = Katz(k=5).fit(count(TEXT, Vocabulary(size=4, eos=0), 2))
    assert table.signature["cutoffs"] == {"2": 2}


def test_an_order_without_any_k_is_undefined() -> None:
    counts = count([[1, 2]], Vocabulary(size=3, eos=0), 2)
    with pytest.raises(SmoothingUndefined, match=r"katz is undefined for order 2: no k from 2 to 5 .* \[3\]") as caught:
        Katz().fit(counts)
    assert caught.value.hint == "use more text, or fallback=0.5"
    with pytest.warns(FallbackUsed, match=r"katz uses its fallback 0.5 for order 2"):
        table = Katz(fallback=0.5).fit(counts)
    # After 1 only 2, once: (1 - .5)/1; the other half goes to 0 and 1, which are equally frequent.
    np.testing.assert_allclose(table.prob([[1]])[0], [0.25, 0.25, 0.5])


def test_unigrams_without_a_k_can_be_plain() -> None:
    counts = count([[1, 1, 2, 2]], Vocabulary(size=4, eos=0), 1)  # 3 never occurs; n_1 = 1, n_2 = 2
    with pytest.raises(SmoothingUndefined) as caught:
        Katz().fit(counts)
    assert "unigrams='ml'" in caught.value.hint
    np.testing.assert_allclose(Katz(unigrams="ml").fit(counts).base, [0.2, 0.4, 0.4, 0])


def test_unseen_words_share_what_the_unigrams_leave() -> None:
    """n_1 = 5 (with eos), n_2 = 2, n_3 = 1: d_1 = .5, d_2 = .375; of 12 tokens; 8 and 9 never occur."""
    text = [[1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7]]
    table = Katz(k=2).fit(count(text, Vocabulary(size=10, eos=0), 1))
    left = 12 - (3 + 2 * 0.375 * 2 + 5 * 0.5)
    expected = np.array([0.5, 3, 0.75, 0.75, 0.5, 0.5, 0.5, 0.5, left / 2, left / 2]) / 12
    np.testing.assert_allclose(table.base, expected)


def test_a_history_with_nothing_to_give_counts_one_more() -> None:
    """After 1 comes 2 twenty times: more than k, so undiscounted. Its total counts as 21."""
    counts = count([*[[1, 2]] * 20, *TEXT], Vocabulary(size=6, eos=0), 2)
    only_2 = count([[1, 2]] * 20, Vocabulary(size=3, eos=0), 2)
    with pytest.warns(FallbackUsed):
        table = Katz(fallback=0.5).fit(only_2)
    np.testing.assert_allclose(table.prob([[1]])[0], [1 / 42, 1 / 42, 20 / 21])
    with pytest.warns(FallbackUsed):
        assert (Katz(fallback=0.5).fit(counts).prob([[1]])[0] > 0).all()


def test_a_history_with_nobody_to_give_to_is_not_discounted() -> None:
    """After 1 comes every event: 1 twice, eos twice."""
    with pytest.warns(FallbackUsed):
        table = Katz(fallback=0.5).fit(count([[1, 1], [1, 1]], Vocabulary(size=2, eos=0), 2))
    np.testing.assert_allclose(table.prob([[1]])[0], [0.5, 0.5])
    assert table.backoffs[1] == 0


@pytest.mark.parametrize("fields", [{"k": 1}, {"k": 0}, {"unigrams": "smooth"}, {"fallback": 1.5}])
def test_wrong_settings(fields: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Katz(**fields)  # type: ignore[arg-type]
