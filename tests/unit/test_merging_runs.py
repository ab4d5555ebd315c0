"""Merging runs against a dictionary of n-grams, with few and many runs, empty ones, and words that come late."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.ngram.counts import count
from lidstone.ngram.disk.merge import merge
from lidstone.ngram.disk.pieces import Piece, piece_of, whole
from lidstone.text.vocabulary import Vocabulary

SENTENCES = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=7), min_size=1, max_size=6)


def run_of(sentences: list[list[int]], size: int, order: int) -> Piece:
    counts = count(sentences, Vocabulary(size=size, eos=0), order=order)
    return piece_of(counts.trie, counts.counts)


def ngrams_of(piece: Piece, bos: int, own_bos: int) -> Counter[tuple[int, ...]]:
    """All n-grams of a piece, read off its arrays one by one."""
    found: Counter[tuple[int, ...]] = Counter()

    def walk(node: int, prefix: tuple[int, ...]) -> None:
        found[prefix] = int(piece.counts[node])
        if node + 1 < len(piece.first):
            for child in range(piece.first[node] - piece.base, piece.first[node + 1] - piece.base):
                walk(child, (*prefix, int(piece.words[child])))

    for node, head in enumerate(piece.heads.tolist()):
        walk(node, (bos if head == own_bos else head, int(piece.words[node])))
    return found


@given(st.lists(SENTENCES, min_size=1, max_size=40), st.integers(2, 5))
@settings(max_examples=60, deadline=None)
def test_the_sum_of_runs_has_every_ngram_with_the_sum_of_its_counts(texts: list[list[list[int]]], order: int) -> None:
    sizes = [7 + number for number in range(len(texts))]  # the vocabulary, and so <s>, grows from run to run
    runs = [run_of(text, size, order) for text, size in zip(texts, sizes, strict=True)]
    merged = merge([whole(run, size) for run, size in zip(runs, sizes, strict=True)], order, sizes[-1])
    expected: Counter[tuple[int, ...]] = Counter()
    for run, size in zip(runs, sizes, strict=True):
        expected.update(ngrams_of(run, sizes[-1], size))
    assert ngrams_of(merged, sizes[-1], sizes[-1]) == expected
    keys = list(zip(merged.heads.tolist(), merged.words[merged.level(2)].tolist(), strict=True))
    assert keys == sorted(set(keys))


def test_long_lists_of_many_runs_are_merged_in_order() -> None:
    rng = np.random.default_rng(1)
    texts = [[[1, int(word)] for word in rng.integers(2, 500, 300)] for _ in range(9)]
    runs = [run_of(text, 500, 3) for text in texts]
    together = run_of([sentence for text in texts for sentence in text], 500, 3)
    merged = merge([whole(run, 500) for run in runs], 3, 500)
    for name in ("levels", "heads", "words", "counts"):
        assert getattr(merged, name).tolist() == getattr(together, name).tolist()
    assert merged.first.tolist() == (together.first - together.base).tolist()
