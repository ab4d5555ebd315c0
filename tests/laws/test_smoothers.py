"""Laws that every smoother obeys, for every kind of history: seen, unseen, sentence start, empty and too long."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from tests.laws.strategies import Case, cases, histories

from lidstone.errors import SmoothingUndefined
from lidstone.ngram.counts import Counts, count
from lidstone.ngram.smoothers.base import FallbackUsed, Smoother
from lidstone.ngram.smoothers.registry import get_smoother, smoother_names
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary

SETTINGS: list[tuple[str, dict[str, object]]] = [
    ("absolute-discounting", {"fallback": 0.75}),
    ("absolute-discounting", {"discount": 1.0}),
    ("add-lambda", {}),
    ("add-lambda", {"lam": 0.01}),
    ("good-turing", {"fallback": "add-lambda"}),
    ("jelinek-mercer", {}),
    ("jelinek-mercer", {"weights": 0.9, "base": "unigram"}),
    ("jelinek-mercer", {"weights": 1.0}),
    ("katz", {"fallback": 0.5}),
    ("katz", {"fallback": 0.5, "k": 2, "unigrams": "ml"}),
    ("kneser-essen-ney", {"fallback": 0.75}),
    ("kneser-essen-ney", {"discount": 0.5}),
    ("label-smoothing", {}),
    ("modified-kneser-ney", {"fallback": (0.5, 1.0, 1.5)}),
    ("witten-bell", {}),
]
every_smoother = pytest.mark.parametrize(("name", "fields"), SETTINGS, ids=[f"{n}{f or ''}" for n, f in SETTINGS])

EDGES = {
    "a history followed by every event": Case([[1], [1, 1], [1, 1], [1]], Vocabulary(size=2, eos=0), 2, ()),
    "every event after every history": Case([[1, 1, 1, 1], [1], [1]], Vocabulary(size=2, eos=0), 1, ()),
    "one sentence": Case([[1, 2, 3, 2, 1]], Vocabulary(size=5, eos=0), 3, ()),
    "all counts equal": Case([[1, 2], [1, 2], [1, 2]], Vocabulary(size=3, eos=0), 2, ()),
    "all counts one": Case([[1, 2, 3, 4]], Vocabulary(size=6, eos=0), 2, ()),
    "all counts large": Case([[1, 2]] * 20 + [[2, 1]] * 30, Vocabulary(size=5, eos=0), 3, ()),
    "a vocabulary larger than the text": Case([[1, 2], [2]], Vocabulary(size=1000, eos=0), 3, ()),
    "a single token": Case([[1]], Vocabulary(size=3, eos=0), 8, ()),
    "a single token, padded": Case([[1]], Vocabulary(size=4, eos=0, unpredictable=(3,)), 2, ()),
    "everything dropped": Case([[1, 2, 3], [3, 2, 1]], Vocabulary(size=5, eos=0), 3, (0, 1, 2)),
}


@pytest.fixture(autouse=True)
def expected_fallbacks() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackUsed)
        yield


def check(smoother: Smoother, case: Case) -> BackoffTable:
    table = smoother.fit(case.counts)
    prob = table.prob(histories(case))
    assert prob.min() >= 0
    np.testing.assert_allclose(prob.sum(1), 1, rtol=0, atol=1e-12)
    assert not prob[:, ~case.vocab.events].any()
    assert np.isfinite(table.rows).all() and (table.backoffs >= 0).all()
    assert not table.rows[: case.vocab.size + 1].any()
    return table


def test_every_smoother_is_under_the_laws() -> None:
    assert {name for name, _ in SETTINGS} >= {name for name in smoother_names() if "." not in name}


@every_smoother
@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_a_distribution_after_every_history(name: str, fields: dict[str, object], case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackUsed)
        check(get_smoother(name, **fields), case)


@every_smoother
@pytest.mark.parametrize("edge", EDGES)
def test_edges(name: str, fields: dict[str, object], edge: str) -> None:
    check(get_smoother(name, **fields), EDGES[edge])


@every_smoother
@pytest.mark.parametrize("order", range(1, 9))
def test_all_orders_of_a_zipfian_text(name: str, fields: dict[str, object], order: int) -> None:
    rng = np.random.default_rng(order)
    sentences = [(rng.zipf(1.4, rng.integers(1, 15)).clip(max=60)).tolist() for _ in range(150)]
    for thresholds in ((), (0, *[1] * (order - 1))):
        check(
            get_smoother(name, **fields),
            Case(sentences, Vocabulary(size=64, eos=0, unpredictable=(63,)), order, thresholds),
        )


@pytest.fixture(scope="module")
def crowded() -> Counts:
    """Sentences of one word: `<s>` is followed by a hundred thousand words, from once to six times."""
    times = np.random.default_rng(0).choice(6, 100_000, p=[0.5, 0.25, 0.12, 0.07, 0.04, 0.02]) + 1
    words = np.repeat(np.arange(1, 100_001), times)
    return count(np.stack([words, np.zeros_like(words)], 1).ravel(), Vocabulary(size=150_000, eos=0), 2)


@every_smoother
def test_no_rounding_adds_up_over_many_followers(name: str, fields: dict[str, object], crowded: Counts) -> None:
    table = get_smoother(name, **fields).fit(crowded)
    np.testing.assert_allclose(table.prob([(), [table.vocab.bos], [1]]).sum(1), 1, rtol=0, atol=1e-13)


@every_smoother
def test_logprob_agrees_with_prob(name: str, fields: dict[str, object]) -> None:
    case = EDGES["one sentence"]
    table = get_smoother(name, **fields).fit(case.counts)
    for history in histories(case):
        with np.errstate(divide="ignore"):
            expected = np.log(table.prob([history])[0])
        np.testing.assert_allclose(table.logprob(range(5), [history] * 5), expected, rtol=1e-9)


@every_smoother
def test_what_was_fitted_stands_in_the_signature(name: str, fields: dict[str, object]) -> None:
    case = EDGES["one sentence"]
    signature = get_smoother(name, **fields).fit(case.counts).signature
    assert signature["smoother"] == name and signature["order"] == 3
    assert signature["counts"] == case.counts.fingerprint
    assert all(signature["parameters"][key] == value for key, value in fields.items())
    assert json.loads(json.dumps(signature))["smoother"] == name


@pytest.mark.parametrize(
    ("name", "fields", "case"),
    [
        ("good-turing", {"fallback": "add-lambda"}, EDGES["all counts equal"]),
        ("kneser-essen-ney", {"fallback": 0.75}, EDGES["all counts equal"]),
        ("absolute-discounting", {"fallback": 0.75}, EDGES["all counts equal"]),
        ("modified-kneser-ney", {"fallback": (0.5, 1.0, 1.5)}, EDGES["one sentence"]),
        ("katz", {"fallback": 0.5}, EDGES["all counts one"]),
    ],
)
def test_undefined_without_the_fallback_and_announced_with_it(name: str, fields: dict[str, object], case: Case) -> None:
    with pytest.raises(
        SmoothingUndefined, match=rf"{name} is undefined for order \d.*counts? of counts|n_1 = 0"
    ) as caught:
        get_smoother(name).fit(case.counts)
    assert "fallback=" in caught.value.hint and "more text" in caught.value.hint
    with pytest.warns(FallbackUsed, match=f"{name} uses its fallback") as warned:
        table = get_smoother(name, **fields).fit(case.counts)
    assert len(warned) == 1
    assert table.signature["fallback_orders"]
