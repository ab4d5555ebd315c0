"""p~ - p = Z (p+ - p-) for every smoother, every order and every kind of history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoothing_cases import (
    ORDERS,
    SMOOTHERS,
    TEXT,
    VOCAB,
    all_histories,
    corpus_positions,
    counted,
    empirical,
    fit,
    fitted,
    make_text,
    text_histories,
)

from lidstone.errors import InputError
from lidstone.loss.split import signed_split, slot_shifts, whole_history
from lidstone.ngram.counts import count

TEXTS = st.lists(st.lists(st.integers(2, 6), min_size=1, max_size=5), min_size=1, max_size=6)


def dense_parts(parts, history):
    """Z p+ and Z p- of one history over the vocabulary, from their sparse form."""
    table = parts.table
    if table.order == 1:
        return parts.plus, parts.minus
    node = whole_history(table, history)
    slots, words = parts.slots(node), table.trie.words[table.trie.children(node)]
    plus, minus = table.backoffs[node] * table.prob([history[1:]])[0], np.zeros(VOCAB.size)
    plus[words] += parts.plus[slots]
    minus[words] = parts.minus[slots]
    return plus, minus


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTHERS)
class TestEverySmoother:
    def test_the_difference_is_z_times_plus_less_minus(self, name, order):
        table = fitted(name, order)
        parts = signed_split(table, counted(order))
        for history in text_histories(order):
            plus, minus = dense_parts(parts, history)
            delta = table.prob([history])[0] - empirical(history, order)
            np.testing.assert_allclose(plus - minus, delta, atol=1e-13)
            assert plus.min() >= -1e-14
            assert minus.min() >= 0
            assert (plus * minus).max() <= 1e-14  # nowhere both

    def test_what_is_given_is_what_is_taken(self, name, order):
        parts = signed_split(fitted(name, order), counted(order))
        for history in text_histories(order):
            plus, minus = dense_parts(parts, history)
            assert plus.sum() == pytest.approx(minus.sum(), abs=1e-12)
            assert parts.z(history) == pytest.approx(minus.sum(), abs=1e-12)

    def test_mass_is_only_taken_from_words_that_were_seen(self, name, order):
        parts = signed_split(fitted(name, order), counted(order))
        for history in text_histories(order):
            _, minus = dense_parts(parts, history)
            assert (minus[empirical(history, order) == 0] == 0).all()

    def test_a_history_that_the_text_lacks_moves_nothing(self, name, order):
        parts = signed_split(fitted(name, order), counted(order))
        unseen = set(all_histories(order)) - set(text_histories(order))
        assert order == 1 or unseen
        assert all(parts.z(history) == 0 for history in unseen)

    def test_a_longer_history_counts_by_its_last_words(self, name, order):
        parts = signed_split(fitted(name, order), counted(order))
        for history in text_histories(order)[:5]:
            if len(history) == order - 1 and VOCAB.bos not in history:
                assert parts.z((2, *history)) == parts.z(history)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", ["kneser-essen-ney", "katz", "jelinek-mercer"])
def test_a_table_of_another_text_is_split_against_the_counts(name, order):
    """As with a table from an ARPA file: its n-grams are not those of the training text."""
    table = fit(name, count(make_text(sentences=30, seed=7), VOCAB, order))
    parts = signed_split(table, counted(order))
    for history in text_histories(order):
        plus, minus = dense_parts(parts, history)
        np.testing.assert_allclose(plus - minus, table.prob([history])[0] - empirical(history, order), atol=1e-13)
        assert (minus[empirical(history, order) == 0] == 0).all()


@settings(deadline=None, max_examples=40)
@given(TEXTS, TEXTS, st.integers(1, 4), st.sampled_from(SMOOTHERS))
def test_any_text_against_any_table(text, other, order, name):
    table = fit(name, count(other, VOCAB, order))
    parts = signed_split(table, count(text, VOCAB, order))
    for history in text_histories(order, text):
        plus, minus = dense_parts(parts, history)
        p = empirical(history, order, text)
        np.testing.assert_allclose(plus - minus, table.prob([history])[0] - p, atol=1e-12)
        assert parts.z(history) == pytest.approx(np.abs(table.prob([history])[0] - p).sum() / 2, abs=1e-12)


def test_the_slots_are_the_ngrams_after_whole_histories_without_gaps():
    parts = signed_split(fitted("katz", 4), counted(4))
    trie = parts.table.trie
    taken = np.concatenate([np.arange(len(parts.plus))[parts.slots(trie.find(h))] for h in text_histories(4)])
    np.testing.assert_array_equal(np.sort(taken), np.arange(len(parts.plus)))
    assert len(slot_shifts(trie)) == 4


def test_the_minus_part_is_as_small_as_the_text():
    """At order 4 the dense way would need 7^3 histories times 8 words."""
    parts = signed_split(fitted("kneser-essen-ney", 4), counted(4))
    assert len(parts.minus) == len(set(corpus_positions(4)))


def test_counts_with_thresholds_are_refused():
    pruned = count(TEXT, VOCAB, 3, thresholds=[0, 0, 1])
    with pytest.raises(InputError, match=r"thresholds \[0, 0, 1\] do not give the empirical distribution"):
        signed_split(fitted("witten-bell", 3), pruned)


def test_a_table_fitted_with_thresholds_is_split_against_whole_counts():
    table = fit("kneser-essen-ney", count(TEXT, VOCAB, 3, thresholds=[0, 0, 1]))
    parts = signed_split(table, counted(3))
    for history in text_histories(3):
        plus, minus = dense_parts(parts, history)
        np.testing.assert_allclose(plus - minus, table.prob([history])[0] - empirical(history, 3), atol=1e-13)
