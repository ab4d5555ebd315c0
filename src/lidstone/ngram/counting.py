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

MAX_POSITIONS = 2**31 - 1
POSITION_BITS = 32


def count_stream(
    stream: NDArray[np.int32], vocab_size: int, order: int, *, eos: int | None = None
) -> tuple[Trie, NDArray[np.int64]]:
    """The trie of a stream's n-grams of orders 1..n, and how often each occurs.

    >>> trie, counts = count_stream(np.array([2, 0, 1, 2, 0, 1], np.int32), vocab_size=2, order=2)
    >>> [(trie.ngram(node), int(counts[node])) for node in range(trie.size)]
    [((0,), 2), ((1,), 2), ((2,), 2), ((0, 1), 2), ((2, 0), 2)]

    The stream begins with `<s>`. Give `eos` where sentences end with it: that saves a look at every position.
    """
    if len(stream) > MAX_POSITIONS:
        raise InputError(f"{len(stream):,} tokens are more than the {MAX_POSITIONS:,} that can be counted at once")
    terminated = eos is not None and _all_end_with(stream, eos, vocab_size)
    words = np.arange(vocab_size + 1, dtype=np.int32)
    suffixes = np.full(vocab_size + 1, -1, np.int32)
    counts = np.bincount(stream, minlength=vocab_size + 1)
    first = np.empty(0, np.int32)
    bounds = [0, vocab_size + 1]
    blocks: NDArray = np.arange(vocab_size + 2)  # where, in this order, the nodes that begin with word w start
    entries = np.empty(len(stream), np.int32)
    _sort_by_word(stream, _offsets(counts)[:-1], entries)
    for length in range(1, order):
        start, stop = bounds[-2:]
        if terminated:
            followed = np.where(words[start:] == eos, 0, counts[start:])
        else:
            followed = _followed(stream, entries, counts[start:], start, length)
        offsets = _offsets(followed)
        shift = (
            POSITION_BITS if length < order - 1 else 0
        )  # the top order is not extended: its entries need no position
        extended = np.empty(offsets[-1], np.int64 if shift else np.int32)
        inside = counts[start : start + blocks[vocab_size]]  # the rest begin with <s>, and nothing comes before
        if length == 1:
            _extend_words(stream, entries, inside, offsets[blocks[:-1]], extended, shift)
        else:
            _extend(stream, entries[: inside.sum()], offsets[blocks[:-1]], extended, shift)
        del inside  # no view may outlive the growing of its array
        entries = extended
        bounds.append(stop + _count_groups(entries, followed, shift))
        _grow(first, stop + 1)
        for array in (words, suffixes, counts):
            _grow(array, bounds[-1])
        _group(entries, followed, start, stop, shift, first, words, suffixes, counts)
        blocks = first[start + blocks] - stop
    _grow(first, bounds[-2] + 1)
    first[-1] = bounds[-1]
    return Trie(np.array(bounds), words, suffixes, first), counts


def _grow(array: NDArray, size: int) -> None:
    """Lengthen an array in place; the system moves its pages instead of copying them."""
    array.resize(size, refcheck=False)


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)])


def _all_end_with(stream: NDArray[np.int32], eos: int, bos: int) -> bool:
    ends = np.append(np.flatnonzero(stream == bos)[1:], len(stream)) - 1
    return bool((stream[ends] == eos).all())


# An entry is a position and the node of the k-gram that starts there, in one integer: one memory access, not two.
# Entries of unigrams are positions alone, for the stream has the word; those of the top order are nodes alone.


@njit(cache=True, nogil=True)
def _sort_by_word(stream, starts, entries):  # type: ignore[no-untyped-def]
    """The entries of the unigrams: positions sorted by word."""
    for position in range(len(stream)):
        word = stream[position]
        entries[starts[word]] = position
        starts[word] += 1


@njit(cache=True, nogil=True)
def _followed(stream, entries, counts, base, length):  # type: ignore[no-untyped-def]
    """How many occurrences of each node have a next word in their sentence."""
    bos = stream[0]
    followed = counts.copy()
    for entry in entries:
        start = entry & 0xFFFFFFFF
        if start + length == len(stream) or stream[start + length] == bos:
            followed[stream[start] if length == 1 else (entry >> 32) - base] -= 1
    return followed


@njit(cache=True, nogil=True)
def _extend_words(stream, entries, counts, starts, extended, shift):  # type: ignore[no-untyped-def]
    """`_extend` from unigrams to bigrams, where an entry is a position alone."""
    start = 0
    for word in range(len(counts)):
        for i in range(start, start + counts[word]):
            before = stream[entries[i] - 1]
            extended[starts[before]] = np.int64(word) << 32 | (entries[i] - 1) if shift else word
            starts[before] += 1
        start += counts[word]


@njit(cache=True, nogil=True)
def _extend(stream, entries, starts, extended, shift):  # type: ignore[no-untyped-def]
    """From the order by k-grams to that by (k+1)-grams; until `_group`, an entry holds the node of its suffix."""
    for entry in entries:
        word = stream[(entry & 0xFFFFFFFF) - 1]
        extended[starts[word]] = entry - 1 if shift else entry >> 32
        starts[word] += 1


@njit(cache=True, nogil=True)
def _count_groups(entries, followed, shift):  # type: ignore[no-untyped-def]
    """How many runs of one suffix under one parent there are."""
    groups, end = 0, 0
    for size in followed:
        for i in range(end, end + size):
            groups += i == end or entries[i] >> shift != entries[i - 1] >> shift
        end += size
    return groups


@njit(cache=True, nogil=True)
def _group(entries, followed, base, next_base, shift, first, words, suffixes, counts):  # type: ignore[no-untyped-def]
    """Runs of one suffix under one parent are one new node; the entries are given its id in place."""
    node, end = next_base - 1, 0
    for parent in range(len(followed)):
        first[base + parent] = node + 1
        suffix = -1
        for i in range(end, end + followed[parent]):
            if entries[i] >> shift != suffix:
                suffix = entries[i] >> shift
                node += 1
                words[node], suffixes[node], counts[node] = words[suffix], suffix, 0
            counts[node] += 1
            if shift:
                entries[i] = np.int64(node) << 32 | (entries[i] & 0xFFFFFFFF)
        end += followed[parent]
    first[next_base] = node + 1
