"""Sorted n-grams with their counts, on disk: the run of one block, or the piece of one bucket; and ranges of them.

As in a trie, the n-grams of each order stand in the order of their words and the children of a node side by side.
Unigrams are not part of it, for each has its place by its id; suffix links are not either, for they are found at the
end. Files are the package's own checked files, mapped into memory.

A bucket is a range of n-grams, by their first two words, that is small enough to be merged in memory: a range of keys
(first word, second word), never finer than that. Its weight is how many n-grams of orders 2..n the runs have in that
range, counted once per run; of large buckets it is estimated from a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError
from lidstone.ngram.formats.checked_tensors import read_arrays, release, write_arrays
from lidstone.ngram.trie import Trie

Ints = NDArray[np.integer]
BITS = 32
"""Of the second word in a key."""


def no_trie_error() -> FileFormatError:
    """The error for n-grams whose offsets or words lead nowhere."""
    return FileFormatError("the n-grams of a count file do not form a trie", hint="count its text again")


@dataclass(frozen=True, eq=False)
class Piece:
    """The n-grams of orders 2..n of a part of the text or of a range of n-grams.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> piece = piece_of(counts.trie, counts.counts)
    >>> piece.heads.tolist(), piece.words.tolist(), piece.counts.tolist()
    ([1, 1, 2, 3], [0, 2, 0, 1], [1, 1, 1, 2])
    """

    levels: NDArray[np.int64]
    """n-grams of order k are levels[k-2]:levels[k-1]"""
    heads: Ints
    """the first word of each 2-gram"""
    words: Ints
    """the last word of each n-gram"""
    counts: Ints
    first: Ints
    """children of n-gram i are first[i]-base:first[i+1]-base; one entry per n-gram below the top order, and one more"""
    base: int = 0

    @property
    def order(self) -> int:
        """The longest n-gram's length."""
        return len(self.levels)

    def level(self, order: int) -> slice:
        """The n-grams of one order, as a slice."""
        return slice(int(self.levels[order - 2]), int(self.levels[order - 1]))

    def below(self, position: int) -> list[int]:
        """Where the n-grams of each order begin whose first two words are the 2-gram at `position` or come later."""
        found = [position]
        for _ in range(3, self.order + 1):
            if not 0 <= found[-1] < len(self.first):
                raise no_trie_error()
            found.append(int(self.first[found[-1]]) - self.base)
        return found


def piece_of(trie: Trie, counts: Ints, heads: Ints | None = None) -> Piece:
    """A trie and its counts seen as a piece; `heads` where they are known."""
    base = trie.vocab_size + 1
    levels = trie.levels[1:] - base
    if trie.order == 1:
        nothing = np.empty(0, np.int32)
        return Piece(levels, nothing, nothing, nothing, np.zeros(1, np.int32))
    if heads is None:
        heads = np.repeat(np.arange(base, dtype=np.int32), np.diff(trie.first[: base + 1]))
    return Piece(levels, heads, trie.words[base:], counts[base:], trie.first[base:], base)


def cut_out(piece: Piece, starts: Sequence[int], stops: Sequence[int]) -> Piece:
    """A range of n-grams, given per order from 2 on, as a piece of its own."""
    sizes = np.subtract(stops, starts)
    levels = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    ranges = [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]
    firsts = [
        piece.first[ranges[k]].astype(np.int64) - piece.base - starts[k + 1] + levels[k + 1]
        for k in range(len(ranges) - 1)
    ]
    words, counts = (np.concatenate([array[part] for part in ranges]) for array in (piece.words, piece.counts))
    first = np.concatenate([*firsts, levels[-1:]])
    return Piece(levels, piece.heads[ranges[0]].copy(), words, counts, first.astype(smallest(levels[-1])))


def smallest(size: int) -> type[np.signedinteger]:
    """The integer that holds numbers up to `size`."""
    return np.int32 if size < 2**31 else np.int64


def run_lengths(heads: Ints) -> tuple[Ints, Ints]:
    """Which first words there are, and how many 2-grams each has."""
    starts = np.flatnonzero(np.append(True, heads[1:] != heads[:-1])) if len(heads) else np.empty(0, np.int64)
    return heads[starts], np.diff(np.append(starts, len(heads)))


def release_piece(piece: Piece) -> None:
    """Give the pages of a mapped piece back to the system."""
    for array in (piece.words, piece.heads):
        release(array)


def save_piece(piece: Piece, path: Path, extra: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write a piece, with arrays of the caller's own beside it."""
    arrays = {name: getattr(piece, name) for name in ("levels", "heads", "words", "counts", "first")}
    write_arrays(path, {**arrays, **(extra or {})}, {"kind": "piece", "base": str(piece.base)})


def load_piece(path: Path, *, verify: bool = False) -> tuple[Piece, dict[str, NDArray[Any]]]:
    """Map a piece into memory, and the arrays that were saved beside it."""
    arrays, metadata = read_arrays(path, verify=verify)
    parts = {name: arrays.pop(name) for name in ("levels", "heads", "words", "counts", "first")}
    return Piece(**parts, base=int(metadata["base"])), arrays


@dataclass(frozen=True)
class PieceSlice:
    """All of a run, or what it has of a bucket: the same range of n-grams at every order."""

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


def whole(piece: Piece, bos: int) -> PieceSlice:
    """All of a piece as a slice."""
    return PieceSlice(piece, piece.below(0), piece.below(len(piece.heads)), bos)


SAMPLES = 256
"""Keys of a bucket that are looked at, if it has more n-grams."""


def sample_keys(run: PieceSlice, bos: int, step: int, number: int) -> NDArray[np.int64]:
    """The keys of every `step`-th n-gram of a run, in the order of keys; runs begin at different ones."""
    ends = np.cumsum(_weights(run.piece))
    offset = int(number * GOLDEN % 1 * step)
    pairs = np.searchsorted(ends, np.arange(offset, ends[-1] if len(ends) else 0, step), side="right")
    heads = run.piece.heads[pairs].astype(np.int64)
    heads[heads == run.bos] = bos
    keys: NDArray[np.int64] = heads << BITS | run.piece.words[pairs].astype(np.int64)
    release_piece(run.piece)
    return keys


GOLDEN = 0.618033988749895
"""Multiples of it are spread evenly between whole numbers."""


def boundaries(keys: NDArray[np.int64], limit: int) -> list[int]:
    """Keys at which buckets begin, so that none has more than `limit` of these keys if that can be; the first is 0.

    >>> boundaries(np.array([5, 5, 7, 9]), limit=2)
    [0, 7]
    """
    found, weight = [0], 0
    for key, own in zip(*(array.tolist() for array in np.unique(keys, return_counts=True)), strict=True):
        if weight and weight + own > limit:
            found.append(key)
            weight = 0
        weight += own
    return found


def copies(runs: Sequence[PieceSlice], begin: int, end: int | None, bos: int) -> list[PieceSlice]:
    """What each run has between two keys, in memory; the pages of its file are given back."""
    found = []
    for run in runs:
        part = between(run, begin, end, bos)
        found.append(whole(cut_out(run.piece, part.starts, part.stops), run.bos))
        release_piece(run.piece)
    return found


def between(run: PieceSlice, begin: int, end: int | None, bos: int) -> PieceSlice:
    """What a run has between two keys."""
    piece = run.piece
    start = _position(run, begin, bos)
    stop = len(piece.heads) if end is None else _position(run, end, bos)
    return PieceSlice(piece, piece.below(start), piece.below(stop), run.bos)


def _position(run: PieceSlice, key: int, bos: int) -> int:
    """The position of a key, or where it would be inserted, among the 2-grams of a run."""
    head, word = key >> BITS, key & 0xFFFFFFFF
    if run.bos <= head < bos:  # a word that came after this run, where only <s> is beyond it
        head, word = run.bos, 0
    start, stop = _children(run, min(head, run.bos))
    return int(start + np.searchsorted(run.piece.words[start:stop], np.int32(word)))


def _children(run: PieceSlice, head: int) -> tuple[int, int]:
    """The 2-grams that begin with a word."""
    heads = run.piece.heads
    start, stop = np.searchsorted(heads, np.array([head, head + 1], heads.dtype))
    return int(start), int(stop)


def _weights(piece: Piece) -> NDArray[np.int64]:
    """How many n-grams begin with each 2-gram, itself included."""
    bounds: Ints = np.arange(len(piece.heads) + 1)
    weights = np.ones(len(piece.heads), np.int64)
    for _ in range(3, piece.order + 1):
        if len(weights) and not 0 <= bounds.min() <= bounds.max() < len(piece.first):
            raise no_trie_error()
        bounds = piece.first[bounds] - piece.base
        weights += np.diff(bounds)
    return weights
