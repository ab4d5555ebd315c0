"""Smoothers by name: nearest names, typed values, and those that other packages offer."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import lidstone
from lidstone.errors import InputError
from lidstone.ngram.counts import Counts, count
from lidstone.ngram.smoothers import registry
from lidstone.ngram.smoothers.base import Smoother, make_table, uniform
from lidstone.ngram.smoothers.registry import OWN, get_smoother, smoother_class, smoother_names
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Flat:
    """A smoother of another package: uniform, whatever the text."""

    strength: float = 1.0

    def fit(self, counts: Counts) -> BackoffTable:
        rows, backoffs = np.zeros(counts.trie.size), np.ones(counts.trie.num_histories)
        return make_table(self, "flat", counts, uniform(counts), rows, backoffs)


class Plain:
    """Not even a dataclass."""

    def __init__(self, size: int) -> None:
        self.size = size

    def fit(self, counts: Counts) -> BackoffTable:
        raise NotImplementedError


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("flat", f"{__name__}:Flat", registry.GROUP),
        EntryPoint("katz", f"{__name__}:Flat", registry.GROUP),
        EntryPoint("plain", f"{__name__}:Plain", registry.GROUP),
        EntryPoint("broken", "no_such_package_here:Smoother", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


@pytest.mark.parametrize("name", list(OWN))
def test_own_smoothers(name: str) -> None:
    smoother = get_smoother(name)
    assert isinstance(smoother, Smoother)
    assert type(smoother) is getattr(lidstone, OWN[name]) is smoother_class(name.replace("-", "_").upper())


def test_values_that_fit() -> None:
    assert get_smoother("add-lambda", lam=1) == get_smoother("add-lambda")
    assert get_smoother("jelinek-mercer", weights=[0.5, 1]).weights == (0.5, 1.0)  # type: ignore[attr-defined]
    assert get_smoother("kneser-essen-ney", discount=None).discount is None  # type: ignore[attr-defined]
    assert get_smoother("modified-kneser-ney", fallback=[0.5, 1, 1.5]).fallback == (0.5, 1, 1.5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "fields", "message", "hint"),
    [
        ("kneser-ney", {}, "no smoother 'kneser-ney'", "did you mean .*kneser-"),
        ("xyz", {}, "no smoother 'xyz'", "there is absolute-discounting, add-lambda"),
        ("add-lambda", {"lambda": 1}, "add-lambda has no setting 'lambda'", "did you mean lam"),
        ("witten-bell", {"k": 5}, "has no setting 'k'", "there is none"),
        ("add-lambda", {"lam": "much"}, "lam of add-lambda must be float, not 'much'", "another value"),
        ("add-lambda", {"lam": True}, "lam of add-lambda must be float, not True", ""),
        ("katz", {"k": 2.5}, "k of katz must be int, not 2.5", ""),
        ("katz", {"unigrams": "plain"}, "unigrams of katz must be 'discounted' or 'ml', not 'plain'", ""),
        ("katz", {"fallback": "yes"}, "fallback of katz must be float or nothing", ""),
        ("jelinek-mercer", {"weights": "0.5,0.5"}, "weights of jelinek-mercer must be float or tuple", ""),
        ("jelinek-mercer", {"weights": ["a"]}, "must be float or tuple", ""),
        ("modified-kneser-ney", {"fallback": [0.5, 1.0]}, "fallback of modified-kneser-ney must be tuple", ""),
        ("add-lambda", {"lam": -1.0}, "lam must be positive", "the paper"),
        ("kneser-essen-ney", {"discount": 2.0}, "discount must be between 0 and 1", "0.75"),
        ("good-turing", {"confidence": 0.0}, "confidence must be positive", ""),
        ("good-turing", {"fallback": "good-turing"}, "its own fallback", ""),
        ("good-turing", {"fallback": "ad-lambda"}, "there is no smoother 'ad-lambda'", "did you mean add-lambda"),
        ("add-lambda", {"lam": 1e308}, "positive and finite", ""),
        ("label-smoothing", {"gamma": -0.1}, "gamma must be 0 or more", ""),
        ("modified-kneser-ney", {"fallback": [0.5, 1.0, 9.0]}, "three discounts", "lmplz"),
    ],
)
def test_wrong_names_and_values(name: str, fields: dict[str, object], message: str, hint: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        get_smoother(name, **fields)
    assert caught.match(hint)


@pytest.mark.usefixtures("foreign")
def test_a_smoother_of_another_package() -> None:
    assert "flat" in smoother_names()
    counts = count([[1, 2]], Vocabulary(size=4, eos=0), 2)
    table = get_smoother("flat", strength=2).fit(counts)
    assert table.prob([[1]]).tolist() == [[0.25] * 4]
    assert table.signature["parameters"] == {"strength": 2}
    with pytest.raises(InputError, match=r"flat has no setting 'strenght'\. hint: did you mean strength"):
        get_smoother("flat", strenght=2)


@pytest.mark.usefixtures("foreign")
def test_own_names_cannot_be_taken() -> None:
    assert type(get_smoother("katz")).__name__ == "Katz"


@pytest.mark.usefixtures("foreign")
def test_a_smoother_that_is_no_dataclass() -> None:
    assert get_smoother("plain", size=3).size == 3  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="plain cannot be made with"):
        get_smoother("plain", length=3)


@pytest.mark.usefixtures("foreign")
def test_a_package_that_is_broken() -> None:
    with pytest.raises(InputError, match="'broken' of no_such_package_here:Smoother cannot be loaded"):
        get_smoother("broken")
