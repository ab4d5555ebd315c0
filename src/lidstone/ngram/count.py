"""Counting all n-grams of a stream at once, without hashing.

Sort the positions of the stream by the k-gram that starts there. Then the (k+1)-grams need no new sort: walk the
positions in that order and put each one's predecessor p-1 into the bucket of its word. Since the walk is already in
the order of the last k words, every bucket ends up sorted by all k+1, and the k-gram we came from is the suffix link.
That is one scatter per order, linear in the text, and the n-grams come out in the trie's own order.

    stream   <s> a b </s>            order 1: a, b, </s>, <s>      order 2: a b, b </s>, <s> a

Sentences end with eos or simply stop before the next `<s>`; an n-gram never crosses a `<s>`.

Threads share the walk by ranges of first words. Where the range of a thread begins within the bucket of a word w is
known without counting: at the n-grams that begin with w and a word of that range, a place in the trie so far. So every
thread writes to places of its own, and the result does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram import count_kernels as kernels
from lidstone.ngram.trie import Trie
from lidstone.parallel import equal_ranges, num_shares, threads_for

MAX_NODES = 2**31 - 1
POSITION_BITS = 32


def count_stream(
    stream: NDArray[np.int32], vocab_size: int, order: int, *, eos: int | None = None, threads: int | None = None
) -> tuple[Trie, NDArray[np.int32]]:
    """The trie of a stream's n-grams of orders 1..n, and how often each occurs. The stream is used up.

    >>> trie, counts = count_stream(np.array([2, 0, 1, 2, 0, 1], np.int32), vocab_size=2, order=2)
    >>> [(trie.ngram(node), int(counts[node])) for node in range(trie.size)]
    [((0,), 2), ((1,), 2), ((2,), 2), ((0, 1), 2), ((2, 0), 2)]

    The stream begins with `<s>`. Give `eos` where sentences end with it: that saves a look at every position. All
    cores are used for long streams unless `threads` says otherwise.
    """
    most = vocab_size + 1 + (order - 1) * len(stream)  # nodes; pages of memory that are never written cost nothing
    if most > MAX_NODES:
        raise InputError(
            f"{len(stream):,} tokens may have more n-grams of {order} orders than fit at once, {MAX_NODES:,}",
            hint="count a lower order, or less text, or files with --memory",
        )
    threads = threads_for(len(stream)) if threads is None else threads
    with ThreadPoolExecutor(threads) as pool:
        return _Counter(stream, vocab_size, order, eos, most, threads, pool).run()


class _Counter:
    """The trie so far. Nodes of the last level are counted from its start in `blocks` and `places`."""

    def __init__(
        self,
        stream: NDArray[np.int32],
        vocab_size: int,
        order: int,
        eos: int | None,
        most: int,
        threads: int,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.stream, self.vocab_size, self.order, self.pool = stream, vocab_size, order, pool
        self.words, self.suffixes, self.first = (np.empty(most + 1, np.int32) for _ in range(3))
        self.counts = np.empty(most, np.int32)
        self.bounds = [0, vocab_size + 1]
        self.words[: vocab_size + 1], self.suffixes[: vocab_size + 1] = np.arange(vocab_size + 1), -1
        self.parts = equal_ranges(len(stream), threads)
        self.tallies = np.zeros((threads, vocab_size + 1), np.int32)
        no_eos = -1 if eos is None else eos
        calls = [(kernels.count_words, stream, *p, no_eos, t) for p, t in zip(self.parts, self.tallies, strict=True)]
        self.eos = eos if all(self._run(calls)) else None  # if it ends every sentence
        self.counts[: vocab_size + 1] = self.tallies.sum(axis=0)
        self.cuts = _cuts(self.counts[:vocab_size], threads)
        self.fine_cuts = [*_cuts(self.counts[:vocab_size], num_shares(threads)).tolist(), vocab_size + 1]
        self.blocks: NDArray[Any] = np.arange(vocab_size + 2)  # where the nodes that begin with a word start
        self.places: NDArray[Any] = self.blocks[:-1, None]  # (V + 1, threads): where each share of them starts
        self.buffers = [np.empty(len(stream), np.int64) for _ in range(min(order - 2, 2))]

    def run(self) -> tuple[Trie, NDArray[np.int32]]:
        """Count order by order."""
        entries = self._sorted_by_word()
        for length in range(1, self.order):
            followed = self._followed(entries, length)
            starts, size = self._starts(followed, length)
            entries = self._scatter(entries, starts, size, length)
            self._group(entries, followed, starts[:, 0], _shift(length, self.order))
        self.first[self.bounds[-2]] = self.bounds[-1]
        sizes = {"words": self.bounds[-1], "suffixes": self.bounds[-1], "counts": self.bounds[-1]}
        for name, size in {**sizes, "first": self.bounds[-2] + 1}.items():
            getattr(self, name).resize(size, refcheck=False)
        return Trie(np.array(self.bounds), self.words, self.suffixes, self.first), self.counts

    def _sorted_by_word(self) -> NDArray[np.int64]:
        """The entries of the unigrams; each thread sorts a part of the stream."""
        entries = self.buffers[0] if len(self.buffers) == 2 else np.empty(len(self.stream), np.int64)
        before = np.cumsum(self.tallies, axis=0) - self.tallies  # occurrences in the parts before
        words = self.counts[: self.vocab_size + 1]
        starts = (np.cumsum(words, dtype=np.int64) - words + before).astype(np.uint32)
        shared = entries, self.order == 2 and self.eos is not None
        stream = self.stream.view(np.uint32)
        self._run([(kernels.sort_by_word, stream, *p, s, *shared) for p, s in zip(self.parts, starts, strict=True)])
        return entries

    def _followed(self, entries: NDArray[Any], length: int) -> NDArray[np.int32]:
        """How many occurrences of each node of the last level have a next word in their sentence."""
        start, stop = self.bounds[-2:]
        counts = self.counts[start:stop]
        if self.eos is not None:
            left = np.empty(stop - start, np.int32)
            ranges = equal_ranges(len(left), len(self.parts))
            arrays = counts, self.words[start:stop], left
            self._run([(kernels.without, self.eos, *(array[slice(*pair)] for array in arrays)) for pair in ranges])
            return left
        followed: NDArray[np.int32] = kernels.followed(self.stream, entries, counts, start, length)
        return followed

    def _starts(self, followed: NDArray[np.int32], length: int) -> tuple[NDArray[np.int64], int]:
        """(V + 1, threads): where the n-grams go that begin with a word and have their second in a share; how many."""
        found = self._sums_at(followed, np.append(self.places, len(followed)))
        sums, size = found[:-1].reshape(self.places.shape), int(found[-1])
        if length > 1 or len(self.cuts) == 2:
            return sums, size
        shares = np.searchsorted(self.cuts[1:-1], np.arange(self.vocab_size), side="right").astype(np.uint16)
        found = np.zeros((len(self.parts), self.vocab_size + 1, len(self.cuts) - 1), np.int32)
        self._run([(kernels.count_pairs, self.stream, *p, shares, f) for p, f in zip(self.parts, found, strict=True)])
        pairs = found.sum(axis=0)
        return np.cumsum(pairs, axis=1) - pairs + sums, size

    def _sums_at(self, values: NDArray[np.int32], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum of the values before each position; positions are ascending."""
        ranges = equal_ranges(len(values), len(self.parts))
        shares = np.split(positions, np.searchsorted(positions, [begin for begin, _ in ranges[1:]]))
        pairs = zip(ranges, shares, strict=True)
        sums = self._run([(kernels.sums_at, values[b:e], np.append(share - b, e - b)) for (b, e), share in pairs])
        before = np.cumsum([0, *(found[-1] for found in sums)])
        return np.concatenate([found[:-1] + start for found, start in zip(sums, before[:-1], strict=True)])

    def _scatter(self, entries: NDArray[Any], starts: NDArray[np.int64], size: int, length: int) -> NDArray[Any]:
        """The entries of the n-grams one word longer than `length`, in their order."""
        shift = _shift(length, self.order)
        if shift:
            extended: NDArray[Any] = self.buffers[length % len(self.buffers)][:size]
        else:
            self.buffers.clear()  # one is in use as `entries` still
            extended = (
                np.empty(size, np.int32) if self.eos is None else self.stream[:size]
            )  # entries hold what is needed
        base = self.bounds[-2]
        ends = self._sums_at(self.counts[base : self.bounds[-1]], self.blocks[self.cuts]).tolist()
        stream = self.stream.view(np.uint32)
        word_before = self.eos is not None and length == self.order - 2  # without eos, `followed` needs positions
        calls: list[tuple[Any, ...]] = []
        for share, (begin, end) in enumerate(pairwise(ends)):
            own, to = entries[begin:end], starts[:, share].astype(np.uint32)
            if not shift and self.eos is not None:
                calls.append((kernels.extend_last, own, to, extended))
            else:
                calls.append((kernels.extend, stream, own, to, extended, shift, word_before))
        self._run(calls)
        return extended

    def _group(
        self, entries: NDArray[Any], followed: NDArray[np.int32], offsets: NDArray[np.int64], shift: int
    ) -> None:
        """Add a level: the runs of equal entries below each node of the last one."""
        start, stop = self.bounds[-2:]
        parents = [slice(*map(int, pair)) for pair in pairwise(self.blocks[self.fine_cuts])]
        begins = [*(int(offsets[cut]) for cut in self.fine_cuts[:-1]), len(entries)]
        shares = [entries[slice(*pair)] for pair in pairwise(begins)]
        sizes = self._run([(kernels.count_groups, e, followed[p], shift) for e, p in zip(shares, parents, strict=True)])
        nodes = np.cumsum([stop, *sizes]).tolist()
        arrays = self.first, self.words, self.suffixes, self.counts
        self._run(
            [
                (kernels.group, own, followed[part], start + part.start, node, shift, *arrays)
                for own, part, node in zip(shares, parents, nodes[:-1], strict=True)
            ]
        )
        self.first[stop] = nodes[-1]
        self.bounds.append(nodes[-1])
        self._descend(start, stop)

    def _descend(self, start: int, stop: int) -> None:
        """Move `blocks` and `places` on to the new level."""
        if start:
            self.places = self.first[start + self.places] - stop
        else:
            self.places = np.empty((stop, len(self.cuts) - 1), np.int64)
            kernels.cut_children(self.first, self.words, self.cuts[:-1], self.places)
        self.blocks = self.first[start + self.blocks] - stop

    def _run(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call kernels at the same time."""
        if len(calls) == 1:
            return [calls[0][0](*calls[0][1:])]
        return [future.result() for future in [self.pool.submit(*call) for call in calls]]


def _cuts(counts: NDArray[np.int32], shares: int) -> NDArray[np.int64]:
    """Words at which shares of about equally many tokens begin, and the end.

    >>> _cuts(np.array([5, 1, 2, 2], np.int32), 2).tolist()
    [0, 1, 4]
    """
    sums = np.cumsum(counts, dtype=np.int64)
    cuts = np.searchsorted(sums, int(sums[-1]) * np.arange(1, shares) / shares, side="left") + 1
    return np.concatenate([[0], np.minimum(cuts, len(counts)), [len(counts)]]).astype(np.int64)


def _shift(length: int, order: int) -> int:
    """How many bits of the next entries are for the position: none at the top order, which is not extended."""
    return POSITION_BITS if length < order - 1 else 0
