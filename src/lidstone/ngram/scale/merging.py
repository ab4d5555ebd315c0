"""Adding the slices that several runs have of one bucket.

Order by order: the children of all nodes that became one node are put side by side, sorted by word where they come from
several runs, and equal words added. Everything is read and written from front to back, so it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.scale.memory import BYTES_PER_NODE, format_size
from lidstone.ngram.scale.pieces import Ints, Piece, broken

BITS = 32


@dataclass(frozen=True)
class Slice:
    """What one run has of a bucket: the same range of n-grams at every order."""

    piece: Piece
    starts: Sequence[int]
    """per order from 2 on"""
    stops: Sequence[int]
    bos: int
    """the id of `<s>` in this run; its largest word"""

    @property
    def size(self) -> int:
        """N-grams of all orders."""
        return sum(self.stops) - sum(self.starts)


def merge_within(
    slices: Sequence[Slice], order: int, bos: int, limit: int, dtype: type[np.signedinteger] = np.int32
) -> Piece:
    """The sum of the slices, with no more than `limit` n-grams at once: a few slices after the other if need be."""
    group: list[Slice] = []
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


def whole(piece: Piece, bos: int) -> Slice:
    """All of a piece as a slice."""
    return Slice(piece, piece.below(0), piece.below(len(piece.heads)), bos)


def merge(slices: Sequence[Slice], order: int, bos: int, dtype: type[np.signedinteger] = np.int32) -> Piece:
    """The sum of the slices of one bucket; `<s>` is `bos` there, counts have the type `dtype`."""
    for part in slices:
        _check(part, bos)
    keys, counts, numbers = _merge_pairs(slices, bos, dtype)
    words: list[Ints] = [(keys & 0xFFFFFFFF).astype(np.int32)]
    sums, firsts = [counts], []
    size = len(keys)
    for level in range(3, order + 1):
        below, counts, sizes, numbers = _merge_level(slices, level, numbers, len(words[-1]), dtype)
        firsts.append(np.cumsum(sizes) + size)
        words.append(below)
        sums.append(counts)
        size += len(below)
    levels = np.concatenate([[0], np.cumsum([len(part) for part in words])]).astype(np.int64)
    first: Ints = np.concatenate([[len(keys)], *firsts]).astype(np.int32 if size < 2**31 else np.int64)
    heads = (keys >> BITS).astype(np.int32)
    return Piece(levels, heads, np.concatenate(words), np.concatenate(sums), first)


def _check(part: Slice, bos: int) -> None:
    """Refuse a slice in which offsets or words point out of it; files may come from anywhere."""
    for start, stop in zip(part.starts, part.stops, strict=True):
        words = part.piece.words[start:stop]
        if not 0 <= start <= stop <= len(part.piece.words) or (
            len(words) and not 0 <= words.min() <= words.max() < bos
        ):
            raise broken()
    for level in range(3, part.piece.order + 1):
        first = _first(part, level)
        ends = part.starts[level - 2] + part.piece.base, part.stops[level - 2] + part.piece.base
        if (int(first[0]), int(first[-1])) != ends or (np.diff(first) < 0).any():
            raise broken()


def _merge_pairs(
    slices: Sequence[Slice], bos: int, dtype: type[np.signedinteger]
) -> tuple[NDArray[np.int64], Ints, list[Ints]]:
    """The 2-grams as (first word, second word) in one integer, their counts, and the number each got per slice."""
    keys = [_pair_keys(part, bos) for part in slices]
    merged = np.sort(np.concatenate(keys), kind="stable")  # runs of sorted keys: the stable sort merges them
    merged = merged[np.append(True, merged[1:] != merged[:-1])] if len(merged) else merged
    numbers: list[Ints] = [np.searchsorted(merged, own).astype(np.int32) for own in keys]
    counts = np.zeros(len(merged), dtype)
    for part, own in zip(slices, numbers, strict=True):
        counts[own] += part.piece.counts[part.starts[0] : part.stops[0]]  # a slice has each pair once
    return merged, counts, numbers


def _pair_keys(part: Slice, bos: int) -> NDArray[np.int64]:
    pairs = slice(part.starts[0], part.stops[0])
    heads = part.piece.heads[pairs].astype(np.int64)
    heads[heads == part.bos] = bos
    keys: NDArray[np.int64] = heads << BITS | part.piece.words[pairs]
    return keys


def _merge_level(
    slices: Sequence[Slice], level: int, parents: list[Ints], size: int, dtype: type[np.signedinteger]
) -> tuple[Ints, Ints, Ints, list[Ints]]:
    """Words, counts and numbers of one order, and how many children each of the `size` parents has."""
    offsets = np.zeros(size + 1, np.int64)
    for part, numbers in zip(slices, parents, strict=True):
        _add_sizes(_first(part, level), numbers, offsets)
    np.cumsum(offsets, out=offsets)
    words, places = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
    counts, cursors, place = np.empty(offsets[-1], dtype), offsets[:-1].copy(), 0
    for part, numbers in zip(slices, parents, strict=True):
        start, stop = part.starts[level - 2], part.stops[level - 2]
        own_words, own_counts = part.piece.words[start:stop], part.piece.counts[start:stop]
        _put_side_by_side(_first(part, level), numbers, own_words, own_counts, place, cursors, words, counts, places)
        place += stop - start
    number = np.empty(offsets[-1], np.int32)
    sizes = np.empty(size, np.int64)
    end = _add_equal(offsets, words, counts, places, number, sizes)
    ends = np.cumsum([part.stops[level - 2] - part.starts[level - 2] for part in slices])[:-1]
    return words[:end].copy(), counts[:end].copy(), sizes, np.split(number, ends)


def _first(part: Slice, level: int) -> Ints:
    """The offsets of the children at `level`."""
    return part.piece.first[part.starts[level - 3] : part.stops[level - 3] + 1]


@njit(cache=True, nogil=True)
def _add_sizes(first, numbers, offsets):  # type: ignore[no-untyped-def]
    for parent in range(len(numbers)):
        offsets[numbers[parent] + 1] += first[parent + 1] - first[parent]


@njit(cache=True, nogil=True)
def _put_side_by_side(  # type: ignore[no-untyped-def]
    first, numbers, own_words, own_counts, place, cursors, words, counts, places
):
    child = 0
    for parent in range(len(numbers)):
        to = cursors[numbers[parent]]
        for _ in range(first[parent + 1] - first[parent]):
            words[to], counts[to], places[to] = own_words[child], own_counts[child], place + child
            child += 1
            to += 1
        cursors[numbers[parent]] = to


@njit(cache=True, nogil=True)
def _add_equal(offsets, words, counts, places, number, sizes):  # type: ignore[no-untyped-def]
    """Sort each parent's children by word and add equal ones, in place; returns how many are left."""
    end = 0
    for parent in range(len(sizes)):
        start, stop = offsets[parent], offsets[parent + 1]
        _sort(words, counts, places, start, stop)
        begin = end
        for i in range(start, stop):
            if end > begin and words[end - 1] == words[i]:
                counts[end - 1] += counts[i]
            else:
                words[end], counts[end] = words[i], counts[i]
                end += 1
            number[places[i]] = end - 1
        sizes[parent] = end - begin
    return end


@njit(cache=True, nogil=True)
def _sort(words, counts, places, start, stop):  # type: ignore[no-untyped-def]
    """By word: insertion where there are few, a real sort where there are many."""
    if stop - start > 32:
        order = start + np.argsort(words[start:stop], kind="mergesort")
        words[start:stop], counts[start:stop] = words[order], counts[order]
        places[start:stop] = places[order]
        return
    for i in range(start + 1, stop):
        word, count, place, j = words[i], counts[i], places[i], i
        while j > start and words[j - 1] > word:
            words[j], counts[j], places[j] = words[j - 1], counts[j - 1], places[j - 1]
            j -= 1
        words[j], counts[j], places[j] = word, count, place
