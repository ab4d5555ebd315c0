"""The signed split: how a smoothed distribution differs from the empirical one, per history and in sparse form.

    p~(w|h) - p(w|h) = Z(h) (p+(w|h) - p-(w|h)),      p(w|h) = c(hw) / c(h)                (1) of docs/theory.md

Both p and p~ sum to one, so what is taken away equals what is given: one Z. Words that never follow h have p = 0, and
there p~ is backoff * (order below): the dense part of Z p+ is a multiple of the order below, and Z p- is sparse.

    Z p-(w|h) = minus[hw]                              Z p+(w|h) = plus[hw] + backoff(h) p~(w|h')

Only a *whole* history has an empirical distribution: n-1 words, or fewer after `<s>`. Its n-grams are numbered without
gaps by `slots`: first those after `<s>` of the lower orders, then all of the top order.

`explain` gives the same of one history densely, word by word, for looking at; the loss never builds it. `explorer_data`
collects several tables and histories for the page of a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.ngram.union import align
from lidstone.text.history import recent
from lidstone.text.vocabulary import BOS

Floats = NDArray[np.float64]
Tokens = Sequence[str]


@dataclass(frozen=True, eq=False)
class SignedSplit:
    """Z p+ and Z p- of every whole history.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> parts = signed_split(AddLambda(lam=1).fit(counts), counts)
    >>> parts.z([1]), parts.z([2])         # after 1: p = (1/2, 0, 1/2), p~ = (2/5, 1/5, 2/5)
    (0.2, 0.5)
    """

    table: BackoffTable
    """p~, on the trie that it shares with the counts"""
    plus: NDArray[np.float64]
    """the sparse part of Z p+; one per slot"""
    minus: NDArray[np.float64]
    """Z p-; one per slot"""
    empirical: NDArray[np.float64]
    """p; one per slot"""

    def slots(self, node: int) -> slice:
        """Where the followers of a whole history stand in `plus` and `minus`."""
        children = self.table.trie.children(node)
        shift = slot_shifts(self.table.trie)[len(self.table.trie.ngram(node))]
        return slice(children.start - shift, children.stop - shift)

    def z(self, history: Sequence[int]) -> float:
        """Z(h), the mass that smoothing moves; 0 for a history that the text does not have."""
        if self.table.order == 1:
            return round(float(self.minus.sum()), 15)
        node = whole_history(self.table, history)
        return 0.0 if node is None else round(float(self.minus[self.slots(node)].sum()), 15)


def signed_split(table: BackoffTable, counts: Counts) -> SignedSplit:
    """Split a table against the counts of the training text, whichever smoother or file it comes from.

    >>> from lidstone import AddLambda, Vocabulary, count
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> split = signed_split(AddLambda(lam=1).fit(counts), counts)
    >>> split.table.order
    2
    """
    require_whole(counts)
    table, counts = align(table, counts)
    trie = table.trie
    smoothed = table.ngram_probs
    nodes = whole_ngrams(trie)
    parents = trie.parents[nodes]
    lower = table.backoffs[parents] * smoothed[trie.suffixes[nodes]] if trie.order > 1 else np.zeros(len(nodes))
    totals = counts.totals[parents] if trie.order > 1 else np.full(len(nodes), counts.tokens)
    empirical = counts.counts[nodes] / np.maximum(totals, 1)
    delta = smoothed[nodes] - empirical  # (1): Z p+ is what is above zero, Z p- what is below
    return SignedSplit(table, np.maximum(delta, 0) - lower, np.maximum(-delta, 0), empirical)


def require_whole(counts: Counts) -> None:
    """Refuse counts that lack n-grams of the text."""
    if any(counts.thresholds):
        raise InputError(
            f"counts with thresholds {list(counts.thresholds)} do not give the empirical distribution",
            hint="count again without thresholds; the table itself may be fitted with them",
        )


def whole_ngrams(trie: Trie) -> NDArray[np.int64]:
    """The nodes that follow whole histories, in the order of their slots.

    At order 1 these are the words themselves: the one history is empty.
    """
    if trie.order == 1:
        return np.arange(trie.vocab_size)
    return np.concatenate([np.arange(block.start, block.stop) for block in trie.after_whole_histories()])


def slot_shifts(trie: Trie) -> list[int]:
    """For a whole history of length k, node - shifts[k] is the slot of its follower `node`."""
    shifts, slots = [0], 0
    for block in trie.after_whole_histories() if trie.order > 1 else ():
        shifts.append(block.start - slots)
        slots += block.stop - block.start
    return shifts


def whole_history(table: BackoffTable, history: Sequence[int]) -> int | None:
    """The node of a history that the trie has in full length, or None."""
    if table.order == 1:
        return None
    node = table.trie.find(list(history)[-(table.order - 1) :])
    whole = len(history) >= table.order - 1 or (len(history) > 0 and history[0] == table.vocab.bos)
    return node if whole and node >= 0 else None


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

    >>> from lidstone import AddLambda, Vocabulary, count
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> found = explain(AddLambda(lam=1).fit(counts), counts, [1])
    >>> found.p.tolist(), found.smoothed.round(1).tolist()  # after 1 came 2 and the end: (c + 1) / (2 + 3)
    ([0.5, 0.0, 0.5], [0.4, 0.2, 0.4])
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
