"""Jelinek-Mercer: which weights mean what, and learning them by EM."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from tests.laws.strategies import Case, cases

from lidstone.errors import InputError
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer, learn_weights, mixture, observe
from lidstone.text.vocabulary import Vocabulary

VOCAB = Vocabulary(size=5, eos=0)
TRAIN = [[1, 2, 3], [1, 2], [2, 3, 1], [1, 3, 3], [1, 2, 3, 1]]
HELD_OUT = [[1, 2, 3], [2, 3], [3, 1, 2], [4, 1], [1, 3]]


@pytest.mark.parametrize(
    ("weights", "base", "order", "expected"),
    [
        (0.6, "uniform", 3, (0.6, 0.6, 0.6)),
        (0.6, "unigram", 3, (1.0, 0.6, 0.6)),
        ([0.2, 0.5, 0.7], "uniform", 3, (0.2, 0.5, 0.7)),  # lowest order first
        ([0.5, 0.7], "unigram", 3, (1.0, 0.5, 0.7)),
        ([1.0, 0.5, 0.7], "unigram", 3, (1.0, 0.5, 0.7)),
        (0.6, "unigram", 1, (1.0,)),
        (np.float32(0.5), "uniform", 1, (0.5,)),
    ],
)
def test_weights_per_order(weights: object, base: str, order: int, expected: tuple[float, ...]) -> None:
    assert JelinekMercer(weights, base).per_order(order) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("weights", "base", "message"),
    [
        (1.5, "uniform", "from 0 to 1, not 1.5"),
        ([0.5, -0.1], "uniform", "from 0 to 1"),
        (float("nan"), "uniform", "from 0 to 1"),
        (0.5, "bigram", "'uniform' or 'unigram', not 'bigram'"),
        ([0.5, 0.5], "uniform", "2 weights .* do not fit order 3"),
        ([0.5, 0.5, 0.5], "unigram", "do not fit order 3 with base='unigram'"),
        ([0.5] * 4, "uniform", "4 weights"),
    ],
)
def test_wrong_weights(weights: object, base: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        JelinekMercer(weights, base).fit(count(TRAIN, VOCAB, 3))  # type: ignore[arg-type]


def test_lowest_first() -> None:
    """With the weights 0 and 1 only the bigrams speak, with 1 and 0 only the unigrams: 20 tokens, 1 six times."""
    counts = count(TRAIN, VOCAB, 2)
    np.testing.assert_allclose(JelinekMercer([0, 1]).fit(counts).prob([[1]])[0], np.array([2, 0, 3, 1, 0]) / 6)
    np.testing.assert_allclose(JelinekMercer([1, 0]).fit(counts).prob([[1]])[0], np.array([5, 6, 4, 5, 0]) / 20)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_em_finds_the_optimum_of_a_grid(order: int) -> None:
    counts = count(TRAIN, VOCAB, order)
    seen, grid = observe(counts, HELD_OUT), itertools.product(np.linspace(0, 0.98, 15), repeat=order)
    best = max(np.log(mixture(seen, np.array(weights))[-1]).mean() for weights in grid)
    learnt = JelinekMercer.learn(counts, HELD_OUT, tolerance=1e-13)
    assert isinstance(learnt.weights, tuple) and len(learnt.weights) == order
    assert -np.log(learnt.fit(counts).perplexity(HELD_OUT).value) >= best - 1e-9


def test_em_on_unigrams_keeps_their_weight_and_passes_over_the_impossible() -> None:
    """Word 4 is not in the text: with base="unigram" its probability is zero whatever the weights."""
    counts = count(TRAIN, VOCAB, 2)
    learnt = JelinekMercer.learn(counts, HELD_OUT, base="unigram", tolerance=1e-13)
    assert learnt.base == "unigram" and learnt.weights[0] == 1  # type: ignore[index]
    seen = observe(counts, HELD_OUT)

    def mean_log(weight: float) -> float:
        probs = mixture(seen, np.array([1.0, weight]))[-1]
        return float(np.log(probs[probs > 0]).mean())

    assert mean_log(learnt.weights[1]) >= max(map(mean_log, np.linspace(0, 0.999, 1000))) - 1e-9  # type: ignore[index]
    with pytest.raises(InputError, match="no held-out word has a probability above zero"):
        JelinekMercer.learn(count(TRAIN, VOCAB, 1), np.array([4]), base="unigram")


@given(case=cases(max_order=5), other=cases(max_order=1))
@settings(max_examples=60, deadline=None)
def test_no_step_makes_the_text_less_likely(case: Case, other: Case) -> None:
    words = [[min(word, case.vocab.event_count - 1) for word in sentence] for sentence in other.sentences]
    assume(len(words) < 4 or len({len(sentence) for sentence in words}) > 1)  # else they are read as blocks
    found = learn_weights(observe(case.counts, words), [0.5] * case.order, iterations=30)
    assert (np.diff(found.trace) >= -1e-12).all()
    assert all(0 <= weight <= 1 for weight in found.weights)


@given(case=cases(max_order=5), other=cases(max_order=1))
@settings(max_examples=60, deadline=None)
def test_em_sees_the_probabilities_of_the_table(case: Case, other: Case) -> None:
    """The mixture that EM climbs is the fitted table's own probability, thresholds included."""
    words = [[min(word, case.vocab.event_count - 1) for word in sentence] for sentence in other.sentences]
    assume(len(words) < 4 or len({len(sentence) for sentence in words}) > 1)  # else they are read as blocks
    weights = np.linspace(0.3, 0.8, case.order)
    table = JelinekMercer(weights).fit(case.counts)  # type: ignore[arg-type]
    ids = np.array([word for sentence in words for word in (*sentence, 0)])
    np.testing.assert_allclose(
        np.log(mixture(observe(case.counts, words), weights)[-1]), table.token_logprobs(ids), rtol=1e-9
    )


def test_learning_needs_text() -> None:
    with pytest.raises(InputError, match="no held-out text"):
        JelinekMercer.learn(count(TRAIN, VOCAB, 2), [])
