"""Ranges of n-grams, by their first two words, that are small enough to be merged in memory.

A bucket is a range of keys (first word, second word). Its weight is how many n-grams of orders 2..n the runs have in
that range, counted once per run. Heavy first words are cut by their second word; a range is never finer than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.disk.merging import BITS, Slice, whole
from lidstone.ngram.disk.pieces import Ints, Piece, broken, cut_out, release_piece


@dataclass(frozen=True)
class CountedRun:
    """The piece of one block, and the id of `<s>` when it was counted."""

    piece: Piece
    bos: int


def boundaries(runs: Sequence[CountedRun], vocab_size: int, limit: int) -> list[int]:
    """Keys at which buckets begin, so that none has more than `limit` n-grams if that can be; the first is 0."""
    keys, weights = _units(runs, vocab_size, limit)
    found, weight = [0], 0
    for key, own in zip(keys.tolist(), weights.tolist(), strict=True):
        if weight and weight + own > limit:
            found.append(key)
            weight = 0
        weight += own
    return found


def copies(runs: Sequence[CountedRun], begin: int, end: int | None, bos: int) -> list[Slice]:
    """What each run has between two keys, in memory; the pages of its file are given back."""
    found = []
    for run in runs:
        part = _slice(run, begin, end, bos)
        found.append(whole(cut_out(run.piece, part.starts, part.stops), run.bos))
        release_piece(run.piece)
    return found


def slices(runs: Sequence[CountedRun], begin: int, end: int | None, bos: int) -> list[Slice]:
    """What each run has between two keys."""
    return [_slice(run, begin, end, bos) for run in runs]


def _slice(run: CountedRun, begin: int, end: int | None, bos: int) -> Slice:
    piece = run.piece
    start = _position(run, begin, bos)
    stop = len(piece.heads) if end is None else _position(run, end, bos)
    return Slice(piece, piece.below(start), piece.below(stop), run.bos)


def _position(run: CountedRun, key: int, bos: int) -> int:
    """The position of a key, or where it would be inserted, among the 2-grams of a run."""
    head, word = key >> BITS, key & 0xFFFFFFFF
    if run.bos <= head < bos:  # a word that came after this run, where only <s> is beyond it
        head, word = run.bos, 0
    start, stop = _children(run, min(head, run.bos))
    return int(start + np.searchsorted(run.piece.words[start:stop], np.int32(word)))


def _children(run: CountedRun, head: int) -> tuple[int, int]:
    """The 2-grams that begin with a word."""
    heads = run.piece.heads
    start, stop = np.searchsorted(heads, np.array([head, head + 1], heads.dtype))
    return int(start), int(stop)


def _units(runs: Sequence[CountedRun], vocab_size: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keys in order, and the weight from each to the next: whole first words, or pairs where the word is heavy."""
    by_word = np.zeros(vocab_size + 1, np.int64)
    for run in runs:
        heads, weights = _heads(run, vocab_size), _weights(run.piece, 0, len(run.piece.heads))
        by_word += np.bincount(heads, weights, minlength=len(by_word)).astype(np.int64)
        release_piece(run.piece)
    heavy = np.flatnonzero(by_word > limit)
    light = np.flatnonzero((by_word > 0) & (by_word <= limit))
    keys, sizes = [light.astype(np.int64) << BITS], [by_word[light]]
    for word in heavy.tolist():
        pairs = _by_second_word(runs, word, vocab_size)
        seconds = np.flatnonzero(pairs)
        keys.append(np.int64(word) << BITS | seconds.astype(np.int64))
        sizes.append(pairs[seconds])
    merged = np.concatenate(keys)
    order = np.argsort(merged)
    return merged[order], np.concatenate(sizes)[order]


def _by_second_word(runs: Sequence[CountedRun], word: int, vocab_size: int) -> NDArray[np.int64]:
    weights = np.zeros(vocab_size, np.int64)
    for run in runs:
        if word < run.bos or word == vocab_size:
            start, stop = _children(run, min(word, run.bos))
            weights[run.piece.words[start:stop]] += _weights(run.piece, start, stop)
            release_piece(run.piece)
    return weights


def _heads(run: CountedRun, bos: int) -> Ints:
    return np.where(run.piece.heads == run.bos, bos, run.piece.heads)


def _weights(piece: Piece, start: int, stop: int) -> NDArray[np.int64]:
    """How many n-grams begin with each of the 2-grams start..stop, itself included."""
    bounds: Ints = np.arange(start, stop + 1)
    weights = np.ones(stop - start, np.int64)
    for _ in range(3, piece.order + 1):
        if len(bounds) and not 0 <= bounds.min() <= bounds.max() < len(piece.first):
            raise broken()
        bounds = piece.first[bounds] - piece.base
        weights += np.diff(bounds)
    return weights
