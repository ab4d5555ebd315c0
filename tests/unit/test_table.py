"""A table worked out by hand: looking up, scoring, perplexity, sampling, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary

VOCAB = Vocabulary(size=5, eos=0, unpredictable=(4,), unk=3)
TEXT = [[1, 2], [1], [1, 2, 2]]


@pytest.fixture(scope="module")
def table() -> BackoffTable:
    """Half the trigrams, half of the rest the bigrams, and so on down to the uniform over 0, 1, 2, 3."""
    return JelinekMercer(weights=0.5).fit(count(TEXT, VOCAB, 3))


def test_prob_by_hand(table: BackoffTable) -> None:
    """Unigrams: eos 3, `1` 3, `2` 3 of 9. After 1: eos 1, `2` 2 of 3. After `<s> 1`: the same."""
    base = np.array([1 / 6 + 1 / 8, 1 / 6 + 1 / 8, 1 / 6 + 1 / 8, 1 / 8, 0])
    after_1 = np.array([1 / 6, 0, 1 / 3, 0, 0]) + base / 2
    after_start_1 = np.array([1 / 6, 0, 1 / 3, 0, 0]) + after_1 / 2
    found = table.prob([(), [1], [VOCAB.bos, 1]])
    np.testing.assert_allclose(found, [base, after_1, after_start_1], rtol=1e-14)


def test_unknown_parts_of_a_history_are_passed_over(table: BackoffTable) -> None:
    known, unseen, too_long, padded, after_eos = table.prob([[1], [3, 1], [2, 2, 2, 3, 1], [4, 1], [0]])
    for other in (unseen, too_long, padded):
        np.testing.assert_array_equal(other, known)
    np.testing.assert_array_equal(after_eos, table.prob([()])[0])


def test_a_history_begins_with_the_last_sentence_start(table: BackoffTable) -> None:
    expected, found = table.prob([[VOCAB.bos], [1, VOCAB.bos]])
    np.testing.assert_array_equal(found, expected)


def test_logprob(table: BackoffTable) -> None:
    words, histories = [0, 2, 3, 4], [[1], [VOCAB.bos, 1], (), [1]]
    expected = [table.prob([history])[0][word] for word, history in zip(words, histories, strict=True)]
    assert table.logprob(words[:3], histories[:3]) == pytest.approx(np.log(expected[:3]))
    assert table.logprob([4], [[1]])[0] == -math.inf


def test_no_histories(table: BackoffTable) -> None:
    assert table.prob([]).shape == (0, VOCAB.size)
    assert table.logprob([], []).shape == (0,)


def test_logprobs_of_a_stream_are_those_of_its_histories(table: BackoffTable) -> None:
    """Sentences 1 2 </s> and 3 1 </s>; the padding between them gets no entry."""
    bos = VOCAB.bos
    found = table.token_logprobs([1, 2, 0, 4, 3, 1, 0])
    histories = [[bos], [bos, 1], [1, 2], [bos], [bos, 3], [3, 1]]
    assert found == pytest.approx(table.logprob([1, 2, 0, 3, 1, 0], histories))


def test_a_long_stream_scores_alike_in_parallel(table: BackoffTable) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 4, 250_000)
    ids[-1] = 0
    parts = [table.token_logprobs(part) for part in np.split(ids, np.flatnonzero(ids == 0)[:500] + 1)]
    np.testing.assert_array_equal(table.token_logprobs(ids), np.concatenate(parts))


def test_perplexity_says_what_it_counts(table: BackoffTable) -> None:
    found = table.perplexity([[1, 3], [2]])
    bos = VOCAB.bos
    expected = table.logprob([1, 3, 0, 2, 0], [[bos], [bos, 1], [1, 3], [bos], [bos, 2]])
    assert found.value == pytest.approx(math.exp(-expected.mean()))
    assert (found.tokens, found.oov, found.vocabulary) == (5, 1, 4)
    assert found.signature == table.signature
    assert "5 tokens, 1 oov, vocabulary 4" in str(found)


def test_perplexity_of_the_impossible_is_infinite() -> None:
    table = JelinekMercer(weights=0.5, base="unigram").fit(count(TEXT, VOCAB, 2))
    assert table.perplexity([[3]]).value == math.inf


def test_perplexity_takes_sentences_matrices_and_streams(table: BackoffTable) -> None:
    expected = table.perplexity([[1, 2], [2]]).value
    padded = [[1, 2, 0, 4], [2, 0, 4, 4]]
    for same in (np.array([1, 2, 0, 2, 0]), padded, np.array(padded)):
        assert table.perplexity(same).value == pytest.approx(expected)


def test_sampling_follows_the_distribution(table: BackoffTable) -> None:
    """First words of 2,000 sentences against p(.|<s>), within four standard deviations."""
    draws = [table.sample(seed=seed, limit=1) for seed in range(2000)]
    found = np.bincount([draw[0] if draw else 0 for draw in draws], minlength=5) / 2000
    expected = table.prob([[VOCAB.bos]])[0]
    assert (abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / 2000)).all()


def test_sampling_is_repeatable_and_bounded(table: BackoffTable) -> None:
    assert table.sample(seed=3) == table.sample(seed=3)
    assert len(table.sample(seed=3, limit=2)) <= 2
    assert all(word in (1, 2, 3) for word in table.sample(seed=5, history=[1]))


@pytest.mark.parametrize("history", [[5, 6], [-1], [1, 7]])
def test_ids_outside_the_vocabulary(table: BackoffTable, history: list[int]) -> None:
    with pytest.raises(InputError, match="outside the vocabulary of 5 ids"):
        table.prob([history])


def test_other_bad_input(table: BackoffTable) -> None:
    with pytest.raises(InputError, match="id 5 at position 0"):
        table.logprob([5], [()])
    with pytest.raises(InputError, match="2 words for 1 histories"):
        table.logprob([1, 2], [()])
    with pytest.raises(InputError, match="nothing to score"):
        table.perplexity([])
    with pytest.raises(InputError, match="id 9"):
        table.perplexity([[9]])


def test_another_vocabulary_is_refused(table: BackoffTable) -> None:
    table.require(VOCAB)
    with pytest.raises(VocabularyMismatch, match="another vocabulary"):
        table.require(Vocabulary(size=5, eos=0))


def test_order_1_has_no_histories() -> None:
    """(c + 1) / (9 + 4) whatever came before."""
    table = AddLambda(lam=1).fit(count(TEXT, VOCAB, 1))
    expected = np.array([4, 4, 4, 1, 0]) / 13
    np.testing.assert_allclose(table.prob([(), [1], [VOCAB.bos], [1, 2, 3]]), [expected] * 4)
    np.testing.assert_allclose(table.token_logprobs([1, 3, 0]), np.log(expected[[1, 3, 0]]))
