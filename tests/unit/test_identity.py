"""Fingerprints tell texts and vocabularies apart, survive alignment and files, and keep the ids of runs."""

from __future__ import annotations

import numpy as np
import pytest

from lidstone.ngram.counts import count
from lidstone.ngram.formats.safetensors import load, save
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.union import align
from lidstone.text.vocabulary import Vocabulary

VOCAB = Vocabulary(size=6, eos=0)


def test_texts_with_the_same_counts_of_counts_differ():
    one, other = count([[1, 2], [3, 4]], VOCAB, 2), count([[1, 4], [3, 2]], VOCAB, 2)
    assert one.counts[:6].tolist() == other.counts[:6].tolist()  # the same words, equally often
    assert one.fingerprint != other.fingerprint


def test_equal_ngrams_with_other_counts_differ():
    one, other = count([[1, 2], [1, 2], [3]], VOCAB, 2), count([[1, 2], [3], [3]], VOCAB, 2)
    np.testing.assert_array_equal(one.trie.words, other.trie.words)
    assert one.fingerprint != other.fingerprint


def test_what_thresholds_dropped_is_part_of_the_identity():
    frequent = [[1, 2]] * 3
    one, other = (count([*frequent, [3, last]], VOCAB, 2).drop([0, 1]) for last in (4, 5))
    assert one.trie.size == other.trie.size
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("thresholds", [None, [0, 1]])
def test_alignment_and_files_change_nothing(tmp_path, thresholds):
    counts = count([[1, 2], [1, 2], [3]], VOCAB, 2, thresholds=thresholds)
    table = AddLambda(lam=1).fit(count([[4, 5, 1]], VOCAB, 2))
    _, aligned = align(table, counts)
    assert aligned.trie.size > counts.trie.size
    save(aligned, tmp_path / "aligned")
    assert counts.fingerprint == aligned.fingerprint == load(tmp_path / "aligned").fingerprint


def test_the_unknown_word_is_part_of_a_vocabulary():
    with_unk, without = Vocabulary(size=3, eos=0, unk=1), Vocabulary(size=3, eos=0)
    assert with_unk.fingerprint != without.fingerprint
    assert with_unk.token_fingerprint == without.token_fingerprint


def test_the_hash_in_the_ids_of_runs_is_that_of_the_first_versions():
    # sha256 of '[4, 1, [], ["<unk>", "</s>", "a", "b"]]', the first 16 digits
    assert Vocabulary.from_words(["a", "b"]).token_fingerprint == "5a9f37f45d5807d5"
