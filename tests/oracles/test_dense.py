"""The fast smoothers against the slow ones of `dense`: every one, at random orders, with and without thresholds."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from tests.laws.strategies import Case, cases, histories
from tests.oracles import dense

from lidstone.errors import SmoothingUndefined
from lidstone.ngram.smoothers.base import FallbackUsed, Smoother
from lidstone.ngram.smoothers.registry import get_smoother

Judge = Callable[[dense.Text], dense.Model]

PAIRS: dict[str, tuple[Smoother, Judge]] = {
    "add-lambda": (get_smoother("add-lambda", lam=0.3), lambda text: dense.add_lambda(text, 0.3)),
    "label-smoothing": (get_smoother("label-smoothing", gamma=0.3), lambda text: dense.label_smoothing(text, 0.3)),
    "jelinek-mercer": (
        get_smoother("jelinek-mercer", weights=0.6),
        lambda text: dense.jelinek_mercer(text, [0.6] * text.order),
    ),
    "jelinek-mercer on unigrams": (
        get_smoother("jelinek-mercer", weights=0.6, base="unigram"),
        lambda text: dense.jelinek_mercer(text, [1.0] + [0.6] * (text.order - 1)),
    ),
    "witten-bell": (get_smoother("witten-bell"), dense.witten_bell),
    "absolute-discounting": (get_smoother("absolute-discounting", fallback=0.75), dense.absolute_discounting),
    "absolute-discounting, discount": (
        get_smoother("absolute-discounting", discount=0.4),
        lambda text: dense.absolute_discounting(text, 0.4),
    ),
    "kneser-essen-ney": (get_smoother("kneser-essen-ney", fallback=0.75), dense.kneser_essen_ney),
    "kneser-essen-ney, discount": (
        get_smoother("kneser-essen-ney", discount=0.4),
        lambda text: dense.kneser_essen_ney(text, 0.4),
    ),
    "modified-kneser-ney": (
        get_smoother("modified-kneser-ney", fallback=(0.5, 1.0, 1.5)),
        lambda text: dense.modified_kneser_ney(text, (0.5, 1.0, 1.5)),
    ),
    "katz": (get_smoother("katz", fallback=0.5), lambda text: dense.katz(text, 5, 0.5)),
    "katz on plain unigrams": (
        get_smoother("katz", k=3, fallback=0.5, unigrams="ml"),
        lambda text: dense.katz(text, 3, 0.5, ml_unigrams=True),
    ),
}
every_pair = pytest.mark.parametrize("pair", PAIRS)


def compare(smoother: Smoother, judge: Judge, case: Case) -> None:
    vocab = case.vocab
    text = dense.Text(case.sentences, vocab.size, vocab.eos, case.order, vocab.unpredictable, case.thresholds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackUsed)
        table = smoother.fit(case.counts)
    model = judge(text)
    found = histories(case)
    np.testing.assert_allclose(table.prob(found), [model(history) for history in found], rtol=1e-9, atol=1e-12)


@every_pair
@given(case=cases(max_order=5))
@settings(max_examples=40, deadline=None)
def test_small_texts(pair: str, case: Case) -> None:
    compare(*PAIRS[pair], case)


@pytest.fixture(scope="module")
def zipfian() -> Case:
    """Enough text for regular counts of counts, so that no fallback is needed; the last three words never occur."""
    from lidstone.text.vocabulary import Vocabulary

    rng = np.random.default_rng(7)
    sentences = [(rng.zipf(1.6, rng.integers(1, 9)).clip(max=30)).tolist() for _ in range(250)]
    return Case(sentences, Vocabulary(size=34, eos=0), 3, ())


@every_pair
def test_a_regular_text(pair: str, zipfian: Case) -> None:
    compare(*PAIRS[pair], zipfian)


@given(case=cases(max_order=5, thresholds=False))
@settings(max_examples=60, deadline=None)
def test_good_turing(case: Case) -> None:
    """Where it is defined; its counts of counts are those of a text padded with n-1 `<s>`."""
    try:
        get_smoother("good-turing").fit(case.counts)
    except SmoothingUndefined:
        assume(False)
    compare(get_smoother("good-turing"), dense.good_turing, case)


def test_good_turing_on_a_regular_text(zipfian: Case) -> None:
    compare(get_smoother("good-turing"), dense.good_turing, zipfian)


def test_katz_discounts_the_regular_text(zipfian: Case) -> None:
    """That the regular text really exercises the Good-Turing ratios, at every order above the first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackUsed)
        table = get_smoother("katz", fallback=0.5).fit(zipfian.counts)
    assert min(table.signature["cutoffs"]["2"], table.signature["cutoffs"]["3"]) >= 2
    assert table.backoffs.max() > 1
