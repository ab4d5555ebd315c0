"""explain: the dense, readable view of the split; and what the report's explorer reads."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.smoothing_cases import ORDERS, SMOOTHERS, counted, empirical, fitted, text_histories

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.loss.split import explain, explorer_data, signed_split
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
from lidstone.text.vocabulary import Vocabulary

WORDS = Vocabulary.from_words(["of", "the", "a"])  # 0 <unk>, 1 </s>, 2 of, 3 the, 4 a
TEXT = [[2, 3], [2, 3], [2, 4], [3]]
COUNTS = count(TEXT, WORDS, 2)
TABLE = AddLambda(lam=0.5).fit(COUNTS)


def test_one_history_worked_out():
    """After "of": the, the, a. p = (0, 0, 0, 2/3, 1/3); p~ = (c + 1/2) / (3 + 5/2) = (1, 1, 1, 5, 3) / 11."""
    found = explain(TABLE, COUNTS, [2])
    assert found.count == 3
    np.testing.assert_allclose(found.p, [0, 0, 0, 2 / 3, 1 / 3])
    np.testing.assert_allclose(found.smoothed, np.array([1, 1, 1, 5, 3]) / 11)
    # taken: 2/3 - 5/11 = 7/33 from "the", 1/3 - 3/11 = 2/33 from "a"; given: 1/11 to each of the three others
    assert found.z == pytest.approx(9 / 33)
    np.testing.assert_allclose(found.minus, [0, 0, 0, 7 / 9, 2 / 9])
    np.testing.assert_allclose(found.plus, [1 / 3, 1 / 3, 1 / 3, 0, 0], atol=1e-15)


def test_a_history_that_is_too_short_under_kneser_ney_has_a_note():
    counts, bos = count(TEXT, WORDS, 3), WORDS.bos
    table = KneserEssenNey(discount=0.5).fit(counts)
    assert "the history has 1 of 2 words and no <s>" in explain(table, counts, [2]).note
    assert [explain(table, counts, history).note for history in ([bos], [bos, 2], [2, 3])] == [""] * 3
    assert explain(AddLambda(lam=0.5).fit(counts), counts, [2]).note == ""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_it_agrees_with_the_split(name, order):
    table, counts = fitted(name, order), counted(order)
    parts = signed_split(table, counts)
    for history in text_histories(order)[::4]:
        found = explain(table, counts, history)
        np.testing.assert_allclose(found.p, empirical(history, order), atol=1e-15)
        np.testing.assert_allclose(found.smoothed - found.p, found.z * (found.plus - found.minus), atol=1e-14)
        assert found.z == pytest.approx(parts.z(history), abs=1e-12)
        if found.z > 1e-9:
            assert found.plus.sum() == pytest.approx(1)
            assert found.minus.sum() == pytest.approx(1)


def test_a_history_that_the_text_lacks_has_a_smoothed_distribution_only():
    found = explain(TABLE, COUNTS, [1])
    assert (found.count, found.z) == (0, 0.0)
    assert not found.p.any()
    assert not found.plus.any()
    assert not found.minus.any()
    np.testing.assert_allclose(found.smoothed, 0.2)


def test_of_a_long_history_the_last_words_count():
    assert explain(TABLE, COUNTS, [4, 3, 2]).history == (2,)
    np.testing.assert_array_equal(explain(TABLE, COUNTS, [4, 3, 2]).smoothed, explain(TABLE, COUNTS, [2]).smoothed)


def test_the_sentence_start_and_the_empty_history():
    assert explain(TABLE, COUNTS, [WORDS.bos]).count == 4
    unigrams = explain(TABLE, COUNTS, [])
    assert unigrams.count == 11  # seven words and four ends
    assert unigrams.p[3] == pytest.approx(3 / 11)


def test_top_is_sorted_by_relevance():
    rows = explain(TABLE, COUNTS, [2]).top(3, WORDS.tokens)
    assert [row.word for row in rows] == ["the", "a", "<unk>"]
    assert rows[0].p == pytest.approx(2 / 3)
    assert rows[0].minus == pytest.approx(7 / 9)
    assert [row.word for row in explain(TABLE, COUNTS, [2]).top(100)] == ["3", "4", "0", "1", "2"]


def test_explorer_data_is_what_the_report_reads():
    from lidstone.lab.report.page import explorer_data as read

    tables = {"add-lambda": TABLE, "laplace": AddLambda(lam=1).fit(COUNTS)}
    made = json.loads(json.dumps(explorer_data(tables, COUNTS, [[2], [WORDS.bos], [1]], words=2)))
    first, start, unseen = made["histories"]
    assert (first["history"], first["count"], list(first["smoothers"])) == (["of"], 3, ["add-lambda", "laplace"])
    assert first["smoothers"]["add-lambda"]["z"] == pytest.approx(9 / 33)
    assert first["smoothers"]["add-lambda"]["words"][0] == pytest.approx(
        {"word": "the", "p": 2 / 3, "smoothed": 5 / 11, "plus": 0.0, "minus": 7 / 9}, abs=1e-12
    )
    assert len(first["smoothers"]["laplace"]["words"]) == 4  # the, a; and the first two that gain: <unk>, </s>
    assert (start["history"], start["count"], unseen["count"]) == (["<s>"], 4, 0)
    assert read(made)["histories"][0]["smoothers"]["add-lambda"]["words"][0][:2] == [
        "the",
        pytest.approx(2 / 3, abs=1e-6),
    ]


def test_names_can_be_given():
    made = explorer_data({"x": fitted("katz", 2)}, counted(2), [[2]], tokens=list("abcdefgh"), words=1)
    assert made["histories"][0]["history"] == ["c"]
    assert explorer_data({"x": fitted("katz", 2)}, counted(2), [[2]])["histories"][0]["history"] == ["2"]


def test_mistakes():
    with pytest.raises(InputError, match="the table has order 2, the counts have order 3"):
        explain(TABLE, count(TEXT, WORDS, 3), [2])
    with pytest.raises(VocabularyMismatch):
        explain(TABLE, counted(2), [2])
    with pytest.raises(InputError, match="id 6 in a history is outside the vocabulary of 5 ids"):
        explain(TABLE, COUNTS, [6])
    with pytest.raises(InputError, match="thresholds"):
        explain(TABLE, count(TEXT, WORDS, 2, thresholds=[0, 1]), [2])


def test_the_explorer_has_the_words_with_the_largest_p_plus_and_p_minus():
    """Many words, few rows: rare words that gain or lose most are there all the same."""
    vocab = Vocabulary(size=60, eos=0)
    counts = count([[1, word] for word in range(2, 20) for _ in range(word)], vocab, 2)
    table = AddLambda(lam=0.5).fit(counts)
    found = explain(table, counts, [1])
    rows = explorer_data({"a": table}, counts, [[1]], words=5)["histories"][0]["smoothers"]["a"]["words"]
    shown = {row["word"] for row in rows}
    for column in (found.plus, found.minus):
        assert str(int(column.argmax())) in shown and sum(column[int(word)] > 0 for word in shown) >= 5
