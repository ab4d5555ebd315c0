"""What smoothing does after one history, word by word: p, p~, and the two parts p+ and p- of their difference.

    p~ - p = Z (p+ - p-)          p+ is where mass goes, p- where it comes from, Z how much

`explain` gives the arrays of one history; `explorer_data` collects several tables and histories for the page of a
report. This is the dense, readable view of `split`, for looking at; the loss never builds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lidstone.loss.split import require_whole
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.text.history import recent
from lidstone.text.vocabulary import BOS

Floats = NDArray[np.float64]
Tokens = Sequence[str]


class ExplainedWord(NamedTuple):
    """One word of an explanation."""

    word: str
    p: float
    smoothed: float
    plus: float
    minus: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """Empirical and smoothed distribution after a history, and the split of their difference; arrays are (V,).

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> found = explain(AddLambda(lam=1).fit(counts), counts, [1])     # p = (1/2, 0, 1/2), p~ = (2/5, 1/5, 2/5)
    >>> round(found.z, 6), found.plus.round(6).tolist(), found.minus.round(6).tolist(), found.count
    (0.2, [0.0, 1.0, 0.0], [0.5, 0.0, 0.5], 2)
    """

    history: tuple[int, ...]
    count: int
    """c(h), how often the text goes on after the history; 0 if it does not have it"""
    p: Floats
    """c(hw)/c(h); zero all over where c(h) = 0"""
    smoothed: Floats
    """p~(w|h)"""
    plus: Floats
    """p+, normalised: where smoothing adds mass; zero everywhere if Z = 0"""
    minus: Floats
    """p-, normalised: where smoothing takes mass from"""
    z: float
    """Z, the mass that smoothing moves; 0 where c(h) = 0, for there is nothing to move"""
    note: str = ""
    """what to know about this history, if anything: see `continuation_note`"""

    def top(self, number: int, tokens: Tokens | None = None) -> list[ExplainedWord]:
        """The words that matter most, with their probabilities."""
        return self._words(self.leading(number), tokens)

    def top_of_each(self, number: int, tokens: Tokens | None = None) -> list[ExplainedWord]:
        """The words of `top`, and those with the largest p+ and p-, however rare they are; at most 3 x number."""
        moved = [np.argsort(-column, kind="stable")[:number] for column in (self.plus, self.minus)]
        moving = [words[column[words] > 0] for words, column in zip(moved, (self.plus, self.minus), strict=True)]
        chosen = dict.fromkeys(np.concatenate([self.leading(number), *moving]).tolist())
        return self._words(list(chosen), tokens)

    def _words(self, words: Iterable[int], tokens: Tokens | None) -> list[ExplainedWord]:
        columns = (self.p, self.smoothed, self.plus, self.minus)
        return [ExplainedWord(_name(word, tokens), *(float(column[word]) for column in columns)) for word in words]

    def leading(self, number: int) -> NDArray[np.int64]:
        """Their ids: by the larger of p and p~, then by how far they move, then by id."""
        largest, moved = np.maximum(self.p, self.smoothed), np.abs(self.smoothed - self.p)
        return np.lexsort((-moved, -largest))[:number]


def explain(table: BackoffTable, counts: Counts, history: Sequence[int]) -> Explanation:
    """Compare a table with the counts of the training text after one history.

    A history is ids, most recent last; `vocab.bos` for the sentence start. Only its last n-1 words count. One that is
    shorter and does not begin a sentence is fine: then p is that of its own length.
    """
    require_whole(counts)
    table.require_counts(counts)
    seen = tuple(int(word) for word in recent(history, table.order))
    smoothed = table.prob([seen])[0]
    followers = followers_of(counts, seen)
    total = int(followers.sum())
    p = followers / max(total, 1)
    delta = smoothed - p if total else np.zeros_like(smoothed)
    z = float(np.maximum(-delta, 0).sum())
    plus, minus = (np.maximum(part, 0) / (z or 1.0) for part in (delta, -delta))  # (1) of docs/theory.md
    return Explanation(seen, total, p, smoothed, plus, minus, z, continuation_note(table, seen))


def continuation_note(table: BackoffTable, history: Sequence[int]) -> str:
    """What p~ is under Kneser-Ney after a history that is too short; "" for all others."""
    short = len(history) < table.order - 1 and table.vocab.bos not in history
    if not short or table.signature.get("smoother") not in ("kneser-essen-ney", "modified-kneser-ney"):
        return ""
    return (
        f"the history has {len(history)} of {table.order - 1} words and no <s>: its p~ is Kneser-Ney's back-off "
        "distribution, made of how many different words stand before, not of how often it occurs. Begin a sentence "
        "with <s>, or give the words before"
    )


def followers_of(counts: Counts, history: Sequence[int]) -> NDArray[np.int32]:
    """How often each word follows a history; (V,).

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> followers_of(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2), [1]).tolist()
    [1, 0, 1]
    """
    if not len(history):
        return counts.counts[: counts.vocab.size]
    followers = np.zeros(counts.vocab.size, np.int32)
    node = counts.trie.find(history)
    if node >= 0:
        children = counts.trie.children(node)
        followers[counts.trie.words[children]] = counts.counts[children]
    return followers


def explorer_data(
    tables: Mapping[str, BackoffTable],
    counts: Counts,
    histories: Iterable[Sequence[int]],
    tokens: Tokens | None = None,
    words: int = 20,
) -> dict[str, Any]:
    """Explanations of several histories by several tables, as plain values for JSON.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[2, 3], [2]], Vocabulary.from_words(["a", "b"]), order=2)
    >>> made = explorer_data({"add-lambda": AddLambda(lam=1).fit(counts)}, counts, [[2]], words=1)
    >>> made["histories"][0]["history"], made["histories"][0]["count"]
    (['a'], 2)
    >>> made["histories"][0]["smoothers"]["add-lambda"]["words"][0]["word"]
    '</s>'
    """
    names = tokens if tokens is not None else counts.vocab.tokens
    return {"histories": [_entry(tables, counts, history, names, words) for history in histories]}


def _entry(
    tables: Mapping[str, BackoffTable], counts: Counts, history: Sequence[int], tokens: Tokens | None, words: int
) -> dict[str, Any]:
    found = {name: explain(table, counts, history) for name, table in tables.items()}
    smoothers = {
        name: {"z": each.z, "words": [row._asdict() for row in each.top_of_each(words, tokens)]}
        for name, each in found.items()
    }
    named = [BOS if word == counts.vocab.bos else _name(word, tokens) for word in history]
    count = int(followers_of(counts, recent(history, counts.order)).sum())
    return {"history": named, "count": count, "smoothers": smoothers}


def _name(word: int, tokens: Tokens | None) -> str:
    return str(int(word)) if tokens is None else tokens[int(word)]
