"""Entropy pruning against a dense twin: every distance worked out as a Kullback-Leibler divergence of whole rows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.smoothing_cases import SMOOTHERS, TEXT, VOCAB, all_histories, fitted, text_histories

from lidstone.errors import InputError
from lidstone.ngram.counts import count
from lidstone.ngram.formats.safetensors import load
from lidstone.ngram.prune import importance, prune, relative_entropies
from lidstone.ngram.smoothers.witten_bell import WittenBell
from lidstone.ngram.table import BackoffTable

CASES = [(name, order) for name in ("katz", "witten-bell", "modified-kneser-ney", "jelinek-mercer") for order in (2, 3)]


def dense_distance(table: BackoffTable, history: tuple[int, ...], word: int) -> float:
    """p(h) KL(p(.|h) || q(.|h)), where q gives `word` its share of the backoff and all unlisted words theirs."""
    trie = table.trie
    p, below = table.prob([history])[0], table.prob([history[1:]])[0]
    children = trie.children(trie.find(history))
    listed = [w for w in trie.words[children].tolist() if w != word]
    rest = [w for w in range(table.vocab.size) if w not in listed]
    q = p.copy()
    q[rest] = below[rest] * p[rest].sum() / below[rest].sum()
    positive = p > 0
    distance = float((p[positive] * np.log(p[positive] / q[positive])).sum())
    return chain(table, history) * distance


def chain(table: BackoffTable, history: tuple[int, ...]) -> float:
    """p(h) as the product of its words, p(</s>) for <s>."""
    start = table.vocab.eos if history[0] == table.vocab.bos else history[0]
    product = table.prob([()])[0, start]
    for end in range(1, len(history)):
        product *= table.prob([history[:end]])[0, history[end]]
    return float(product)


@pytest.mark.parametrize(("name", "order"), CASES)
def test_the_distance_is_the_divergence_of_whole_rows(name, order):
    table = fitted(name, order)
    scores = relative_entropies(table)
    words = int(table.trie.levels[1])
    for node in range(words, table.trie.size):
        *history, word = table.trie.ngram(node)
        assert scores[node] == pytest.approx(dense_distance(table, tuple(history), word), rel=1e-7, abs=1e-13)
    assert scores[words:].max() > 1e-4


@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("entropy", [0.0, 1e-4, 1e-2, 10.0])
def test_pruned_tables_are_normalised_and_keep_the_probabilities_of_what_stays(name, order, entropy):
    table = fitted(name, order)
    pruned = prune(table, entropy=entropy)
    rows = pruned.prob(all_histories(order) + text_histories(order) + [()])
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-11)
    for node in range(pruned.trie.size):
        assert pruned.ngram_probs[node] == pytest.approx(
            table.ngram_probs[table.trie.find(pruned.trie.ngram(node))], abs=1e-14
        )


@pytest.mark.parametrize(("name", "order"), CASES)
def test_what_goes_is_what_the_definition_says(name, order):
    """hw goes if exp(D) - 1 < entropy and nothing that stays has it as prefix or suffix; from the top order down."""
    table, entropy = fitted(name, order), 2e-3
    scores = relative_entropies(table)
    kept: set[tuple[int, ...]] = set()
    for level in range(order, 1, -1):
        nodes = range(table.trie.level(level).start, table.trie.level(level).stop)
        needed = {part for ngram in kept if len(ngram) == level + 1 for part in (ngram[:-1], ngram[1:])}
        for node in nodes:
            if np.exp(scores[node]) - 1 >= entropy or table.trie.ngram(node) in needed:
                kept.add(table.trie.ngram(node))
    trie = prune(table, entropy=entropy).trie
    assert {trie.ngram(node) for node in range(int(trie.levels[1]), trie.size)} == kept
    assert 0 < len(kept) < table.trie.size - table.trie.levels[1]


@pytest.mark.parametrize("size", [9, 15, 30, 60, 10_000])
def test_a_size_is_never_exceeded_and_used_as_far_as_ties_allow(size):
    table = fitted("witten-bell", 3)
    pruned = prune(table, size=size)
    assert pruned.trie.size <= size
    needed = np.sort(importance(table))[::-1]
    if size < table.trie.size:
        ties = int((needed[: size + 1] == needed[size]).sum())
        assert pruned.trie.size == size + 1 - ties


def test_pruning_by_entropy_and_by_the_size_it_gives_agree():
    table = fitted("witten-bell", 3)
    by_entropy = prune(table, entropy=1e-3)
    by_size = prune(table, size=by_entropy.trie.size)
    np.testing.assert_array_equal(by_entropy.trie.words, by_size.trie.words)
    np.testing.assert_array_equal(by_entropy.rows, by_size.rows)


def test_the_estimated_change_is_close_to_the_change_that_is_measured():
    """One bigram dropped: the divergence of the two models, weighted by p(h), is its score."""
    table = WittenBell().fit(count(TEXT, VOCAB, 2))
    scores = relative_entropies(table)
    words = int(table.trie.levels[1])
    least = words + int(scores[words:].argmin())
    pruned = prune(table, size=table.trie.size - 1)
    history, word = table.trie.ngram(least)
    assert pruned.trie.find([history, word]) < 0
    p, q = table.prob([[history]])[0], pruned.prob([[history]])[0]
    measured = (p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum() * chain(table, (history,))
    assert measured == pytest.approx(scores[least], rel=1e-6)


def test_the_signature_says_that_and_how_it_was_pruned():
    table = fitted("witten-bell", 2)
    twice = prune(prune(table, entropy=1e-4), size=12)
    first, second = twice.signature["pruned"]
    assert first["entropy"] == 1e-4 and second["size"] == 12
    assert first["dropped"] + second["dropped"] == table.trie.size - twice.trie.size
    assert "pruned" not in table.signature


@pytest.mark.parametrize(
    "arguments", [{}, {"entropy": 1e-8, "size": 9}, {"entropy": -1.0}, {"entropy": float("nan")}, {"size": 3}]
)
def test_what_cannot_be_is_refused(arguments):
    with pytest.raises(InputError):
        prune(fitted("witten-bell", 2), **arguments)


def test_a_pruned_table_of_a_file_is_normalised_and_the_same(tmp_path):
    """Tables that are mapped into memory are pruned like those in memory."""
    table = fitted("modified-kneser-ney", 3)
    table.save(tmp_path / "table")
    mapped = load(tmp_path / "table", verify=False)
    found, expected = prune(mapped, entropy=1e-3), prune(table, entropy=1e-3)
    assert expected.trie.size < table.trie.size
    assert found.normalisation_error(None) < 1e-12
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.backoffs, expected.backoffs)
