"""Old public names still work and say what to write instead; recipes and runs that use them load silently."""

from __future__ import annotations

import numpy as np
import pytest

import lidstone as ld
from lidstone.ngram.smoothers.registry import get_smoother

COUNTS = ld.count([[1, 2], [1]], ld.Vocabulary(size=3, eos=0), order=2)
TABLE = ld.AddLambda(lam=1).fit(COUNTS)


def test_renamed_members_of_a_table():
    with pytest.warns(DeprecationWarning, match=r"BackoffTable.probs is now called BackoffTable.ngram_probs"):
        assert TABLE.probs is TABLE.ngram_probs
    with pytest.warns(DeprecationWarning, match="token_logprobs"):
        np.testing.assert_array_equal(TABLE.logprobs([1, 0]), TABLE.token_logprobs([1, 0]))


def test_renamed_members_of_counts():
    with pytest.warns(DeprecationWarning, match="Counts.stored"):
        assert COUNTS.full is None


def test_split_is_signed_split():
    with pytest.warns(DeprecationWarning, match="signed_split"):
        parts = ld.split(TABLE, COUNTS)
    assert parts.z([1]) == ld.signed_split(TABLE, COUNTS).z([1])


def test_the_discount_of_absolute_discounting():
    with pytest.warns(DeprecationWarning, match=r"AbsoluteDiscounting\(discount=\)"):
        old = ld.AbsoluteDiscounting(d=0.5)
    assert old == ld.AbsoluteDiscounting(discount=0.5)
    with pytest.warns(DeprecationWarning, match="AbsoluteDiscounting.discount"):
        assert old.d == 0.5


def test_a_recipe_may_still_say_d():
    assert get_smoother("absolute-discounting", d=0.5) == ld.AbsoluteDiscounting(discount=0.5)
    assert get_smoother("absolute_discounting", d=0.5) == ld.AbsoluteDiscounting(discount=0.5)


def test_both_strengths_of_label_smoothing():
    gamma = 0.25
    one, other = (ld.LabelSmoothing(gamma=gamma), ld.LabelSmoothing(epsilon=gamma / (1 + gamma)))
    np.testing.assert_allclose(one.fit(COUNTS).prob([[1]]), other.fit(COUNTS).prob([[1]]), rtol=1e-14)
    assert ld.LabelSmoothing() == ld.LabelSmoothing(gamma=0.1)
    for wrong in ({"gamma": 0.1, "epsilon": 0.1}, {"epsilon": 1.5}, {"gamma": -1.0}):
        with pytest.raises(ld.LidstoneError):
            ld.LabelSmoothing(**wrong)
