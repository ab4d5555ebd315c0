"""Suffix links of a finished trie: both ways against the kernel that counts, and against damage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.ngram.counts import count
from lidstone.ngram.disk.links import link, link_to_pairs
from lidstone.text.vocabulary import Vocabulary

SENTENCES = st.lists(st.lists(st.integers(1, 6), max_size=8), min_size=1, max_size=40).filter(any)


def trie_of(sentences, order=3):
    return count(sentences, Vocabulary(size=7, eos=0), order=order, append_eos=True).trie


def links_of_children(trie, parents, way):
    found = np.full(int(trie.first[parents.stop]) - int(trie.first[parents.start]), -5, trie.suffixes.dtype)
    if way is link_to_pairs:
        return link_to_pairs(trie.first, trie.words, parents, found), found
    return link(trie.first, trie.words, trie.suffixes[parents.start : parents.stop], parents, found), found


@given(sentences=SENTENCES, ends=st.tuples(st.floats(0, 1), st.floats(0, 1)), order=st.integers(3, 5))
@settings(deadline=None)
def test_children_of_any_parents_get_the_links_of_counting(sentences, ends, order):
    trie = trie_of(sentences, order)
    for parent_order in range(2, order):
        low, high = trie.levels[parent_order - 1], trie.levels[parent_order]
        start, stop = sorted(low + round(end * (high - low)) for end in ends)
        same = trie.suffixes[trie.first[start] : trie.first[stop]]
        for way in [link, link_to_pairs] if parent_order == 2 else [link]:
            whole, found = links_of_children(trie, range(start, stop), way)
            assert whole and found.tolist() == same.tolist()


@pytest.mark.parametrize("word", [-1, 5, 8, 1 << 30])
@pytest.mark.parametrize("order", [2, 3])
def test_n_grams_that_form_no_trie_are_noticed(order, word):
    trie = trie_of([[1, 2, 3], [2, 3, 4], [1, 2, 4]])
    damaged = trie.words.copy()
    damaged[trie.levels[order - 1] :] = word
    pairs = range(int(trie.levels[1]), int(trie.levels[2]))
    found = np.empty(int(trie.levels[3] - trie.levels[2]), trie.suffixes.dtype)
    assert not link_to_pairs(trie.first, damaged, pairs, found)
