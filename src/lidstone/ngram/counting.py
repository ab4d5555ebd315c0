"""Counting all n-grams of a stream at once, without hashing.

Sort the positions of the stream by the k-gram that starts there. Then the (k+1)-grams need no new sort: walk the
positions in that order and put each one's predecessor p-1 into the bucket of its word. Since the walk is already in
the order of the last k words, every bucket ends up sorted by all k+1, and the k-gram we came from is the suffix link.
That is one scatter per order, linear in the text, and the n-grams come out in the trie's own order.

    stream   <s> a b </s>            order 1: a, b, </s>, <s>      order 2: a b, b </s>, <s> a

Sentences end with eos or simply stop before the next `<s>`; an n-gram never crosses a `<s>`.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.trie import Trie

MAX_NODES = 2**31 - 1
POSITION_BITS = 32


def count_stream(
    stream: NDArray[np.int32], vocab_size: int, order: int, *, eos: int | None = None
) -> tuple[Trie, NDArray[np.int32]]:
    """The trie of a stream's n-grams of orders 1..n, and how often each occurs. The stream is used up.

    >>> trie, counts = count_stream(np.array([2, 0, 1, 2, 0, 1], np.int32), vocab_size=2, order=2)
    >>> [(trie.ngram(node), int(counts[node])) for node in range(trie.size)]
    [((0,), 2), ((1,), 2), ((2,), 2), ((0, 1), 2), ((2, 0), 2)]

    The stream begins with `<s>`. Give `eos` where sentences end with it: that saves a look at every position.
    """
    most = vocab_size + 1 + (order - 1) * len(stream)  # nodes; pages of memory that are never written cost nothing
    if most > MAX_NODES:
        raise InputError(
            f"{len(stream):,} tokens may have more n-grams of {order} orders than fit at once, {MAX_NODES:,}",
            hint="count a lower order, or less text",
        )
    terminated = eos is not None and bool((_last_words(stream) == eos).all())
    words, suffixes, first = (np.empty(most + 1, np.int32) for _ in range(3))
    counts = np.empty(most, np.int32)
    bounds = [0, vocab_size + 1]
    words[: bounds[1]], suffixes[: bounds[1]] = np.arange(bounds[1]), -1
    counts[: bounds[1]] = np.bincount(stream, minlength=bounds[1])
    blocks: NDArray = np.arange(vocab_size + 2)  # where, in this order, the nodes that begin with word w start
    entries = np.empty(len(stream), np.int32)
    _sort_by_word(stream.view(np.uint32), _offsets(counts[: bounds[1]])[:-1].astype(np.uint32), entries, order == 2)
    for length in range(1, order):
        start, stop = bounds[-2:]
        if terminated:
            followed = np.where(words[start:stop] == eos, 0, counts[start:stop])
        elif length == 1:
            followed = counts[start:stop] - np.bincount(_last_words(stream), minlength=bounds[1])
        else:
            followed = _followed(stream, entries, counts[start:stop], start, length)
        offsets = _offsets(followed)
        inside = counts[start : start + blocks[vocab_size]]  # the rest begin with <s>, and nothing comes before
        starts = offsets[blocks[:-1]].astype(np.uint32)
        entries = _extended(stream, entries, inside, starts, int(offsets[-1]), length, order)
        shift = _shift(length, order)
        bounds.append(_group(entries, followed, start, stop, shift, first, words, suffixes, counts))
        blocks = first[start + blocks] - stop
    first[bounds[-2]] = bounds[-1]
    for array, size in ((words, bounds[-1]), (suffixes, bounds[-1]), (counts, bounds[-1]), (first, bounds[-2] + 1)):
        array.resize(size, refcheck=False)
    return Trie(np.array(bounds), words, suffixes, first), counts


def _extended(
    stream: NDArray, entries: NDArray, counts: NDArray, starts: NDArray, size: int, length: int, order: int
) -> NDArray:
    """The entries of the n-grams one word longer than `length`."""
    if order == 2:
        extended = stream[:size]  # the entries hold all that is still needed of the stream
        _extend_pairs(entries.view(np.uint32), counts, starts, extended)
        return extended
    shift = _shift(length, order)
    extended = np.empty(size, np.int64 if shift else np.int32)
    if length == 1:
        _extend_words(stream.view(np.uint32), entries.view(np.uint32), counts, starts, extended)
    else:
        _extend(stream.view(np.uint32), entries[: counts.sum()], starts, extended, shift)
    return extended


def _shift(length: int, order: int) -> int:
    """How many bits of the next entries are for the position: none at the top order, which is not extended."""
    return POSITION_BITS if length < order - 1 else 0


def _offsets(sizes: NDArray[np.int32]) -> NDArray[np.int64]:
    offsets = np.empty(len(sizes) + 1, np.int64)
    offsets[0] = 0
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _last_words(stream: NDArray[np.int32]) -> NDArray[np.int32]:
    """The last word of each sentence."""
    return stream[np.append(np.flatnonzero(stream == stream[0])[1:], len(stream)) - 1]


# An entry is a position and the node of the k-gram that starts there, in one integer: one memory access, not two.
# Entries of unigrams are positions alone, for the stream has the word; those of the top order are nodes alone. Where
# pairs are the top order, entries of unigrams are the words before them. Whatever indexes an array is unsigned: numba
# looks at the sign of other integers, to count from the end, at every access.


@njit(cache=True, nogil=True)
def _sort_by_word(stream, starts, entries, pairs):  # type: ignore[no-untyped-def]
    """The entries of the unigrams, sorted by word."""
    before = stream[0]
    for position in range(len(stream)):
        word = stream[position]
        entries[starts[word]] = before if pairs else position
        starts[word] += np.uint32(1)
        before = word


@njit(cache=True, nogil=True)
def _followed(stream, entries, counts, base, length):  # type: ignore[no-untyped-def]
    """How many occurrences of each node have a next word in their sentence."""
    bos = stream[0]
    followed = counts.copy()
    for entry in entries:
        start = entry & 0xFFFFFFFF
        if start + length == len(stream) or stream[start + length] == bos:
            followed[(entry >> 32) - base] -= 1
    return followed


@njit(cache=True, nogil=True)
def _extend_pairs(entries, counts, starts, extended):  # type: ignore[no-untyped-def]
    """`_extend` from unigrams to bigrams where these are the top order."""
    start = 0
    for word in range(len(counts)):
        for before in entries[start : start + counts[word]]:
            extended[starts[before]] = word
            starts[before] += np.uint32(1)
        start += counts[word]


@njit(cache=True, nogil=True)
def _extend_words(stream, entries, counts, starts, extended):  # type: ignore[no-untyped-def]
    """`_extend` from unigrams to bigrams, where an entry is a position alone."""
    start = 0
    for word in range(len(counts)):
        for position in entries[start : start + counts[word]]:
            before = stream[position - np.uint32(1)]
            extended[starts[before]] = np.int64(word) << 32 | np.int64(position - np.uint32(1))
            starts[before] += np.uint32(1)
        start += counts[word]


@njit(cache=True, nogil=True)
def _extend(stream, entries, starts, extended, shift):  # type: ignore[no-untyped-def]
    """From the order by k-grams to that by (k+1)-grams; until `_group`, an entry holds the node of its suffix."""
    for i in range(len(entries)):
        entry = entries[i]
        word = stream[np.uint32(entry) - np.uint32(1)]
        extended[starts[word]] = entry - 1 if shift else entry >> 32
        starts[word] += np.uint32(1)


@njit(cache=True, nogil=True)
def _group(entries, followed, base, next_base, shift, first, words, suffixes, counts):  # type: ignore[no-untyped-def]
    """Runs of one suffix under one parent are one new node; the entries are given its id. Returns the next free id."""
    node, i, end = next_base, 0, 0
    for parent in range(len(followed)):
        first[base + parent] = node
        end += followed[parent]
        while i < end:
            start, suffix = i, entries[i] >> shift
            while i < end and entries[i] >> shift == suffix:
                if shift:
                    entries[i] = np.int64(node) << 32 | (entries[i] & 0xFFFFFFFF)
                i += 1
            words[node], suffixes[node], counts[node] = words[np.uint32(suffix)], suffix, i - start
            node += 1
    first[next_base] = node
    return node
