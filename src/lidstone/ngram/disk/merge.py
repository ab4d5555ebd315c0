"""Adding the slices that several runs have of one bucket.

Order by order: for each node of the sum, the children of the nodes that it is the sum of are merged by word and equal
ones added. The nodes of one order are numbered one slice after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lidstone.errors import InputError
from lidstone.jit import helper, kernel
from lidstone.ngram.disk.memory import BYTES_PER_NODE, format_size
from lidstone.ngram.disk.pieces import Ints, Piece, PieceSlice, no_trie_error, run_lengths, smallest, whole


def merge_within(
    slices: Sequence[PieceSlice], order: int, bos: int, limit: int, dtype: type[np.signedinteger] = np.int32
) -> Piece:
    """The sum of the slices, with no more than `limit` n-grams at once: a few slices after the other if need be."""
    group: list[PieceSlice] = []
    size = 0
    for part in slices:
        if size + part.size > limit and len(group) > 1:
            group = [whole(merge(group, order, bos, dtype), bos)]
            size = group[0].size
        group.append(part)
        size += part.size
        if size > limit and len(group) > 1:
            raise InputError(
                f"{size:,} n-grams begin with one pair of words; {limit:,} fit in memory",
                hint=f"allow {format_size((size - limit) * BYTES_PER_NODE)} more memory per core",
            )
    return merge(group, order, bos, dtype)


def merge(slices: Sequence[PieceSlice], order: int, bos: int, dtype: type[np.signedinteger] = np.int32) -> Piece:
    """The sum of the slices of one bucket; `<s>` is `bos` there, counts have the type `dtype`."""
    for part in slices:
        _check(part, bos)
    most = sum(part.size for part in slices)
    words, counts = np.empty(most, np.int32), np.empty(most, dtype)
    first_words, sources, ends = _merge_heads(slices, bos)
    levels, firsts = [0], []
    for level in range(2, order + 1):
        own = _children(slices, level)
        room = len(own[0]) if level < order else 0
        below: tuple[Ints, Ints] = np.empty(room, sources.dtype), np.empty(room, sources.dtype)
        first = np.empty(len(ends) + 1, smallest(most))
        levels.append(int(merge_children(*own, sources, ends, words, counts, first, *below, levels[-1])))
        firsts.append(first)
        sources, ends = below[0], below[1][: levels[-1] - levels[-2]]
    heads = np.repeat(first_words, np.diff(firsts[0]))
    first = np.concatenate([*(part[:-1] for part in firsts[1:]), firsts[-1][-1:]])
    return Piece(np.array(levels), heads, words[: levels[-1]], counts[: levels[-1]], first)


def _check(part: PieceSlice, bos: int) -> None:
    """Refuse a slice in which offsets or words point out of it; files may come from anywhere."""
    for start, stop in zip(part.starts, part.stops, strict=True):
        words = part.piece.words[start:stop]
        if not 0 <= start <= stop <= len(part.piece.words) or (
            len(words) and not 0 <= words.min() <= words.max() < bos
        ):
            raise no_trie_error()
    for level in range(3, part.piece.order + 1):
        first = _first(part, level)
        ends = part.starts[level - 2] + part.piece.base, part.stops[level - 2] + part.piece.base
        if (int(first[0]), int(first[-1])) != ends or (np.diff(first) < 0).any():
            raise no_trie_error()


def _merge_heads(slices: Sequence[PieceSlice], bos: int) -> tuple[Ints, Ints, Ints]:
    """The first words of the sum, and for each the nodes that it is the sum of: `sources` and where they end."""
    firsts = [(run_lengths(_heads(part))[0], part.bos) for part in slices]
    heads = np.concatenate([np.where(words == own, bos, words).astype(np.int32) for words, own in firsts])
    sources = np.argsort(heads, kind="stable").astype(smallest(sum(part.size for part in slices)))
    heads = heads[sources]
    ends = np.flatnonzero(np.append(heads[1:] != heads[:-1], len(heads) > 0)) + 1
    return heads[ends - 1], sources, ends.astype(sources.dtype)


def _heads(part: PieceSlice) -> Ints:
    return part.piece.heads[part.starts[0] : part.stops[0]]


def _children(slices: Sequence[PieceSlice], level: int) -> tuple[Ints, Ints, Ints]:
    """Words and counts of one order, and where the children of each node of the order below begin."""
    ranges = [(part.piece, slice(part.starts[level - 2], part.stops[level - 2])) for part in slices]
    offsets = [_offsets(part, level) for part in slices]
    starts = np.cumsum([0, *(own[-1] for own in offsets)])
    shifted = [own[:-1] + start for own, start in zip(offsets, starts, strict=False)]
    return (
        np.concatenate([piece.words[own] for piece, own in ranges]),
        np.concatenate([piece.counts[own] for piece, own in ranges]),
        np.concatenate([*shifted, starts[-1:]]).astype(smallest(int(starts[-1]))),
    )


def _offsets(part: PieceSlice, level: int) -> Ints:
    """Where the children of each node of a slice begin, the first at 0."""
    if level == 2:
        _, lengths = run_lengths(_heads(part))
        return np.cumsum(np.append(0, lengths))
    first = _first(part, level)
    found: Ints = first - first[0]
    return found


def _first(part: PieceSlice, level: int) -> Ints:
    """The offsets of the children at `level`."""
    return part.piece.first[part.starts[level - 3] : part.stops[level - 3] + 1]


FEW = 16
"""Up to so many children are sorted by insertion; more are merged list by list."""
PLACE = 0xFFFFFFFF


@kernel
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


@helper
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


@helper
def _sort(keys, size):  # type: ignore[no-untyped-def]
    for i in range(1, size):
        key, j = keys[i], i
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@helper
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


@helper
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
