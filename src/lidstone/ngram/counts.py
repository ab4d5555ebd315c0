"""How often every n-gram of a text occurs: a trie and a count per node, and what smoothers derive from them.

For a history h, c(h) is the sum of c(h, w) over its followers: the count of h itself, unless h ends a sentence.
Thresholds drop rare n-grams from the trie after everything derived (continuation counts, counts of counts, totals)
has been taken from the full text, so what was dropped becomes mass for the order below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.deprecation import renamed_method
from lidstone.errors import InputError
from lidstone.ngram.continuation import adjusted_counts
from lidstone.ngram.counting import count_stream
from lidstone.ngram.identity import fingerprint
from lidstone.ngram.trie import Trie, check_order, restrict, sum_children
from lidstone.parallel import threads_for
from lidstone.text.datasets import check_vocabulary, id_rows, is_packed
from lidstone.text.display import html_table
from lidstone.text.parallel_words import read_words_in_parallel
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.windows import sentence_stream
from lidstone.text.words import Blank, Sources

LARGEST = 1 << 20
"""Larger counts share one entry among the counts of counts, so that these stay small"""
Sentences = Iterable[Sequence[int] | NDArray[np.integer]]


@dataclass(frozen=True, eq=False)
class Derived:
    """What the whole text says, kept when thresholds drop n-grams."""

    totals: NDArray[np.int32]
    """c(h) for each node that can be a history"""
    adjusted: NDArray[np.int32]
    """Kneser-Ney's count of each node: distinct words before it, or the plain count (top order, or after `<s>`)"""
    adjusted_totals: NDArray[np.int32]
    """the sum of `adjusted` over each history's followers"""
    histograms: tuple[NDArray[np.int64], ...]
    """counts of counts of each order: entry r is how many n-grams occur r times, or more at the last entry `LARGEST`"""
    adjusted_histograms: tuple[NDArray[np.int64], ...]
    """the same of the adjusted counts"""

    def restricted(self, keep: NDArray[np.bool_]) -> Derived:
        """The same for some of the nodes."""
        inner = keep[: len(self.totals)]
        return replace(
            self,
            totals=self.totals[inner],
            adjusted=self.adjusted[keep],
            adjusted_totals=self.adjusted_totals[inner],
        )


@dataclass(frozen=True, eq=False, repr=False)
class Counts:
    """Exact counts c(h, w) for the orders 1..n.

    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> counts.of([1, 2]), counts.of([1]), counts.of([counts.vocab.bos, 1])
    (1, 2, 2)
    """

    vocab: Vocabulary
    trie: Trie
    counts: NDArray[np.int32]
    """one per node; the count of `<s>` is the number of sentences"""
    thresholds: tuple[int, ...] = ()
    """n-grams of order k that occur thresholds[k-1] times or less were dropped"""
    stored: Derived | None = field(default=None, repr=False)
    """what was derived before n-grams were dropped or inserted; None where it follows from the counts"""

    full = renamed_method("full", "stored")

    def __repr__(self) -> str:
        """What was counted, on one line.

        >>> count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
        Counts(order=2, tokens=5, sentences=2, ngrams=[3, 4], vocabulary=3)
        """
        facts = self._facts()
        facts["thresholds"] = list(self.thresholds) if any(self.thresholds) else None
        return f"Counts({', '.join(f'{name}={value}' for name, value in facts.items() if value is not None)})"

    def _repr_html_(self) -> str:
        return html_table("Counts", {**self._facts(), "fingerprint": self.fingerprint})

    def _facts(self) -> dict[str, Any]:
        sizes = [int(np.count_nonzero(self.counts[self.trie.level(order)])) for order in range(1, self.order + 1)]
        sizes[0] -= 1  # <s>
        sentences = int(self.counts[self.vocab.bos])
        facts = {"order": self.order, "tokens": self.tokens, "sentences": sentences, "ngrams": sizes}
        return {**facts, "vocabulary": self.vocab.event_count}

    @property
    def order(self) -> int:
        """The longest n-gram's length."""
        return self.trie.order

    def of(self, ngram: Sequence[int]) -> int:
        """How often one n-gram, given as ids, occurs."""
        node = self.trie.find(ngram)
        return int(self.counts[node]) if node >= 0 else 0

    @cached_property
    def derived(self) -> Derived:
        """Totals, continuation counts and counts of counts of the whole text."""
        return self.stored or _derive(self)

    @property
    def is_derived(self) -> bool:
        """Whether `derived` is there already, or differs from what follows from the counts."""
        return self.stored is not None or "derived" in vars(self)

    @property
    def totals(self) -> NDArray[np.int32]:
        """c(h) for each node that can be a history."""
        return self.derived.totals

    @property
    def tokens(self) -> int:
        """How many tokens were counted, ends of sentences included, `<s>` not."""
        return int(self.counts[: self.vocab.size].sum())

    def counts_of_counts(self, order: int, *, adjusted: bool = False) -> NDArray[np.int64]:
        """Entry r is the number of distinct n-grams of this order that occur r times in the text; 1 <= r < 2^20.

        More frequent ones are all in the entry 2^20.
        """
        return (self.derived.adjusted_histograms if adjusted else self.derived.histograms)[order - 1]

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that tell counts apart: vocabulary, every n-gram and its count, and what thresholds dropped.

        N-grams without occurrences, which sharing a trie with a table inserts, make no difference.
        """
        return fingerprint(self)

    def drop(self, thresholds: Sequence[int]) -> Counts:
        """Without the n-grams of order k that occur thresholds[k-1] times or less (KenLM's --prune).

        >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2).drop([0, 1])
        >>> [counts.trie.ngram(node) for node in range(4, counts.trie.size)]
        [(3, 1)]
        """
        limits = _check_thresholds(thresholds, self.order)
        keep = np.ones(self.trie.size, bool)
        for order, limit in enumerate(limits[1:], start=2):
            level = self.trie.level(order)
            keep[level] = self.counts[level] > limit
        trie = restrict(self.trie, keep)
        return Counts(self.vocab, trie, self.counts[keep], limits, self.derived.restricted(keep))


def count(
    sentences: Sentences,
    vocab: Vocabulary,
    order: int,
    *,
    thresholds: Sequence[int] | None = None,
    append_eos: bool | None = None,
    tokenizer: Any = None,
    column: str | None = None,
) -> Counts:
    """Count the n-grams of orders 1..n in rows of ids: lists, arrays, a Hugging Face data set, or a column of one.

    With `append_eos=True` each row is a sentence and is closed with eos unless it ends with it; eos before it (a
    model's bos may be the same id) and more of it after the end (padding may be, too) are left out. With
    `append_eos=False` rows are blocks of a packed stream, in which eos alone ends a sentence. Left open, rows of one
    length, unpadded and with eos inside are taken for such blocks. A single array is one stream. Rows of text are
    encoded with `tokenizer`; `column` names the column of a data set, input_ids or text unless given.

    >>> count([[2, 1], [2]], Vocabulary(size=3, eos=0), order=1).counts.tolist()
    [2, 1, 2, 2]
    """
    check_order(order)
    if isinstance(sentences, np.ndarray) and sentences.ndim == 1:
        ids = sentences
    else:
        check_vocabulary(vocab)
        rows = id_rows(sentences, tokenizer, column)
        closed = not is_packed(rows, vocab) if append_eos is None else append_eos
        ids = flatten(rows, eos=vocab.eos if closed else None, padding=vocab.unpredictable)
    return count_ids(ids, vocab, order, thresholds=thresholds)


def count_text(
    sources: Sources,
    order: int,
    *,
    vocab: Vocabulary | None = None,
    thresholds: Sequence[int] | None = None,
    blank: Blank = "skip",
    show: bool = False,
) -> Counts:
    r"""Count the words of one text or several: paths, `-` for standard input, or open files; a line is a sentence.

    The vocabulary is that of the text unless given; then unknown words are counted as its `unk`. Lines without words
    are skipped; `blank="count"` makes them sentences of their end alone, as KenLM's lmplz does.

    >>> import io
    >>> counts = count_text(io.BytesIO(b"a b\nb\n"), order=2)
    >>> counts.of(counts.vocab.encode(["a", "b"])), counts.tokens
    (1, 5)
    """
    check_order(order)
    ids, vocab = read_words_in_parallel(sources, vocab, blank=blank, show=show)
    stream = sentence_stream(ids, vocab)
    del ids  # counting is where memory is highest, and needs the stream alone
    return _count(stream, vocab, order, thresholds)


def count_ids(
    ids: NDArray[np.integer], vocab: Vocabulary, order: int, *, thresholds: Sequence[int] | None = None
) -> Counts:
    """Count a stream of ids in which eos ends each sentence."""
    check_order(order)
    vocab.check_ids(ids)
    return _count(sentence_stream(np.ascontiguousarray(ids, np.int32), vocab), vocab, order, thresholds)


def _count(stream: NDArray[np.int32], vocab: Vocabulary, order: int, thresholds: Sequence[int] | None) -> Counts:
    limits = _check_thresholds(thresholds or [0], order)
    if not len(stream):
        raise InputError("there is nothing to count: no sentence has a token", hint="give some text")
    trie, counts = count_stream(stream, vocab.size, order, eos=vocab.eos)
    whole = Counts(vocab, trie, counts)
    return whole.drop(limits) if any(limits) else whole


def flatten(sentences: Sentences, *, eos: int | None, padding: Sequence[int] = ()) -> NDArray[np.int32]:
    """All sentences as one stream; each closed with `eos`, where given, unless it ends with it already.

    >>> flatten([[2, 1], [2, 0], []], eos=0).tolist()
    [2, 1, 0, 2, 0]
    >>> flatten([[2, 0, 3], [3, 3]], eos=0, padding=[3]).tolist()      # padding after the end is no new sentence
    [2, 0]
    >>> flatten([[0, 2, 0, 0], [0]], eos=0).tolist()                   # nor is eos around one
    [2, 0, 0]
    """
    parts: list[NDArray[np.int32]] = []
    end = np.array([] if eos is None else [eos], np.int32)
    for sentence in sentences:
        array = np.asarray(sentence)
        if eos is not None and array.ndim == 1 and array.size and array[-1] in padding:
            array = array[: np.flatnonzero(np.append(True, ~np.isin(array, padding)))[-1]]
        if not array.size:
            continue
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InputError(
                f"a sentence must be a sequence of ids, not {array.dtype} of shape {array.shape}",
                hint="encode the text first, or use count_text for words",
            )
        if array.max() > np.iinfo(np.int32).max or array.min() < 0:
            raise InputError(f"id {array.min() if array.min() < 0 else array.max()} is not an id of a vocabulary")
        if array[0] == eos or array[-1] == eos:
            inside = np.flatnonzero(array != eos)
            array = array[inside[0] : inside[-1] + 1] if inside.size else array[:0]
        parts += [array.astype(np.int32), end]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _derive(counts: Counts) -> Derived:
    trie = counts.trie
    totals = sum_children(trie.first, counts.counts)
    adjusted = np.concatenate([adjusted_counts(trie, counts.counts), counts.counts[trie.inner :]])
    adjusted[trie.vocab_size] = 0
    below = int(trie.levels[max(trie.order - 2, 0)])  # the rest have followers of the top order, where counts are plain
    adjusted_totals = np.concatenate([sum_children(trie.first[: below + 1], adjusted), totals[below:]])
    levels = [trie.level(order) for order in range(1, trie.order + 1)]
    words = counts.counts[levels[0]].copy()
    words[trie.vocab_size] = 0  # <s> is never predicted
    plain = [words, *(counts.counts[level] for level in levels[1:])]
    with ThreadPoolExecutor(threads_for(trie.size)) as pool:
        found = list(pool.map(_histogram, [*plain, *(adjusted[level] for level in levels[:-1])]))
    histograms, adjusted_histograms = found[: trie.order], found[trie.order :]
    return Derived(totals, adjusted, adjusted_totals, tuple(histograms), (*adjusted_histograms, histograms[-1]))


def _histogram(values: NDArray[np.int32]) -> NDArray[np.int64]:
    """How many values are 0, 1, 2, .. `LARGEST` or more; as np.bincount, which would make a copy of the values."""
    if values.min(initial=0) < 0:
        raise InputError("a count is negative", hint="count the text again")
    histogram = np.zeros(min(int(values.max(initial=0)), LARGEST) + 1, np.int64)
    _count_values(values, histogram)
    return histogram


@njit(cache=True, nogil=True)
def _count_values(values, histogram):  # type: ignore[no-untyped-def]
    for value in values:
        histogram[min(np.uint64(value), np.uint64(len(histogram) - 1))] += 1


def _check_thresholds(thresholds: Sequence[int], order: int) -> tuple[int, ...]:
    given = [int(limit) for limit in thresholds]
    limits = (given + given[-1:] * order)[:order]
    if len(given) > order or limits[0] != 0 or min(limits) < 0 or sorted(limits) != limits:
        raise InputError(
            f"thresholds {given} do not fit order {order}",
            hint="give one per order, lowest first: 0 for words, then never decreasing, such as 0 0 1",
        )
    return tuple(limits)
