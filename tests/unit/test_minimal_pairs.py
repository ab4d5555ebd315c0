"""Minimal pairs: reading, ties, phenomena, and the same answer as scoring each sentence by hand."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import lidstone as ld
from lidstone.errors import FileFormatError
from lidstone.hf.mixture import ngram_nll
from lidstone.lab.evaluation.minimal_pairs import MinimalPair, pair_scores, parse_pairs, summarize


def line(good, bad, term="agreement"):
    return json.dumps({"sentence_good": good, "sentence_bad": bad, "linguistics_term": term, "UID": "x"})


def test_pairs_are_read_with_their_phenomenon():
    assert parse_pairs([line("a b", "b a"), "", line("c", "d", "islands")]) == [
        MinimalPair("a b", "b a", "agreement", "x"),
        MinimalPair("c", "d", "islands", "x"),
    ]


@pytest.mark.parametrize("text", ["not json", '{"sentence_good": "a"}', "[1]"])
def test_a_line_that_is_no_pair_is_named(text):
    with pytest.raises(FileFormatError, match=r"pairs\.jsonl, line 2"):
        parse_pairs([line("a", "b"), text], "pairs.jsonl")


def test_a_file_without_pairs_is_refused():
    with pytest.raises(FileFormatError, match="no pairs"):
        parse_pairs(["", " "])


def test_good_bad_and_tied_pairs_by_hand():
    """An n-gram model of `3 4` twice and `4 3` once: p(3 4) = p(3|<s>) p(4|3) p(</s>|4) is the higher one."""
    vocab = ld.Vocabulary(size=5, eos=2, unpredictable=(0, 1))
    table = ld.AddLambda(lam=1.0).fit(ld.count([[3, 4], [3, 4], [4, 3]], vocab, order=2))

    def by_hand(sentence):  # (count + 1) / (count of the history + 3 events)
        bigrams = {(5, 3): 2, (5, 4): 1, (3, 4): 2, (4, 2): 2, (4, 3): 1, (3, 2): 1}
        words = [5, *sentence, 2]
        return -sum(np.log((bigrams.get(pair, 0) + 1) / 6) for pair in pairwise(words))

    ids = [[3, 4], [4, 3], [3, 3]]
    np.testing.assert_allclose(
        [ngram_nll(table, [np.array(sentence)]).sum() for sentence in ids], [by_hand(sentence) for sentence in ids]
    )
    good, bad = ([np.array(s) for s in side] for side in ([[3, 4], [3, 3], [4, 3]], [[4, 3], [3, 4], [4, 3]]))

    def score(sentences):
        assert len(sentences) == 3  # each distinct sentence once
        return np.array([ngram_nll(table, [sentence]).sum() for sentence in sentences])

    assert pair_scores(good, bad, score).tolist() == [1.0, 0.0, 0.5]


def test_a_summary_counts_ties_as_half():
    pairs = [MinimalPair("a", "b", name) for name in ("x", "x", "y", "y")]
    found = summarize(pairs, np.array([1.0, 0.5, 0.0, 1.0]))
    assert found["accuracy"] == 0.625
    assert found["ties"] == 1
    assert found["phenomena"] == {"x": {"accuracy": 0.75, "pairs": 2}, "y": {"accuracy": 0.5, "pairs": 2}}


@pytest.mark.parametrize("sentence", [None, ["a"], {"x": 1}, 3])
def test_sentences_are_strings(sentence):
    with pytest.raises(FileFormatError, match="not a string"):
        parse_pairs([json.dumps({"sentence_good": sentence, "sentence_bad": "b"})])


def test_a_term_that_is_null_is_no_phenomenon():
    line = json.dumps({"sentence_good": "a", "sentence_bad": "b", "linguistics_term": None, "UID": "u"})
    assert parse_pairs([line])[0].phenomenon == "u"
