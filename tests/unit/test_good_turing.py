"""Conditional Good-Turing, where N_0 and the counts of counts can be counted on one's fingers."""

from __future__ import annotations

import numpy as np
import pytest

from lidstone.errors import SmoothingUndefined
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.smoothers.base import FallbackUsed
from lidstone.ngram.smoothers.good_turing import GoodTuring, simple_good_turing
from lidstone.text.vocabulary import Vocabulary


def test_shorter_ngrams_after_the_start_count_too() -> None:
    """Sentences 1 2 and 1 3 at order 3, E = {eos, 1, 2, 3}. With a full history there are

    <s> 1 twice; <s> 1 2, <s> 1 3, 1 2 </s>, 1 3 </s> once: n_1 = 4, n_2 = 1; histories <s>, <s> 1, 1 2, 1 3.
    N_0 = 4*4 - 5 = 11, so an unseen word weighs 4/11.
    """
    table = GoodTuring().fit(count([[1, 2], [1, 3]], Vocabulary(size=4, eos=0), 3))
    once, twice = simple_good_turing([1, 2], [4, 1]).adjusted
    assert table.signature["unseen"] == pytest.approx(4 / 11)
    expected = np.array([4 / 11, twice, 4 / 11, 4 / 11])
    np.testing.assert_allclose(table.prob([[4]])[0], expected / expected.sum())
    expected = np.array([4 / 11, 4 / 11, once, once])
    np.testing.assert_allclose(table.prob([[4, 1]])[0], expected / expected.sum())
    np.testing.assert_allclose(table.prob([[1], [2, 1], []]), 1 / 4)  # not full, unseen, empty: uniform


def test_nothing_is_reserved_when_everything_was_seen() -> None:
    """Every event after every history: N_0 = 0. Bigrams: <s> 1 three, <s> </s> one; 1 1 one, 1 </s> three."""
    table = GoodTuring().fit(count([[1], [1, 1], [1], [0]], Vocabulary(size=2, eos=0), 2))
    once, thrice = simple_good_turing([1, 3], [2, 2]).adjusted
    assert table.signature["unseen"] == 0
    np.testing.assert_allclose(table.prob([[1]])[0], np.array([thrice, once]) / (once + thrice))
    np.testing.assert_allclose(table.prob([[0]])[0], [0.5, 0.5])


def test_the_fallback_is_the_other_smoother() -> None:
    counts = count([[1, 2]], Vocabulary(size=4, eos=0), 2)
    with pytest.raises(SmoothingUndefined, match=r"order 2: .* counts of counts are \{1: 3\}"):
        GoodTuring().fit(counts)
    with pytest.warns(FallbackUsed, match="good-turing uses its fallback add-lambda for order 2"):
        table = GoodTuring(fallback="add-lambda").fit(counts)
    np.testing.assert_array_equal(table.prob([[1], [3]]), AddLambda().fit(counts).prob([[1], [3]]))
    assert table.signature["smoother"] == "good-turing" and table.signature["fallback_orders"] == [2]
