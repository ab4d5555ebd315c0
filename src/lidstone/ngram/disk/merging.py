"""Adding the slices that several runs have of one bucket.

Order by order: for each node of the sum, the children of the nodes that it is the sum of are merged by word and equal
ones added. The nodes of one order are numbered one slice after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lidstone.errors import InputError
from lidstone.ngram.disk.memory import BYTES_PER_NODE, format_size
from lidstone.ngram.disk.merge_kernel import merge_children
from lidstone.ngram.disk.pieces import Ints, Piece, broken, run_lengths, smallest

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


def _merge_heads(slices: Sequence[Slice], bos: int) -> tuple[Ints, Ints, Ints]:
    """The first words of the sum, and for each the nodes that it is the sum of: `sources` and where they end."""
    heads = np.concatenate([_first_words(part, bos) for part in slices])
    sources = np.argsort(heads, kind="stable").astype(smallest(sum(part.size for part in slices)))
    heads = heads[sources]
    ends = np.flatnonzero(np.append(heads[1:] != heads[:-1], len(heads) > 0)) + 1
    return heads[ends - 1], sources, ends.astype(sources.dtype)


def _first_words(part: Slice, bos: int) -> Ints:
    words, _ = run_lengths(_heads(part))
    return np.where(words == part.bos, bos, words).astype(np.int32)


def _heads(part: Slice) -> Ints:
    return part.piece.heads[part.starts[0] : part.stops[0]]


def _children(slices: Sequence[Slice], level: int) -> tuple[Ints, Ints, Ints]:
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


def _offsets(part: Slice, level: int) -> Ints:
    """Where the children of each node of a slice begin, the first at 0."""
    if level == 2:
        _, lengths = run_lengths(_heads(part))
        return np.cumsum(np.append(0, lengths))
    first = _first(part, level)
    found: Ints = first - first[0]
    return found


def _first(part: Slice, level: int) -> Ints:
    """The offsets of the children at `level`."""
    return part.piece.first[part.starts[level - 3] : part.stops[level - 3] + 1]
