"""Compact tables: how wrong they may be, and that everything takes them."""

from __future__ import annotations

import io
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoothing_cases import FALLBACKS, SMOOTHERS

from lidstone.errors import InputError
from lidstone.ngram.access import PackedWords, read_all
from lidstone.ngram.compact import decode, pack, pack_ascending, quantise, relative_error
from lidstone.ngram.counts import count, count_text
from lidstone.ngram.formats.arpa import read_arpa, write_arpa
from lidstone.ngram.formats.safetensors import load_table
from lidstone.ngram.scoring import score_tokens
from lidstone.ngram.smoothers.registry import get_smoother
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.vocabulary import Vocabulary

VOCAB = Vocabulary(size=4, eos=0)
TEXTS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=5), min_size=1, max_size=6)
HISTORIES = [h for length in range(4) for h in itertools.product(range(1, 5), repeat=length) if 4 not in h[1:]]


@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.filterwarnings("ignore::lidstone.ngram.smoothers.base.FallbackUsed")
@settings(deadline=None, max_examples=25)
@given(text=TEXTS, order=st.integers(1, 4))
def test_the_bound(name, text, order):
    table = get_smoother(name, **FALLBACKS.get(name, {})).fit(count(text, VOCAB, order))
    exact, rounded = table.prob(HISTORIES), table.compact().prob(HISTORIES)
    bound = (order + 1) * 2.0**-24 * (1 + 1e-6)
    if table.rows.min() >= 0:
        assert (abs(rounded - exact) <= bound * exact + 1e-15).all()
    assert abs(rounded.sum(axis=1) - 1).max() <= 10 * bound


def test_compact_tables_are_saved_loaded_and_used(tmp_path):
    text = [[1, 2, 3], [1, 2], [3, 1, 2, 2], [2, 3]]
    table = get_smoother("witten-bell").fit(count(text, VOCAB, 3))
    table.compact().save(tmp_path / "table")
    loaded = load_table(tmp_path / "table")
    assert loaded.rows.dtype == loaded.backoffs.dtype == np.float32
    assert loaded.signature["precision"] == "float32"
    ids = np.array([1, 2, 3, 0, 2, 2, 0])
    np.testing.assert_allclose(loaded.token_logprobs(ids), table.token_logprobs(ids), rtol=1e-6)
    assert loaded.perplexity([[1, 2, 3]]).value == pytest.approx(table.perplexity([[1, 2, 3]]).value, rel=1e-6)
    state = loaded.start()
    assert loaded.advance(state, 1)[0] == pytest.approx(table.advance(table.start(), 1)[0], rel=1e-6)
    assert loaded.sample(seed=1) == table.sample(seed=1)
    table.save(tmp_path / "double")
    saved = (tmp_path / "double").stat().st_size - (tmp_path / "table").stat().st_size
    values = len(table.rows) + len(table.backoffs)
    assert abs(saved - 4 * values) < 100  # the headers differ a little


def test_the_loss_takes_a_compact_table():
    torch = pytest.importorskip("torch")
    from lidstone.loss.losses import SmoothedCrossEntropy

    counts = count([[1, 2, 3], [1, 2], [3, 1, 2, 2]], VOCAB, 2)
    table = get_smoother("witten-bell").fit(counts)
    logits, labels = torch.randn(2, 5, 4), torch.randint(1, 4, (2, 5))
    losses = [SmoothedCrossEntropy(one, counts, gamma=0.3).train()(logits, labels) for one in (table, table.compact())]
    totals = [float(getattr(loss, "total", loss)) for loss in losses]
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)


def exact_bound(table, order):
    return (1 + table.codes.error) ** order - 1 + 1e-12


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.filterwarnings("ignore::lidstone.ngram.smoothers.base.FallbackUsed")
@settings(deadline=None, max_examples=10)
@given(text=TEXTS, order=st.integers(1, 4))
def test_the_bound_of_codes(name, bits, text, order):
    table = get_smoother(name, **FALLBACKS.get(name, {})).fit(count(text, VOCAB, order))
    coded = table.compact(bits)
    exact, rounded, bound = table.prob(HISTORIES), coded.prob(HISTORIES), exact_bound(coded, order)
    assert (abs(rounded - exact) <= bound * exact + 1e-14).all()
    assert abs(rounded.sum(axis=1) - 1).max() <= bound
    assert coded.normalisation_error(None) <= bound


def test_codes_of_16_bits_are_wrong_by_little_over_a_wide_range():
    values = 10.0 ** -np.linspace(0.001, 9, 5000)  # of 9 decades, log2(1e9) = 29.9 octaves
    coded = quantise(values, np.array([0, len(values)]), 16)
    assert relative_error(coded) == pytest.approx(29.9 / 65533 / 2, rel=0.1)
    assert abs(decode(coded) / values - 1).max() <= relative_error(coded)
    assert abs(np.log10(decode(coded) / values)).max() < 1.1e-4


@pytest.mark.parametrize("width", [1, 3, 7, 20, 31, 33, 48])
def test_packed_numbers_are_those_that_were_packed(width):
    values = np.random.default_rng(width).integers(0, 1 << width, 1000)
    ascending = np.sort(values % (1 << min(width, 20)))
    for array, plain in ((PackedWords(pack(values, width), width, 0), values), (pack_ascending(ascending), ascending)):
        found = np.empty(1000, np.int64)
        read_all(array, 0, found)
        np.testing.assert_array_equal(found, plain)


@pytest.fixture(scope="module")
def large():
    """A table of order 4 with unseen, backed-off and sentence-initial histories, and a stream to score."""
    draw = np.random.default_rng(1)
    vocab = Vocabulary(size=60, eos=0, unpredictable=(59,))
    text = [(59 * draw.random(draw.integers(1, 12)) ** 3).astype(int).clip(1, 58).tolist() for _ in range(600)]
    table = get_smoother("kneser-essen-ney", discount=0.7).fit(count(text, vocab, 4))
    stream = np.concatenate([np.append(draw.integers(1, 59, 6), 0) for _ in range(40)])
    return table, stream


@pytest.mark.parametrize(("bits", "pack"), [(64, True), (32, True), (16, False), (16, True), (8, True)])
def test_every_query_agrees_with_the_decoded_table(large, tmp_path, bits, pack):
    table, stream = large
    table.compact(bits, pack=pack).save(tmp_path / "table")
    small = load_table(tmp_path / "table")
    plain = BackoffTable(
        small.vocab,
        Trie(*(getattr(small.trie, name) for name in ("levels", "words", "suffixes", "first"))),
        small.base,
        small.rows,
        small.backoffs,
        {},
    )
    for name in ("words", "suffixes", "first"):
        np.testing.assert_array_equal(getattr(small.trie, name), getattr(table.trie, name))
    fresh = load_table(tmp_path / "table", verify=False)
    np.testing.assert_allclose(fresh.token_logprobs(stream), plain.token_logprobs(stream), rtol=1e-12)
    histories = [(), (60,), (60, 3), (1, 2, 3), (58, 57, 56), (2,)]
    np.testing.assert_allclose(fresh.prob(histories), plain.prob(histories), rtol=1e-12, atol=1e-15)
    words = [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(fresh.logprob(words, histories), plain.logprob(words, histories), rtol=1e-12)
    np.testing.assert_allclose(fresh.ngram_probs, plain.ngram_probs, rtol=1e-9)
    assert fresh.normalisation_error(None) == pytest.approx(plain.normalisation_error(None), abs=1e-9)
    lengths = [score_tokens(each, stream.astype(np.int32)).lengths for each in (fresh, plain)]
    np.testing.assert_array_equal(*lengths)


@pytest.mark.parametrize(("bits", "pack"), [(16, False), (16, True)])
def test_states_of_compact_tables(large, bits, pack):
    table, stream = large
    small, state, total = table.compact(bits, pack=pack), None, 0.0
    for word in stream.tolist():
        state = small.start() if state is None else state
        logprob, state = small.advance(state, word)
        total += logprob
        state = None if word == 0 else state
    assert total == pytest.approx(small.token_logprobs(stream).sum(), rel=1e-12)
    states = small.advance([small.start()] * 3, [1, 2, 3])[1]
    np.testing.assert_allclose(small.next_probs(states), small.prob([(60, 1), (60, 2), (60, 3)]), rtol=1e-12)


def test_perplexity_changes_by_no_more_than_the_bound(large):
    table, stream = large
    exact = table.perplexity(stream).value
    for bits in (16, 8):
        coded = table.compact(bits)
        assert abs(np.log(coded.perplexity(stream).value / exact)) <= np.log1p(exact_bound(coded, 4))


def test_compact_tables_become_arpa_and_plain_tables_again(large, tmp_path):
    table, stream = large
    small = table.compact(16, pack=True)
    again = small.compact(32)
    assert again.codes is None and again.rows.dtype == np.float32
    np.testing.assert_allclose(again.token_logprobs(stream), small.token_logprobs(stream), rtol=1e-4)
    write_arpa(small, tmp_path / "model.arpa", tokens=[f"w{i}" for i in range(60)])
    read = read_arpa(tmp_path / "model.arpa")
    ids = read.vocab.encode(["w1", "w2", "w3"])
    expected = small.logprob([1, 2, 3], [(60,), (60, 1), (60, 1, 2)]).sum()
    assert read.logprob(ids, [(read.vocab.bos,), (read.vocab.bos, ids[0]), (read.vocab.bos, *ids[:2])]).sum() == (
        pytest.approx(expected, rel=1e-6)
    )


def test_compact_tables_can_be_pickled(large):
    table, stream = large
    small = table.compact(16, pack=True)
    again = pickle.loads(pickle.dumps(small))
    np.testing.assert_array_equal(again.token_logprobs(stream), small.token_logprobs(stream))
    assert "rows" not in vars(again) and "words" not in vars(again.trie)


def test_wrong_bits_are_refused(large):
    with pytest.raises(InputError, match="12 bits"):
        large[0].compact(12)


def test_the_kenlm_interface_takes_a_compact_table(tmp_path):
    from lidstone import kenlm

    counts = count_text(io.BytesIO(b"the cat sat on the mat\nthe dog sat\n"), 3)
    table = get_smoother("witten-bell").fit(counts)
    table.save(tmp_path / "plain")
    table.compact(16, pack=True).save(tmp_path / "small")
    plain, small = (kenlm.Model(str(tmp_path / name)) for name in ("plain", "small"))
    assert small.score("the cat sat on a mat") == pytest.approx(plain.score("the cat sat on a mat"), abs=1e-3)


def test_the_command(tmp_path):
    from typer.testing import CliRunner

    from lidstone.cli.main import app

    counts = count_text(io.BytesIO(b"the cat sat on the mat\nthe dog sat\n"), 3)
    get_smoother("witten-bell").fit(counts).save(tmp_path / "plain.table")
    convert = ["convert", str(tmp_path / "plain.table"), str(tmp_path / "small.table")]
    assert CliRunner().invoke(app, [*convert, "--bits", "16", "--pack"]).exit_code == 0
    small = load_table(tmp_path / "small.table")
    assert small.codes.bits == 16 and small.trie.packed is not None
    assert CliRunner().invoke(app, [*convert, "--bits", "16", "--float32"]).exit_code == 1
