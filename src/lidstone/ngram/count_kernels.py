"""The compiled loops of counting.

An entry is a position and the node of the k-gram that starts there, in one integer: one memory access, not two.
Entries of the top order are nodes alone. One order below, the word before is there instead of the position where
possible: it is next to a word that is read anyway. Whatever indexes an array is unsigned: numba looks at the sign of
other integers, to count from the end, at every access.
"""

from __future__ import annotations

import numpy as np

from lidstone.jit import kernel
from lidstone.text.memory import prefetch_item

AHEAD = 32
"""How many entries before its use a word is asked for: about as long as memory takes to answer."""


@kernel
def count_words(stream, begin, end, eos, counts):  # type: ignore[no-untyped-def]
    """Count the words of a part of the stream; whether `eos` ends every sentence that ends in it."""
    bos, closed = stream[0], True
    before = stream[begin - 1] if begin else eos
    for position in range(begin, end):
        word = stream[position]
        counts[np.uint32(word)] += 1
        closed &= word != bos or before == eos
        before = word
    return closed and (end < len(stream) or before == eos)


@kernel
def sort_by_word(stream, begin, end, starts, entries, pairs):  # type: ignore[no-untyped-def]
    """The entries of the unigrams of a part of the stream, sorted by word."""
    before = stream[begin - 1] if begin else stream[0]
    for position in range(begin, end):
        word = stream[position]
        entries[starts[word]] = np.int64(word) << 32 | np.int64(before if pairs else position)
        starts[word] += np.uint32(1)
        before = word


@kernel
def without(eos, counts, words, left):  # type: ignore[no-untyped-def]
    """Let left = counts, and 0 for the nodes that end with eos."""
    for node in range(len(counts)):
        left[node] = counts[node] if words[node] != eos else 0


@kernel
def followed(stream, entries, counts, base, length):  # type: ignore[no-untyped-def]
    """How many occurrences of each node have a next word in their sentence."""
    bos = stream[0]
    left = counts.copy()
    for entry in entries:
        start = entry & 0xFFFFFFFF
        if start + length == len(stream) or stream[start + length] == bos:
            left[(entry >> 32) - base] -= 1
    return left


@kernel
def sums_at(values, positions):  # type: ignore[no-untyped-def]
    """The sum of the values before each position; positions are ascending."""
    sums = np.empty(len(positions), np.int64)
    total, i = np.int64(0), 0
    for p in range(len(positions)):
        for j in range(i, positions[p]):
            total += values[j]
        i = max(i, positions[p])
        sums[p] = total
    return sums


@kernel
def count_pairs(stream, begin, end, shares, pairs):  # type: ignore[no-untyped-def]
    """pairs[w, t]: how many pairs of a part of the stream begin with w and go on with a word of share t."""
    bos, before = stream[0], stream[max(begin, 1) - 1]
    for position in range(max(begin, 1), end):
        word = stream[position]
        if word != bos:
            pairs[np.uint32(before), np.uint32(shares[np.uint32(word)])] += 1
        before = word


@kernel
def cut_children(first, words, cuts, places):  # type: ignore[no-untyped-def]
    """places[w, t]: the first child of w whose word is not below cuts[t], counted from the first 2-gram."""
    base = first[0]
    for word in range(places.shape[0]):
        at = first[word]
        for share in range(places.shape[1]):
            high = first[word + 1]
            while at < high:
                middle = (at + high) >> 1
                if words[middle] < cuts[share]:
                    at = middle + 1
                else:
                    high = middle
            places[word, share] = at - base


@kernel
def extend(stream, entries, starts, extended, shift, word_before):  # type: ignore[no-untyped-def]
    """From the order by k-grams to that by (k+1)-grams; until `group`, an entry holds the node of its suffix.

    With `word_before`, the new entries hold the word before instead of the position, for `extend_last`.
    """
    for i in range(len(entries)):
        if i + AHEAD < len(entries):
            prefetch_item(stream, np.int64(np.uint32(entries[i + AHEAD]) - np.uint32(1)))
        entry = entries[i]
        position = np.uint32(entry) - np.uint32(1)
        word = stream[position]
        if word_before:
            before = np.int64(stream[position - np.uint32(position > 0)])
            extended[starts[word]] = (entry >> 32) << 32 | before
        else:
            extended[starts[word]] = entry - 1 if shift else entry >> 32
        starts[word] += np.uint32(1)


@kernel
def extend_last(entries, starts, extended):  # type: ignore[no-untyped-def]
    """`extend` to the top order, where entries hold the word before: the text is not needed."""
    for entry in entries:
        word = np.uint32(entry)
        extended[starts[word]] = entry >> 32
        starts[word] += np.uint32(1)


@kernel
def count_groups(entries, followed, shift):  # type: ignore[no-untyped-def]
    """How many nodes `group` makes of these entries."""
    nodes, i = 0, 0
    for size in followed:
        end = i + size
        before = np.int64(-1)
        while i < end:
            suffix = np.int64(entries[i] >> shift)
            nodes += suffix != before
            before = suffix
            i += 1
    return nodes


@kernel
def group(entries, followed, base, node, shift, first, words, suffixes, counts):  # type: ignore[no-untyped-def]
    """Runs of one suffix under one parent are one new node, from `node` on; the entries are given its id."""
    i, end = 0, 0
    for parent in range(len(followed)):
        first[base + parent] = node
        end += followed[parent]
        while i < end:
            start, suffix = i, entries[i] >> shift
            while i < end and entries[i] >> shift == suffix:
                if i + AHEAD < len(entries):
                    prefetch_item(words, np.int64(entries[i + AHEAD] >> shift))
                if shift:
                    entries[i] = np.int64(node) << 32 | (entries[i] & 0xFFFFFFFF)
                i += 1
            words[node], suffixes[node], counts[node] = words[np.uint32(suffix)], suffix, i - start
            node += 1
