"""Blocks of text, and their n-grams by bucket, as they travel between workers: columns of bytes, a third of the size.

Most counts and numbers of children are small. They take a byte each; those of 255 and more stand apart, in order. Words
take two bytes likewise: they are numbered as they appear, so the frequent ones have small ids.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.disk.pieces import Ints, Piece

COLUMNS = {
    "levels": np.int64,
    "heads": np.int32,
    "words": np.uint16,
    "large_words": np.int32,
    "counts": np.uint8,
    "large_counts": np.int32,
    "children": np.uint8,
    "large_children": np.int32,
}
"""A block has fewer than 2^31 tokens."""
IDS = "ids", "large_ids"


def as_row(piece: Piece) -> dict[str, bytes]:
    """A piece as columns of bytes."""
    packed = pack(piece.words, np.uint16), pack(piece.counts), pack(np.diff(piece.first))
    arrays = (piece.levels, piece.heads, *itertools.chain.from_iterable(packed))
    pairs = zip(COLUMNS.items(), arrays, strict=True)
    return {name: np.ascontiguousarray(array, dtype).tobytes() for (name, dtype), array in pairs}


def as_piece(batch: dict[str, Any], row: int) -> Piece:
    """The piece of one row of a batch."""
    columns: dict[str, NDArray[Any]] = {name: np.frombuffer(batch[name][row], dtype) for name, dtype in COLUMNS.items()}
    words, counts, children = (
        unpack(columns[name], columns[f"large_{name}"]) for name in ("words", "counts", "children")
    )
    first = np.cumsum(np.append(columns["levels"][1], children)).astype(np.int32)
    return Piece(columns["levels"], columns["heads"], words, counts, first)


def as_ids(ids: Ints) -> dict[str, bytes]:
    """Ids as columns of bytes."""
    small, large = pack(ids, np.uint16)
    return dict(zip(IDS, (small.tobytes(), large.tobytes()), strict=True))


def ids_of(batch: dict[str, Any], row: int) -> NDArray[np.int32]:
    """The ids of one row of a batch."""
    return unpack(np.frombuffer(batch["ids"][row], np.uint16), np.frombuffer(batch["large_ids"][row], np.int32))


def pack(values: Ints, dtype: type[Any] = np.uint8) -> tuple[NDArray[Any], Ints]:
    """Numbers in few bytes, and apart from them those that do not fit.

    >>> [part.tolist() for part in pack(np.array([3, 1000, 1]))]
    [[3, 255, 1], [1000]]
    """
    small = np.minimum(values, np.iinfo(dtype).max).astype(dtype)
    return small, values[small == np.iinfo(dtype).max]


def unpack(small: NDArray[Any], large: Ints) -> NDArray[np.int32]:
    """The numbers that `pack` put into few bytes.

    >>> unpack(*pack(np.array([3, 1000, 1]))).tolist()
    [3, 1000, 1]
    """
    values = small.astype(np.int32)
    values[small == np.iinfo(small.dtype).max] = large
    return values
