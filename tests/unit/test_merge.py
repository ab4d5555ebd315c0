"""A table and counts of different texts on one trie mean what they meant before."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoothing_cases import FALLBACKS, SMOOTHERS

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
from lidstone.ngram.smoothers.registry import get_smoother
from lidstone.ngram.union import align, union
from lidstone.text.vocabulary import Vocabulary

VOCAB = Vocabulary(size=4, eos=0)
TEXTS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=5), min_size=1, max_size=6)
HISTORIES = [h for length in range(4) for h in itertools.product(range(1, 5), repeat=length) if 4 not in h[1:]]


def ngrams(trie):
    return {trie.ngram(node) for node in range(trie.size)}


def fit(text, order):
    return KneserEssenNey(discount=0.75).fit(count(text, VOCAB, order))


@settings(deadline=None)  # the first example compiles
@given(TEXTS, TEXTS, st.integers(1, 4))
def test_the_distribution_and_the_counts_stay_the_same(text, other, order):
    table, counts = fit(text, order), count(other, VOCAB, order)
    moved, moved_counts = align(table, counts)
    assert moved.trie is moved_counts.trie
    np.testing.assert_allclose(moved.prob(HISTORIES), table.prob(HISTORIES), rtol=1e-15, atol=0)
    for ngram in ngrams(moved.trie):
        assert moved_counts.of(ngram) == counts.of(ngram)


@settings(deadline=None)  # the first example compiles
@given(TEXTS, TEXTS, st.integers(1, 4))
def test_the_union_holds_the_ngrams_of_both_and_is_closed(text, other, order):
    one, two = count(text, VOCAB, order).trie, count(other, VOCAB, order).trie
    merged, of_one, of_two = union(one, two)
    everything = ngrams(merged)
    assert everything == ngrams(one) | ngrams(two)
    for trie, nodes in ((one, of_one), (two, of_two)):
        assert [merged.ngram(node) for node in nodes] == [trie.ngram(node) for node in range(trie.size)]
    for node in range(5, merged.size):
        ngram = merged.ngram(node)
        assert ngram[:-1] in everything
        assert merged.ngram(merged.suffixes[node]) == ngram[1:]
        assert merged.find(ngram) == node


@settings(deadline=None)  # the first example compiles
@given(TEXTS, TEXTS)
def test_what_smoothers_derive_from_counts_is_untouched(text, other):
    counts = count(other, VOCAB, 3)
    moved = align(fit(text, 3), counts)[1]
    for adjusted, order in itertools.product((False, True), (1, 2, 3)):
        before = counts.counts_of_counts(order, adjusted=adjusted)
        np.testing.assert_array_equal(moved.counts_of_counts(order, adjusted=adjusted), before)


@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.filterwarnings("ignore::lidstone.ngram.smoothers.base.FallbackUsed")
@settings(deadline=None, max_examples=30)
@given(text=TEXTS, other=TEXTS, order=st.integers(1, 4))
def test_every_smoother_makes_the_same_of_the_counts(name, text, other, order):
    counts = count(other, VOCAB, order)
    smoother = get_smoother(name, **FALLBACKS.get(name, {}))
    again = smoother.fit(align(fit(text, order), counts)[1])
    np.testing.assert_allclose(again.prob(HISTORIES), smoother.fit(counts).prob(HISTORIES), rtol=1e-12, atol=1e-14)


def test_thresholds_survive():
    counts = count([[1, 2], [1, 2], [3]], VOCAB, 2, thresholds=[0, 1])
    moved = align(fit([[2, 3]], 2), counts)[1]
    assert moved.thresholds == (0, 1)
    # <s> was followed three times, though "<s> 3" was dropped
    assert moved.totals[VOCAB.bos] == counts.totals[VOCAB.bos] == 3


def test_one_trie_is_left_alone():
    counts = count([[1, 2]], VOCAB, 2)
    table = KneserEssenNey(discount=0.5).fit(counts)
    assert align(table, counts) == (table, counts)


def test_equal_tries_become_one_without_copies():
    table, counts = fit([[1, 2]], 2), count([[1, 2], [1, 2]], VOCAB, 2)
    moved, same = align(table, counts)
    assert same is counts
    assert moved.trie is counts.trie
    assert moved.rows is table.rows


def test_orders_must_agree():
    with pytest.raises(InputError, match="order 2, the counts have order 3"):
        align(fit([[1, 2]], 2), count([[1, 2]], VOCAB, 3))


def test_vocabularies_must_agree():
    with pytest.raises(VocabularyMismatch):
        align(fit([[1, 2]], 2), count([[1, 2]], Vocabulary(size=5, eos=0), 2))
