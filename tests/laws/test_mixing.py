"""Mixtures against the dense mixture of rows."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from tests.smoothing_cases import SMOOTHERS, VOCAB, all_histories, fit, fitted, make_text, text_histories

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.ngram.counts import count, count_text
from lidstone.ngram.mixing import common_vocabulary, learn_mixture, mix
from lidstone.ngram.smoothers.witten_bell import WittenBell
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary


def other(name: str, order: int, seed: int = 7) -> BackoffTable:
    return fit(name, count(make_text(25, seed), VOCAB, order))


def listed(tables: list[BackoffTable], history: tuple[int, ...]) -> np.ndarray:
    """Which words any of the models lists after a history."""
    mask = np.zeros(tables[0].vocab.size, bool)
    for table in tables:
        node = table.trie.find(history)
        if node >= 0:
            mask[table.trie.words[table.trie.children(node)]] = True
    return mask


@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_mixture_is_the_dense_one_on_every_listed_ngram_and_in_the_mass_of_the_rest(name, order):
    tables = [fitted(name, order), other("katz" if order > 1 else name, order)]
    weights = (0.3, 0.7)
    mixed = mix(tables, weights)
    for history in {h[i:] for h in all_histories(order) + text_histories(order) for i in range(len(h))}:
        dense = sum(w * t.prob([history])[0] for w, t in zip(weights, tables, strict=True))
        row, mask = mixed.prob([history])[0], listed(tables, history)
        np.testing.assert_allclose(row[mask], dense[mask], atol=1e-13)
        assert row[~mask].sum() == pytest.approx(dense[~mask].sum(), abs=1e-11)
        assert (row >= 0).all() and row.sum() == pytest.approx(1, abs=1e-11)
    np.testing.assert_allclose(mixed.prob([()])[0], 0.3 * tables[0].prob([()])[0] + 0.7 * tables[1].prob([()])[0])


def test_what_is_not_listed_shares_its_mass_as_the_order_below():
    """The definition, dense: p(w|h) of an unlisted word is in proportion to the mixture's own p(w|h')."""
    tables = [fitted("witten-bell", 3), other("katz", 3)]
    mixed = mix(tables, (0.5, 0.5))
    for history in itertools.product((2, 3, 4, 5, 6), repeat=2):
        mask = ~listed(tables, history) & VOCAB.events
        ratio = mixed.prob([history])[0][mask] / mixed.prob([history[1:]])[0][mask]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-10)


def test_a_model_mixed_with_itself_is_itself():
    table = fitted("modified-kneser-ney", 3)
    mixed = mix([table, table, table], (0.2, 0.3, 0.5))
    np.testing.assert_allclose(mixed.prob(all_histories(3)), table.prob(all_histories(3)), atol=1e-14)


def test_a_weight_of_one_gives_the_model_back():
    tables = [fitted("witten-bell", 3), other("witten-bell", 3)]
    np.testing.assert_allclose(mix(tables, (1, 0)).prob(all_histories(3)), tables[0].prob(all_histories(3)), atol=1e-13)


def test_three_models_of_different_orders_and_vocabularies():
    texts = [b"the cat sat\nthe dog sat\n", b"a cat saw the owl\nowl saw\n", b"owl dog owl\n"]
    tables = [WittenBell().fit(count_text(io.BytesIO(t), n)) for t, n in zip(texts, (3, 2, 1), strict=True)]
    weights = (0.5, 0.3, 0.2)
    mixed = mix(tables, weights)
    assert mixed.order == 3 and mixed.vocab.size == 9
    assert mixed.vocab.tokens == ("<unk>", "</s>", "the", "cat", "sat", "dog", "a", "saw", "owl")
    for history in ([], ["the"], ["<s>"], ["<s>", "the"], ["the", "dog"], ["cat"], ["saw", "the"]):
        expected = np.zeros(mixed.vocab.size)
        union = np.zeros(mixed.vocab.size, bool)
        for weight, table in zip(weights, tables, strict=True):
            ids = [table.vocab.bos if w == "<s>" else table.vocab.index.get(w, -1) for w in history]
            known = ids[max((i + 1 for i, number in enumerate(ids) if number < 0), default=0) :]
            columns = mixed.vocab.encode(table.vocab.tokens)
            expected[columns] += weight * table.prob([known])[0]
            node = table.trie.find(ids) if ids and min(ids) >= 0 else -1
            union[columns[table.trie.words[table.trie.children(node)]] if node >= 0 else []] = True
        here = [mixed.vocab.bos if w == "<s>" else mixed.vocab.index[w] for w in history]
        row = mixed.prob([here])[0]
        assert row.sum() == pytest.approx(1, abs=1e-12)
        where = union if history else np.ones(len(row), bool)
        np.testing.assert_allclose(row[where], expected[where], atol=1e-14)
        assert row[~where].sum() == pytest.approx(expected[~where].sum(), abs=1e-13)


def test_em_finds_the_best_weights():
    """Against a fine search of the log-likelihood of the dense mixture."""
    tables = [fitted("witten-bell", 2), other("witten-bell", 2)]
    ids = np.array([word for line in make_text(12, 3) for word in (*line, VOCAB.eos)])
    found = learn_mixture(tables, ids)
    probs = np.exp([table.token_logprobs(ids) for table in tables])
    grid = np.linspace(0, 1, 10_001)
    likelihoods = np.log(grid[:, None] * probs[0] + (1 - grid)[:, None] * probs[1]).mean(axis=1)
    assert found.weights[0] == pytest.approx(grid[likelihoods.argmax()], abs=2e-4)
    assert found.perplexity == pytest.approx(np.exp(-likelihoods.max()), rel=1e-7)
    assert found.impossible == 0


def test_em_from_text(tmp_path):
    tables = [WittenBell().fit(count_text(io.BytesIO(t), 2)) for t in (b"a b a b\n", b"c c d\n")]
    (tmp_path / "dev.txt").write_text("a b a b\na b c\n")
    table = mix(tables, "em", text=tmp_path / "dev.txt")
    weights = table.signature["parameters"]["weights"]
    assert sum(weights) == pytest.approx(1) and weights[0] > 0.6
    assert [part["smoother"] for part in table.signature["parts"]] == ["witten-bell", "witten-bell"]


def test_words_that_one_model_knows_as_special():
    one = Vocabulary(size=3, eos=0, unk=1, tokens=("END", "UNK", "a"))
    common = common_vocabulary([one, Vocabulary.from_words(["a", "b"])])
    assert common.tokens == ("END", "UNK", "a", "b") and (common.eos, common.unk) == (0, 1)
    clash = Vocabulary.from_words(["END"])
    with pytest.raises(VocabularyMismatch, match="'END' is a special word"):
        common_vocabulary([one, clash])


def test_an_id_that_any_model_predicts_can_be_predicted():
    one = Vocabulary(size=4, eos=0, unpredictable=(1, 2), tokens=("</s>", "pad", "x", "a"))
    two = Vocabulary(size=3, eos=0, tokens=("</s>", "x", "b"))
    assert common_vocabulary([one, two]).unpredictable == (1,)


@pytest.mark.parametrize(
    ("weights", "text", "message"),
    [
        ([0.5], None, "1 weights for 2 models"),
        ([0.5, 0.6], None, "must sum to 1"),
        ([1.5, -0.5], None, "must not be negative"),
        ("max", None, "numbers or 'em'"),
        ("em", None, "belong together"),
        ([0.5, 0.5], "dev.txt", "belong together"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights, text, message):
    with pytest.raises(InputError, match=message):
        mix([fitted("witten-bell", 2), other("witten-bell", 2)], weights, text=text)


def test_ids_without_words_must_share_a_vocabulary():
    small = WittenBell().fit(count([[0]], Vocabulary(size=2, eos=1), 2))
    with pytest.raises(VocabularyMismatch):
        mix([fitted("witten-bell", 2), small])
    with pytest.raises(InputError, match="two tables or more"):
        mix([small])
