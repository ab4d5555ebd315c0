"""What docs/smoothers.md says under "Conventions", each worked out by hand."""

from __future__ import annotations

import io

import numpy as np
import pytest

from lidstone.ngram.counts import count, count_text
from lidstone.ngram.smoothers.absolute_discounting import AbsoluteDiscounting
from lidstone.ngram.smoothers.katz import Katz
from lidstone.ngram.smoothers.witten_bell import WittenBell
from lidstone.text.vocabulary import Vocabulary


def test_events_are_words_the_end_and_unk_but_not_the_start():
    vocab = count_text(io.BytesIO(b"a b\n"), 2).vocab
    assert vocab.tokens == ("<unk>", "</s>", "a", "b") and vocab.event_count == 4 and vocab.bos == 4


def test_unigrams_of_witten_bell_rest_on_the_uniform():
    """a a b </s>: N = 4 tokens, T = 3 distinct; 4 events. <unk>: (0 + 3/4) / 7; a: (2 + 3/4) / 7."""
    table = WittenBell().fit(count_text(io.BytesIO(b"a a b\n"), 1))
    np.testing.assert_allclose(table.prob([()])[0], np.array([0.75, 1.75, 2.75, 1.75]) / 7)


def test_unigrams_of_absolute_discounting_give_what_is_taken_off_to_the_uniform():
    """a a b </s>, D = 1/2: three times 1/2 taken off, 1.5/4 shared by 4 events; a: 1.5/4 + 1.5/16."""
    table = AbsoluteDiscounting(discount=0.5).fit(count_text(io.BytesIO(b"a a b\n"), 1))
    np.testing.assert_allclose(table.prob([()])[0], np.array([0, 0.5, 1.5, 0.5]) / 4 + 1.5 / 16)


def test_katz_lowers_k_where_the_next_count_of_counts_is_missing():
    """Fourteen pairs of words of their own, 10 once, 3 twice, 1 three times: n_1, n_2, n_3, n_4 = 30, 9, 3, 0.

    k = 3 has d_3 = 0. k = 2: A = 3 * 3/30 = 0.3, d_1 = (2 * 9/30 - A)/(1 - A), d_2 = (3 * 3/(2 * 9) - A)/(1 - A).
    """
    pairs = [[1 + 2 * i, 2 + 2 * i] for i in range(14)]
    table = Katz(unigrams="ml").fit(count([*pairs, *pairs[10:], pairs[13]], Vocabulary(size=29, eos=0), 2))
    assert table.signature["cutoffs"] == {"2": 2}
    np.testing.assert_allclose(table.signature["ratios"]["2"], [0.3 / 0.7, 0.2 / 0.7])


def test_katz_leaves_something_after_a_history_whose_counts_are_all_above_k():
    """After 1 always 2, six times: p = 6/7, and 1/7 is for the rest."""
    vocab = Vocabulary(size=40, eos=0)
    text = [[1, 2]] * 6 + [[10 + i, 30 - i] for i in range(6)] + [[20, 4], [20, 4], [19, 5], [19, 5], [3, 3], [3, 3, 3]]
    table = Katz(k=2, unigrams="ml", fallback=0.5).fit(count(text, vocab, 2))
    row = table.prob([[1]])[0]
    assert row[2] == pytest.approx(6 / 7) and row.sum() == pytest.approx(1)
