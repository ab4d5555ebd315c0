"""Sorted n-grams with their counts, on disk: the run of one block, or the piece of one bucket.

As in a trie, the n-grams of each order stand in the order of their words and the children of a node side by side.
Unigrams are not part of it, for each has its place by its id; suffix links are not either, for they are found at the
end. Files are the package's own checked files, mapped into memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError
from lidstone.ngram.counts import Counts
from lidstone.ngram.formats.checked_tensors import read_arrays, release, write_arrays
from lidstone.ngram.trie import Trie

Ints = NDArray[np.integer]


def broken() -> FileFormatError:
    """The error for n-grams whose offsets or words lead nowhere."""
    return FileFormatError("the n-grams of a count file do not form a trie", hint="count its text again")


@dataclass(frozen=True, eq=False)
class Piece:
    """The n-grams of orders 2..n of a part of the text or of a range of n-grams.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> piece = piece_of(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2))
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
                raise broken()
            found.append(int(self.first[found[-1]]) - self.base)
        return found


def piece_of(counts: Counts) -> Piece:
    """Counts seen as a piece; nothing but the first words is copied."""
    return piece_of_trie(counts.trie, counts.counts)


def piece_of_trie(trie: Trie, counts: Ints, heads: Ints | None = None) -> Piece:
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
