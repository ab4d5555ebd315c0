"""NLTK's language models at order 2, where its definitions and ours coincide.

They differ in the unigrams. NLTK pads n-1 times and counts `<s>` among the words to predict, so its unigram frequencies
have another denominator, and it does not interpolate them with the uniform. Hence:

- maximum likelihood and Lidstone have no lower order: compared whole (for Lidstone our vocabulary gets one more id,
  since NLTK's has `<s>`);
- the interpolated ones are compared as p(w|h) - gamma(h) p(w) and gamma(h), which do not depend on the unigrams, and
  then whole, with NLTK's unigrams put under our bigrams;
- Kneser-Ney's unigrams are type counts, which `<s>` never has: compared as such.
"""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest

from lidstone.ngram.counts import Counts, count
from lidstone.ngram.smoothers.absolute_discounting import AbsoluteDiscounting
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.smoothers.base import Smoother
from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
from lidstone.ngram.smoothers.witten_bell import WittenBell
from lidstone.text.vocabulary import Vocabulary

lm = pytest.importorskip("nltk.lm")
preprocessing = pytest.importorskip("nltk.lm.preprocessing")

TEXT = [line.split() for line in ("a b c d", "e g a d b e", "a b", "b c a d", "a c", "d", "a b c a b c a b")]
WORDS = sorted({word for sentence in TEXT for word in sentence})
VOCAB = Vocabulary.from_words([*WORDS, "(stands for NLTK's <s>)"])


@pytest.fixture(scope="module")
def counts() -> Counts:
    return count([VOCAB.encode(sentence) for sentence in TEXT], VOCAB, 2)


def nltk_model(kind: str, order: int = 2, **options: float):  # type: ignore[no-untyped-def]
    model = getattr(lm, kind)(order=order, **options)
    model.fit(*preprocessing.padded_everygram_pipeline(order, TEXT))
    return model


def node(word: str) -> int:
    return VOCAB.bos if word == "<s>" else int(VOCAB.encode([word])[0])


def bigrams(model) -> np.ndarray:  # type: ignore[no-untyped-def]
    """NLTK's p(w|h): rows `<s>` and the words, columns the words and the end."""
    pairs = product(["<s>", *WORDS], [*WORDS, "</s>"])
    return np.array([model.score(word, [history]) for history, word in pairs]).reshape(len(WORDS) + 1, -1)


def ours(values: np.ndarray) -> np.ndarray:
    """Our ids' columns in the order of `bigrams`."""
    return values[..., [node(word) for word in (*WORDS, "</s>")]]


HISTORIES = [[node(word)] for word in ("<s>", *WORDS)]


def test_maximum_likelihood(counts: Counts) -> None:
    table = JelinekMercer(weights=1.0).fit(counts)
    np.testing.assert_allclose(ours(table.prob(HISTORIES)), bigrams(nltk_model("MLE")), rtol=1e-12)


def test_lidstone(counts: Counts) -> None:
    model = nltk_model("Lidstone", gamma=0.1)
    assert len(model.vocab) == VOCAB.event_count
    table = AddLambda(lam=0.1).fit(counts)
    np.testing.assert_allclose(ours(table.prob(HISTORIES)), bigrams(model), rtol=1e-12)


INTERPOLATED = [
    ("WittenBellInterpolated", {}, WittenBell()),
    ("AbsoluteDiscountingInterpolated", {"discount": 0.6}, AbsoluteDiscounting(discount=0.6)),
    ("KneserNeyInterpolated", {"discount": 0.6}, KneserEssenNey(discount=0.6)),
]


@pytest.mark.parametrize(("kind", "options", "smoother"), INTERPOLATED, ids=[kind for kind, _, _ in INTERPOLATED])
def test_interpolated(kind: str, options: dict[str, float], smoother: Smoother, counts: Counts) -> None:
    model, table = nltk_model(kind, **options), smoother.fit(counts)
    gammas = [model.estimator.alpha_gamma("a", (history,))[1] for history in ("<s>", *WORDS)]
    backoffs = table.backoffs[[h for (h,) in HISTORIES]]
    np.testing.assert_allclose(backoffs, gammas, rtol=1e-12)

    direct = ours(table.prob(HISTORIES)) - backoffs[:, None] * ours(table.base)
    unigrams = np.array([model.score(word) for word in (*WORDS, "</s>")])
    np.testing.assert_allclose(direct, bigrams(model) - backoffs[:, None] * unigrams, atol=1e-12)

    base = np.zeros(VOCAB.size)
    base[[node(word) for word in (*WORDS, "</s>")]] = unigrams
    grafted = dataclasses.replace(table, base=base)
    np.testing.assert_allclose(ours(grafted.prob(HISTORIES)), bigrams(model), rtol=1e-10)


def test_kneser_ney_unigrams_are_type_counts(counts: Counts) -> None:
    """With the discount 0 nothing goes to the uniform."""
    model, table = nltk_model("KneserNeyInterpolated", discount=0.0), KneserEssenNey(discount=0.0).fit(counts)
    unigrams = np.array([model.score(word) for word in (*WORDS, "</s>")])
    np.testing.assert_allclose(ours(table.base), unigrams, rtol=1e-12)
    assert unigrams.sum() == pytest.approx(1)


def test_nltks_trigram_kneser_ney_does_not_sum_to_one_after_the_start() -> None:
    """After `<s>` NLTK's lower order divides plain followers by type counts; ours keeps plain counts there."""
    text = [list("abc"), list("ab"), list("bca"), list("ac")]
    model = lm.KneserNeyInterpolated(order=3, discount=0.75)
    model.fit(*preprocessing.padded_everygram_pipeline(3, text))
    assert sum(model.score(word, ["<s>"]) for word in model.vocab) == pytest.approx(1.375)

    vocab = Vocabulary.from_words("abc")
    table = KneserEssenNey(discount=0.75).fit(count([vocab.encode(sentence) for sentence in text], vocab, 3))
    assert table.prob([[vocab.bos]]).sum() == pytest.approx(1, abs=1e-12)
