"""Counting, against `collections.Counter`: any stream, any order, any kind of input; thresholds; and bad input."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.errors import InputError
from lidstone.ngram.count import count_stream
from lidstone.ngram.counts import Counts, count
from lidstone.ngram.union import same_ngrams
from lidstone.text.history import sentence_stream
from lidstone.text.vocabulary import Vocabulary

VOCAB = Vocabulary(size=6, eos=0, unpredictable=(5,))
STREAMS = st.lists(st.integers(0, 5), min_size=1, max_size=40).filter(lambda ids: set(ids) != {5})
SENTENCES = [[1, 2, 3], [2, 2], [3], [1, 2, 3, 1, 2, 4]]


def runs(ids: Iterable[int], vocab: Vocabulary) -> list[list[int]]:
    """The sentences of a stream, each after its `<s>`; one begins where eos, padding or nothing stands before."""
    found: list[list[int]] = []
    before = vocab.bos
    for word in ids:
        if word not in vocab.unpredictable:
            if before in (vocab.bos, vocab.eos, *vocab.unpredictable):
                found.append([vocab.bos])
            found[-1].append(word)
        before = word
    return found


def brute_force(ids: Iterable[int], vocab: Vocabulary, order: int) -> Counter[tuple[int, ...]]:
    sentences = runs(ids, vocab)
    return Counter(tuple(s[i : i + n]) for s in sentences for n in range(1, order + 1) for i in range(len(s) - n + 1))


def as_counter(counts: Counts) -> Counter[tuple[int, ...]]:
    """n-gram -> count; the words of the vocabulary that do not occur left out."""
    return +Counter({counts.trie.ngram(node): int(counts.counts[node]) for node in range(counts.trie.size)})


def closed(sentences: Sequence[Sequence[int]]) -> list[int]:
    return [word for sentence in sentences for word in (*sentence, 0)]


@given(ids=STREAMS, order=st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_a_stream_with_eos_and_padding_anywhere(ids: list[int], order: int) -> None:
    assert as_counter(count(np.array(ids), VOCAB, order)) == brute_force(ids, VOCAB, order)


@given(ids=STREAMS, order=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_the_trie_is_sorted_closed_and_linked(ids: list[int], order: int) -> None:
    trie = count(np.array(ids), VOCAB, order).trie
    ngrams = [trie.ngram(node) for node in range(trie.size)]
    assert trie.order == order and trie.levels[1] == VOCAB.size + 1
    for k in range(1, order + 1):
        level = ngrams[trie.level(k)]
        assert level == sorted(level) and all(len(ngram) == k for ngram in level)
        assert all(ngrams[node][0] == VOCAB.bos for node in range(*trie.sentence_starts(k).indices(trie.size)))
    for node, ngram in enumerate(ngrams):
        assert trie.find(ngram) == node
        if len(ngram) > 1:
            assert ngrams[trie.suffixes[node]] == ngram[1:] and ngrams[trie.parents[node]] == ngram[:-1]
        assert all(ngrams[child][:-1] == ngram for child in range(*trie.children(node).indices(trie.size)))


@given(ids=STREAMS, order=st.integers(1, 6), threads=st.integers(2, 5), closed_by_eos=st.booleans())
@settings(max_examples=150, deadline=None)
def test_threads_make_no_difference(ids: list[int], order: int, threads: int, closed_by_eos: bool) -> None:
    stream = sentence_stream(np.array([*ids, 0] if closed_by_eos else ids, np.int32), VOCAB)
    trie, counts = count_stream(stream.copy(), VOCAB.size, order, eos=VOCAB.eos, threads=1)
    other, same = count_stream(stream.copy(), VOCAB.size, order, eos=VOCAB.eos, threads=threads)
    assert counts.tolist() == same.tolist() and trie.suffixes.tolist() == other.suffixes.tolist()
    assert same_ngrams(trie, other)


def test_an_ngram_that_is_not_there() -> None:
    trie = count(SENTENCES, VOCAB, 3).trie
    assert [trie.find(ngram) for ngram in ([], [4, 4], [9], [-1], [1, 2, 3, 1])] == [-1] * 5
    assert count(SENTENCES, VOCAB, 3).of([4, 4]) == 0


KINDS: dict[str, object] = {
    "lists": SENTENCES,
    "tuples": tuple(map(tuple, SENTENCES)),
    "arrays": [np.array(sentence, np.int64) for sentence in SENTENCES],
    "small integers": [np.array(sentence, np.uint8) for sentence in SENTENCES],
    "a generator": (sentence for sentence in SENTENCES),
    "closed already": [[*sentence, 0] for sentence in SENTENCES],
    "empty ones among them": [[], *SENTENCES, []],
    "eos inside": [[1, 2, 3, 0, 2, 2], [3, 0, 1, 2, 3, 1, 2, 4]],
    "padding after the end": [[*sentence, 0, 5, 5] for sentence in SENTENCES],
    "padding instead of the end": [[*sentence, 5, 5] for sentence in SENTENCES],
    "padding before the start": [[5, 5, *sentence] for sentence in SENTENCES],
    "nothing but padding among them": [[5, 5], *SENTENCES],
    "eos as bos and as padding": [[0, *sentence, 0, 0] for sentence in SENTENCES],
    "a padded matrix": np.array([[*sentence, 0, *[5] * 6][:7] for sentence in SENTENCES]),
    "one packed stream": np.array(closed(SENTENCES)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_input(kind: str) -> None:
    found = count(KINDS[kind], VOCAB, 3)  # type: ignore[arg-type]
    assert as_counter(found) == brute_force(closed(SENTENCES), VOCAB, 3)


def test_a_column_of_a_dataset() -> None:
    datasets = pytest.importorskip("datasets")
    column = datasets.Dataset.from_dict({"input_ids": SENTENCES})["input_ids"]
    assert as_counter(count(column, VOCAB, 3)) == brute_force(closed(SENTENCES), VOCAB, 3)


def test_blocks_of_a_packed_stream_are_not_closed() -> None:
    """`1 2 | 3 0 2` with eos 0 only where it stands: the sentences are 1 2 3 </s> and the open 2."""
    found = count([[1, 2], [3, 0, 2]], VOCAB, 2, append_eos=False)
    assert as_counter(found) == brute_force([1, 2, 3, 0, 2], VOCAB, 2)
    assert found.of([2, 3]) == 1 and found.of([2, 0]) == 0


def test_sizes() -> None:
    counts = count([[1, 2], [1]], VOCAB, 2)
    assert (counts.order, counts.tokens, counts.of([VOCAB.bos])) == (2, 5, 2)
    assert counts.totals[[0, 1, 2, VOCAB.bos]].tolist() == [0, 2, 1, 2]  # eos is followed by nothing


@given(ids=STREAMS, order=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_derived_counts(ids: list[int], order: int) -> None:
    """Totals, Kneser-Ney's adjusted counts and both counts of counts, from the definitions."""
    counts, plain = count(np.array(ids), VOCAB, order), brute_force(ids, VOCAB, order)
    before: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for ngram in plain:
        before[ngram[1:]].add(ngram[0])
    adjusted = {
        ngram: plain[ngram] if len(ngram) == order or ngram[0] == VOCAB.bos else len(before[ngram])
        for ngram in plain
        if ngram != (VOCAB.bos,)
    }
    for node in range(counts.trie.num_histories):
        history = counts.trie.ngram(node)
        assert counts.totals[node] == sum(n for ngram, n in plain.items() if ngram[:-1] == history and history)
    for ngram, expected in adjusted.items():
        assert counts.derived.adjusted[counts.trie.find(ngram)] == expected
    for k in range(1, order + 1):
        for table, is_adjusted in ((plain, False), (adjusted, True)):
            rs = Counter(n for ngram, n in table.items() if len(ngram) == k and ngram != (VOCAB.bos,))
            found = counts.counts_of_counts(k, adjusted=is_adjusted)
            assert {r: int(n) for r, n in enumerate(found) if r and n} == rs


@given(ids=STREAMS, limits=st.lists(st.integers(0, 3), min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_thresholds(ids: list[int], limits: list[int]) -> None:
    """Rare n-grams go, words stay; what is derived is still that of the whole text."""
    thresholds = [0, *sorted(limits)]
    order = len(thresholds)
    whole, kept = count(np.array(ids), VOCAB, order), count(np.array(ids), VOCAB, order, thresholds=thresholds)
    expected = {g: n for g, n in as_counter(whole).items() if n > thresholds[len(g) - 1]}
    assert as_counter(kept) == expected
    assert kept.thresholds == tuple(thresholds) or not any(thresholds)
    for ngram in expected:
        node, old = kept.trie.find(ngram), whole.trie.find(ngram)
        assert kept.derived.adjusted[node] == whole.derived.adjusted[old]
        if len(ngram) < order:
            assert kept.totals[node] == whole.totals[old]
        if len(ngram) > 1:
            assert kept.trie.ngram(kept.trie.suffixes[node]) == ngram[1:]
    for k in range(1, order + 1):
        assert kept.counts_of_counts(k).tolist() == whole.counts_of_counts(k).tolist()


def test_one_threshold_serves_the_orders_above() -> None:
    assert count(SENTENCES, VOCAB, 4, thresholds=[0, 1]).thresholds == (0, 1, 1, 1)


def test_fingerprints_tell_texts_vocabularies_and_thresholds_apart() -> None:
    larger = Vocabulary(size=7, eos=0, unpredictable=(5,))
    different = [
        count(SENTENCES, VOCAB, 2),
        count(SENTENCES, VOCAB, 3),
        count(SENTENCES[:-1], VOCAB, 2),
        count(SENTENCES, larger, 2),
        count(SENTENCES, VOCAB, 2, thresholds=[0, 1]),
    ]
    assert len({counts.fingerprint for counts in different}) == len(different)
    assert count(SENTENCES, VOCAB, 2).fingerprint == different[0].fingerprint


@pytest.mark.parametrize(
    ("sentences", "order", "message"),
    [
        (SENTENCES, 0, "order must be from 1 to 8, not 0"),
        (SENTENCES, 9, "order must be from 1 to 8, not 9"),
        ([], 2, "nothing to count"),
        ([[], []], 2, "nothing to count"),
        ([[5, 5]], 2, "nothing to count"),
        ([[1, 6]], 2, "id 6 .* is outside the vocabulary of 6 ids"),
        ([[1, -1]], 2, "id -1"),
        ([[1, 2**40]], 2, f"id {2**40}"),
        ([[1.0, 2.0]], 2, "sequence of ids, not float64"),
        (["a b"], 2, "a row is text: 'a b'"),
        ([["a", "b"]], 2, "sequence of ids, not <U1"),
        ([[[1, 2]]], 2, r"shape \(1, 2\)"),
        (np.array([1.5, 2.0]), 2, "whole numbers, not float64"),
        (np.array([1, 77]), 2, "id 77 at position 1"),
    ],
)
def test_bad_input(sentences: object, order: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        count(sentences, VOCAB, order)  # type: ignore[arg-type]


@pytest.mark.parametrize("thresholds", [[1], [0, 2, 1], [0, 0, 0, 0], [0, -1]])
def test_bad_thresholds(thresholds: list[int]) -> None:
    with pytest.raises(InputError, match="do not fit order 3"):
        count(SENTENCES, VOCAB, 3, thresholds=thresholds)


def test_more_ngrams_than_can_be_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lidstone.ngram.count.MAX_NODES", 20)
    vocab = Vocabulary(size=4, eos=0)
    assert count([[1, 2, 3, 1]], vocab, order=3).tokens == 5
    with pytest.raises(InputError, match="6 tokens may have more n-grams of 4 orders than fit at once, 20"):
        count([[1, 2, 3, 1]], vocab, order=4)


def test_a_negative_count_is_refused() -> None:
    counts = count([[1, 2, 3, 1]], Vocabulary(size=4, eos=0), order=2)
    counts.counts[-1] = -1
    with pytest.raises(InputError, match="a count is negative"):
        _ = counts.derived


def test_huge_counts_need_no_huge_arrays(tmp_path) -> None:
    """A count of 2^31 - 1, as in a text of 10^10 words, or in a forged file."""
    from lidstone.ngram.formats.safetensors import load, save
    from lidstone.ngram.smoothers.registry import get_smoother

    small = count([[1, 1, 2], [1, 3], [1, 1], [1]], Vocabulary(size=5, eos=0), 1)
    values = small.counts.copy()
    values[1] = 2**31 - 1
    save(dataclasses.replace(small, counts=values), tmp_path / "huge")
    counts = load(tmp_path / "huge")
    assert len(counts.counts_of_counts(1)) == 2**20 + 1
    assert counts.counts_of_counts(1)[[1, 4, 2**20]].tolist() == [2, 1, 1]
    table = get_smoother("good-turing").fit(counts)
    assert table.prob([()])[0].sum() == pytest.approx(1, abs=1e-12)
    assert table.base[1] > 0.999
