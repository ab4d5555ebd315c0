"""The compiled part of merging: children of several sorted lists become one, read and written from front to back."""

from __future__ import annotations

import numpy as np
from numba import njit

FEW = 16
"""Up to so many children are sorted by insertion; more are merged list by list."""
PLACE = 0xFFFFFFFF


@njit(cache=True, nogil=True)
def merge_children(  # type: ignore[no-untyped-def]
    words, counts, first, sources, ends, out_words, out_counts, out_first, out_sources, out_ends, node
):
    """Write the children of all parents, from `node` on; returns where they end.

    Parent i is the sum of the nodes `sources[ends[i - 1]:ends[i]]`; the children of node s are `first[s]:first[s + 1]`.
    `out_sources` and `out_ends` say the same of the children; without places for them they are not written.
    """
    keys, start, begin, done = np.empty(256, np.int64), node, 0, 0
    keep = len(out_ends) > 0
    for parent in range(len(ends)):
        out_first[parent], end = node, ends[parent]
        if end - begin == 1:
            for child in range(first[sources[begin]], first[sources[begin] + 1]):
                out_words[node], out_counts[node] = words[child], counts[child]
                node += 1
                if keep:
                    out_sources[done] = child
                    done += 1
                    out_ends[node - 1 - start] = done
        else:
            keys, size = _gather(words, first, sources[begin:end], keys)
            last = -1
            for key in keys[:size]:
                word, place = key >> 32, key & PLACE
                if word == last:
                    out_counts[node - 1] += counts[place]
                else:
                    out_words[node], out_counts[node], last = word, counts[place], word
                    node += 1
                if keep:
                    out_sources[done] = place
                    done += 1
                    out_ends[node - 1 - start] = done
        begin = end
    out_first[len(ends)] = node
    return node


@njit(cache=True, nogil=True)
def _gather(words, first, sources, keys):  # type: ignore[no-untyped-def]
    """The children of several nodes as sorted keys, word before place, and how many there are."""
    size = 0
    for source in sources:
        size += first[source + 1] - first[source]
    if size > len(keys):
        keys = np.empty(2 * size, np.int64)
    at = 0
    for source in sources:
        for child in range(first[source], first[source + 1]):
            keys[at] = np.int64(words[child]) << 32 | child
            at += 1
    if size <= FEW:
        _sort(keys, size)
        return keys, size
    return _merge_lists(keys, size, first, sources), size


@njit(cache=True, nogil=True)
def _sort(keys, size):  # type: ignore[no-untyped-def]
    for i in range(1, size):
        key, j = keys[i], i
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@njit(cache=True, nogil=True)
def _merge_lists(keys, size, first, sources):  # type: ignore[no-untyped-def]
    """Merge neighbouring lists, each sorted, two by two until one is left."""
    lists = len(sources)
    bounds, other = np.zeros(lists + 1, np.int64), np.empty(len(keys), np.int64)
    for i in range(lists):
        bounds[i + 1] = bounds[i] + first[sources[i] + 1] - first[sources[i]]
    while lists > 1:
        for i in range(0, lists, 2):
            middle, stop = bounds[i + 1], bounds[min(i + 2, lists)]
            _merge_two(keys, bounds[i], middle, stop, other)
        for i in range((lists + 1) // 2):
            bounds[i] = bounds[2 * i]
        lists = (lists + 1) // 2
        bounds[lists] = size
        keys, other = other, keys
    return keys


@njit(cache=True, nogil=True)
def _merge_two(keys, start, middle, stop, out):  # type: ignore[no-untyped-def]
    """Merge keys[start:middle] and keys[middle:stop] into out[start:stop]."""
    left, right = start, middle
    for to in range(start, stop):
        if right == stop or (left < middle and keys[left] < keys[right]):
            out[to] = keys[left]
            left += 1
        else:
            out[to] = keys[right]
            right += 1
