"""How often every n-gram of a text occurs: a trie and a count per node, and what smoothers derive from them.

For a history h, c(h) is the sum of c(h, w) over its followers: the count of h itself, unless h ends a sentence.
Thresholds drop rare n-grams from the trie after everything derived (continuation counts, counts of counts, totals)
has been taken from the full text, so what was dropped becomes mass for the order below.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.adjusted import LARGEST, Derived, derive
from lidstone.ngram.count import count_stream
from lidstone.ngram.trie import Trie, check_order, chunks, restrict
from lidstone.text.datasets import Sentences, check_vocabulary, id_stream
from lidstone.text.history import sentence_stream
from lidstone.text.vocabulary import Vocabulary, html_table
from lidstone.text.words import Blank, Sources, read_words

Item = TypeVar("Item")
Result = TypeVar("Result")


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
        return self.stored or derive(self.trie, self.counts)

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

    def over(self, work: Callable[[Counts, Item], Result], parts: Iterable[Item]) -> Iterator[Result]:
        """work(counts, part) for each part, in order: here, or by tasks where counts in a file are fitted.

        >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
        >>> list(counts.over(lambda counts, part: int(counts.counts[part].sum()), [slice(0, 2), slice(2, 4)]))
        [4, 3]
        """
        if "run" in vars(self):
            yield from vars(self)["run"](work, parts)
        else:
            yield from (work(self, part) for part in parts)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that tell counts apart: vocabulary, every n-gram and its count, and what thresholds dropped.

        N-grams without occurrences, which sharing a trie with a table inserts, make no difference.
        """
        arrays = identifying_arrays(without_zeros(self))
        with ThreadPoolExecutor(4) as pool:  # hashing does not hold Python's lock
            digests = pool.map(lambda part: digest(arrays[part[0]][part[1]]), hashed_parts(arrays))
            return join_digests(self.vocab, arrays, digests)

    def save(self, path: str | Path) -> None:
        """Write the counts as safetensors; `lidstone.load` maps them back into memory."""
        from lidstone.ngram.formats.safetensors import save

        save(self, path)

    def drop(self, thresholds: Sequence[int]) -> Counts:
        """Without the n-grams of order k that occur thresholds[k-1] times or less (KenLM's --prune).

        >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2).drop([0, 1])
        >>> [counts.trie.ngram(node) for node in range(4, counts.trie.size)]
        [(3, 1)]
        """
        before = self.thresholds or (0,) * self.order
        limits = tuple(map(max, check_thresholds(thresholds, self.order), before))
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

    A row is a sentence and is closed with eos unless it ends with it; eos before it (a model's bos may be the same id)
    and more of it after the end (padding may be, too) are left out. There are two exceptions. Rows that mostly end with
    eos and the same one to four ids (ChatML: `<|im_end|>`, newline) are chats, and no row of them is closed. Unpadded
    rows of one length are blocks of a packed stream, in which eos alone ends a sentence: two rows with eos inside; or
    four rows of eight ids or more without any eos, and a warning. `append_eos=True` closes every row;
    `append_eos=False` reads any rows as blocks.

    A single array is one stream. Rows of text are encoded with `tokenizer`; `column` names the column of a data set,
    input_ids or text unless given.

    >>> count([[2, 1], [2]], Vocabulary(size=3, eos=0), order=1).counts.tolist()
    [2, 1, 2, 2]
    """
    check_order(order)
    check_vocabulary(vocab)
    stream = id_stream(sentences, vocab, append_eos=append_eos, tokenizer=tokenizer, column=column)
    return _count(stream, vocab, order, thresholds)


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
    ids, vocab = read_words(sources, vocab, blank=blank, show=show)
    stream = sentence_stream(ids, vocab)
    del ids  # counting is where memory is highest, and needs the stream alone
    return _count(stream, vocab, order, thresholds)


def _count(stream: NDArray[np.int32], vocab: Vocabulary, order: int, thresholds: Sequence[int] | None) -> Counts:
    limits = check_thresholds([0] if thresholds is None else thresholds, order)
    if not len(stream):
        raise InputError("there is nothing to count: no sentence has a token", hint="give some text")
    trie, counts = count_stream(stream, vocab.size, order, eos=vocab.eos)
    whole = Counts(vocab, trie, counts)
    return whole.drop(limits) if any(limits) else whole


def check_thresholds(thresholds: Sequence[int], order: int) -> tuple[int, ...]:
    """One threshold per order; the last given one is repeated.

    >>> check_thresholds([0, 1], order=3)
    (0, 1, 1)
    """
    given = [int(limit) for limit in thresholds]
    limits = (given + given[-1:] * order)[:order]
    if len(given) > order or limits[0] != 0 or min(limits) < 0 or sorted(limits) != limits:
        raise InputError(
            f"thresholds {given} do not fit order {order}",
            hint="give one per order, lowest first: 0 for words, then never decreasing, such as 0 0 1",
        )
    return tuple(limits)


def without_zeros(counts: Counts) -> Counts:
    """Without the n-grams that do not occur."""
    trie, values = counts.trie, counts.counts
    longer = chunks(slice(trie.vocab_size + 1, trie.size), 1 << 23)
    if all((values[part] > 0).all() for part in longer):  # counts in a file are not copied
        return counts
    keep = np.asarray(values > 0)
    keep[: trie.vocab_size + 1] = True
    derived = counts.derived.restricted(keep) if any(counts.thresholds) else None
    return Counts(counts.vocab, restrict(trie, keep), values[keep], counts.thresholds, derived)


def identifying_arrays(counts: Counts) -> list[NDArray[Any]]:
    """Structure (levels, first), words and counts; with thresholds, what was derived from the whole text, too."""
    found: list[NDArray[Any]] = [counts.trie.levels, counts.trie.first, counts.trie.words, counts.counts]
    if any(counts.thresholds):
        derived = counts.derived
        found += [derived.totals, derived.adjusted, derived.adjusted_totals]
        found += [array[:LARGEST] for array in (*derived.histograms, *derived.adjusted_histograms)]
    return found


HASHED_BYTES = 1 << 30
"""Longer arrays are hashed in parts, by several threads or machines."""


def hashed_parts(arrays: Sequence[NDArray[Any]]) -> list[tuple[int, slice]]:
    """The parts of arrays that are hashed one by one: the number of the array, and where; empty ones have one, too."""
    return [
        (number, part)
        for number, array in enumerate(arrays)
        for part in (*chunks(slice(0, len(array)), HASHED_BYTES // array.itemsize),) or (slice(0, 0),)
    ]


def digest(array: NDArray[Any]) -> bytes:
    """Of the length and the values, whatever the machine's byte order; arrays of a file are read part by part."""
    from lidstone.ngram.formats.checked_tensors import byte_blocks

    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    found: bytes = _hash([f"{plain.dtype.str} {len(plain)}".encode()], byte_blocks(plain)).digest()
    return found


def join_digests(vocab: Vocabulary, arrays: Sequence[NDArray[Any]], digests: Iterable[bytes]) -> str:
    """The fingerprint of counts from the digests of all parts of their arrays."""
    by_array: list[list[bytes]] = [[] for _ in arrays]
    for (number, _), found in zip(hashed_parts(arrays), digests, strict=True):
        by_array[number].append(found)
    joined = [found[0] if len(found) == 1 else _hash(found).digest() for found in by_array]
    return str(_hash([vocab.fingerprint.encode()], joined).hexdigest())


def _hash(*parts: Iterable[bytes | memoryview]) -> Any:
    digest = hashlib.blake2b(digest_size=8)
    for part in chain(*parts):
        digest.update(part)
    return digest
