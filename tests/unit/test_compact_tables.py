"""Tables in single precision: how wrong they may be, and that everything takes them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoothing_cases import FALLBACKS, SMOOTHERS

from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.registry import get_smoother
from lidstone.ngram.storage.files import load_table
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
    from lidstone.regularizer.loss import SmoothedCrossEntropy

    counts = count([[1, 2, 3], [1, 2], [3, 1, 2, 2]], VOCAB, 2)
    table = get_smoother("witten-bell").fit(counts)
    logits, labels = torch.randn(2, 5, 4), torch.randint(1, 4, (2, 5))
    losses = [SmoothedCrossEntropy(one, counts, gamma=0.3).train()(logits, labels) for one in (table, table.compact())]
    totals = [float(getattr(loss, "total", loss)) for loss in losses]
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)
