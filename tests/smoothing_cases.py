"""Small texts, every smoother fitted to them, and every kind of history: what the laws and theorems are tried on."""

from __future__ import annotations

import itertools
import warnings
from functools import cache

import numpy as np

from lidstone.ngram.counts import Counts, count
from lidstone.ngram.smoothers.base import FallbackUsed
from lidstone.ngram.smoothers.registry import get_smoother, smoother_names
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary

# 0 is padding, which is never predicted, 1 ends a sentence, 7 is a word that the text does not have, 8 is <s>
VOCAB = Vocabulary(size=8, eos=1, unpredictable=(0,))
ORDERS = (1, 2, 3, 4)
# so little text leaves some discounts undefined: the fallbacks stand in, and are themselves tried that way
FALLBACKS = {
    "absolute-discounting": {"fallback": 0.5},
    "good-turing": {"fallback": "add-lambda"},
    "katz": {"fallback": 0.5},
    "kneser-essen-ney": {"fallback": 0.5},
    "modified-kneser-ney": {"fallback": (0.5, 1.0, 1.5)},
}
SMOOTHERS = smoother_names()


def make_text(sentences: int = 40, seed: int = 0) -> list[list[int]]:
    """Sentences of the words 2..6, the smaller the commoner, each leaning towards the successor of the last."""
    draw = np.random.default_rng(seed)
    text = []
    for length in draw.integers(1, 9, sentences):
        words = [int(draw.choice([2, 3, 4, 5, 6], p=[0.4, 0.3, 0.15, 0.1, 0.05]))]
        for _ in range(length - 1):
            fresh = int(draw.choice([2, 3, 4, 5, 6], p=[0.4, 0.3, 0.15, 0.1, 0.05]))
            words.append(words[-1] % 5 + 2 if draw.random() < 0.5 else fresh)
        text.append(words)
    return text


TEXT = make_text()


@cache
def counted(order: int) -> Counts:
    """The counts of TEXT."""
    return count(TEXT, VOCAB, order)


@cache
def fitted(name: str, order: int) -> BackoffTable:
    """A smoother fitted to TEXT."""
    return fit(name, counted(order))


def fit(name: str, counts: Counts) -> BackoffTable:
    """A smoother fitted to any counts, falling back where they do not determine it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackUsed)
        return get_smoother(name, **FALLBACKS.get(name, {})).fit(counts)


def text_histories(order: int, text: list[list[int]] = TEXT) -> list[tuple[int, ...]]:
    """The whole histories of a text, each once: n-1 words, or fewer after <s>."""
    found = {history for sentence in text for history, _ in positions(sentence, order)}
    return sorted(found)


def positions(sentence: list[int], order: int) -> list[tuple[tuple[int, ...], int]]:
    """Each position of a sentence, its end included, as (history, word)."""
    padded = (VOCAB.bos, *sentence, VOCAB.eos)
    return [(padded[max(0, end - order + 1) : end], padded[end]) for end in range(1, len(padded))]


def corpus_positions(order: int, text: list[list[int]] = TEXT) -> list[tuple[tuple[int, ...], int]]:
    """All positions of a text, as (history, word)."""
    return [pair for sentence in text for pair in positions(sentence, order)]


def all_histories(order: int) -> list[tuple[int, ...]]:
    """Every whole history over words that were seen or not: those of the text, unseen ones, those after <s>."""
    words = (2, 3, 6, 7)
    inner = list(itertools.product(words, repeat=order - 1))
    starts = [(VOCAB.bos, *rest) for length in range(order - 1) for rest in itertools.product(words, repeat=length)]
    return inner + starts


def empirical(history: tuple[int, ...], order: int, text: list[list[int]] = TEXT) -> np.ndarray | None:
    """c(hw)/c(h) of a whole history by listing the positions of the text; None if it does not occur."""
    listed = _followers(order) if text is TEXT else _group(order, text)
    followers = listed.get(history)
    return None if followers is None else np.bincount(followers, minlength=VOCAB.size) / len(followers)


@cache
def _followers(order: int) -> dict[tuple[int, ...], list[int]]:
    return _group(order, TEXT)


def _group(order: int, text: list[list[int]]) -> dict[tuple[int, ...], list[int]]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for history, word in corpus_positions(order, text):
        groups.setdefault(history, []).append(word)
    return groups
