"""A state word by word against `logprob` with the whole history."""

from __future__ import annotations

import numpy as np
import pytest
from tests.smoothing_cases import ORDERS, SMOOTHERS, VOCAB, fitted, make_text

from lidstone.errors import InputError

SENTENCES = [*make_text(25, seed=3), [7, 7, 2], [7], [2, 7, 3, 7, 0, 3], []]  # seven never occurs, 0 is padding


def histories(sentence: list[int]) -> list[list[int]]:
    return [[VOCAB.bos, *sentence[:i]] for i in range(len(sentence) + 1)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_states_score_as_whole_histories_do(name: str, order: int) -> None:
    table = fitted(name, order)
    for sentence in SENTENCES:
        words = [*sentence, VOCAB.eos]
        state, found = table.start(), []
        for word, history in zip(words, histories(sentence), strict=True):
            np.testing.assert_allclose(table.next_probs(state), table.prob([history])[0], rtol=1e-13, atol=1e-300)
            logprob, state = table.advance(state, word)
            found.append(logprob)
        np.testing.assert_allclose(found, table.logprob(words, histories(sentence)), rtol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_without_a_history_the_state_is_minus_one(order: int) -> None:
    table = fitted("modified-kneser-ney", order)
    np.testing.assert_array_equal(table.next_probs(-1), table.prob([()])[0])


def test_many_hypotheses_at_once_equal_one_by_one() -> None:
    table = fitted("kneser-essen-ney", 3)
    draw = np.random.default_rng(0)
    states = np.full(500, table.start())
    for _ in range(6):
        words = draw.integers(1, 8, 500)
        logprobs, after = table.advance(states, words)
        one_by_one = [table.advance(int(state), int(word)) for state, word in zip(states, words, strict=True)]
        assert logprobs.tolist() == [logprob for logprob, _ in one_by_one]
        assert after.tolist() == [state for _, state in one_by_one]
        states = after
    assert len(np.unique(states)) > 5


def test_states_and_words_broadcast() -> None:
    table = fitted("witten-bell", 3)
    states = table.advance(table.start(), np.arange(2, 6))[1]
    logprobs, after = table.advance(states[:, None], np.arange(1, 8))
    assert logprobs.shape == after.shape == (4, 7)
    np.testing.assert_allclose(np.exp(logprobs), table.next_probs(states)[:, 1:], rtol=1e-12)


def test_histories_that_make_no_difference_share_a_state() -> None:
    """The unseen word 7 is followed by nothing: the state after it says no more than the one without a history."""
    table = fitted("modified-kneser-ney", 3)
    assert table.advance(table.start(), 7)[1] == -1
    states = {}
    for sentence in SENTENCES:
        for history in histories(sentence):
            state = table.start()
            for word in history[1:]:
                _, state = table.advance(state, word)
            row = table.prob([history])[0]
            np.testing.assert_allclose(states.setdefault(state, row), row, rtol=1e-13)


def test_a_word_that_cannot_be_predicted_has_no_probability() -> None:
    assert fitted("add-lambda", 2).advance(-1, 0)[0] == -np.inf


@pytest.mark.parametrize(
    ("states", "words", "message"),
    [
        (-2, 2, "-2 is not a state"),
        ([0, 10**6], [2, 2], "1000000 is not a state"),
        (10**12, 2, "1000000000000 is not a state"),
        (0, 8, "id 8"),
        (0, -1, "id -1"),
        ([0, 0], [2, 8], "id 8 at position 1"),
        ([0, 0], [2, 2, 2], r"shape \(2,\) and words of shape \(3,\)"),
        (0.5, 2, "whole numbers"),
        (["a"], [2], "whole numbers"),
    ],
)
def test_bad_input_is_refused(states: object, words: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted("katz", 3).advance(states, words)  # type: ignore[call-overload]


def test_states_of_the_top_order_are_refused() -> None:
    table = fitted("katz", 3)
    with pytest.raises(InputError, match="not a state"):
        table.next_probs([table.trie.num_histories])
