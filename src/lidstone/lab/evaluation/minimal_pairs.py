"""Minimal pairs such as BLiMP's: does a model give the good sentence a higher probability than the bad one?

    {"sentence_good": "Cats meow.", "sentence_bad": "Cats meows.", "linguistics_term": "agreement", "UID": "..."}

One JSON object per line. The score is the share of pairs whose good sentence has the higher probability, as a whole and
with its end; a tie counts half. Sums are in float64, and each distinct sentence is scored once, so that two sentences
of the same tokens always tie.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError
from lidstone.hf.perplexity import Floats
from lidstone.text.datasets import Ids

_HINT = "it needs sentence_good and sentence_bad, in JSON"


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one respect."""

    good: str
    bad: str
    phenomenon: str = "all"
    """what is tested, e.g. island_effects"""
    paradigm: str = "all"
    """the pattern that the pair was made from, e.g. adjunct_island"""


def parse_pairs(lines: Iterable[str], name: str = "the pairs") -> list[MinimalPair]:
    """Pairs from lines of JSON; blank lines are skipped.

    >>> parse_pairs(['{"sentence_good": "a b", "sentence_bad": "b a", "linguistics_term": "order"}'])[0].phenomenon
    'order'
    """
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found.append(_pair(line, f"{name}, line {number}"))
    if not found:
        raise FileFormatError(f"{name} has no pairs", hint="write one JSON object per line, as in BLiMP")
    return found


def pair_scores(
    good: Sequence[Ids], bad: Sequence[Ids], score: Callable[[Sequence[Ids]], Floats]
) -> NDArray[np.float64]:
    """1 for each pair whose good sentence is likelier, 1/2 for a tie, else 0; `score` gives negative log-likelihoods.

    >>> short, long = np.array([4]), np.array([4, 5])
    >>> pair_scores([short, short], [long, short], lambda found: np.array([float(len(ids)) for ids in found])).tolist()
    [1.0, 0.5]
    """
    keys = [tuple(map(int, ids)) for ids in (*good, *bad)]
    distinct = list(dict.fromkeys(keys))
    values = dict(zip(distinct, score([np.array(key, dtype=np.int64) for key in distinct]).tolist(), strict=True))
    nll = np.array([values[key] for key in keys])
    result: NDArray[np.float64] = (np.sign(nll[len(good) :] - nll[: len(good)]) + 1) / 2
    return result


def summarize(pairs: Sequence[MinimalPair], scores: NDArray[np.float64]) -> dict[str, Any]:
    """The share of pairs, as a whole and by phenomenon, with the numbers of pairs and ties.

    >>> two = [MinimalPair("a", "b", "x"), MinimalPair("c", "d", "y")]
    >>> summarize(two, np.array([1.0, 0.5]))["phenomena"]
    {'x': {'accuracy': 1.0, 'pairs': 1}, 'y': {'accuracy': 0.5, 'pairs': 1}}
    """
    names = np.array([pair.phenomenon for pair in pairs])
    by_phenomenon = {
        str(name): {"accuracy": float(scores[names == name].mean()), "pairs": int((names == name).sum())}
        for name in np.unique(names)
    }
    return {
        "accuracy": float(scores.mean()),
        "pairs": len(pairs),
        "ties": int((scores == 0.5).sum()),
        "phenomena": by_phenomenon,
    }


def _pair(line: str, where: str) -> MinimalPair:
    try:
        record = json.loads(line)
        good, bad = record["sentence_good"], record["sentence_bad"]
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{where} is not a minimal pair", hint=_HINT) from error
    if not isinstance(good, str) or not isinstance(bad, str):
        raise FileFormatError(f"{where} is not a minimal pair: a sentence is not a string", hint=_HINT)
    paradigm = str(record.get("UID") or "all")
    return MinimalPair(good, bad, str(record.get("linguistics_term") or paradigm), paradigm)
