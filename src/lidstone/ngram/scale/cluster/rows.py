"""The n-grams of a block and bucket as they travel between workers: columns of bytes, half the size of the arrays.

Most counts and numbers of children are small. They take a byte each; those of 255 and more stand apart, in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.scale.pieces import Ints, Piece

COLUMNS = {
    "levels": np.int64,
    "heads": np.int32,
    "words": np.int32,
    "counts": np.uint8,
    "large_counts": np.int32,
    "children": np.uint8,
    "large_children": np.int32,
}
"""A block has fewer than 2^31 tokens."""
LARGE = 255


def as_row(piece: Piece) -> dict[str, bytes]:
    """A piece as columns of bytes."""
    counts, large_counts = pack(piece.counts)
    children, large_children = pack(np.diff(piece.first))
    arrays = (piece.levels, piece.heads, piece.words, counts, large_counts, children, large_children)
    pairs = zip(COLUMNS.items(), arrays, strict=True)
    return {name: np.ascontiguousarray(array, dtype).tobytes() for (name, dtype), array in pairs}


def as_piece(batch: dict[str, Any], row: int) -> Piece:
    """The piece of one row of a batch."""
    columns: dict[str, NDArray[Any]] = {name: np.frombuffer(batch[name][row], dtype) for name, dtype in COLUMNS.items()}
    levels = columns["levels"]
    children = unpack(columns["children"], columns["large_children"])
    first = np.cumsum(np.append(levels[1], children)).astype(np.int32)
    counts = unpack(columns["counts"], columns["large_counts"])
    return Piece(levels, columns["heads"], columns["words"], counts, first)


def pack(values: Ints) -> tuple[NDArray[np.uint8], Ints]:
    """Numbers as bytes, and apart from them those that do not fit.

    >>> [part.tolist() for part in pack(np.array([3, 1000, 1]))]
    [[3, 255, 1], [1000]]
    """
    small = np.minimum(values, LARGE).astype(np.uint8)
    return small, values[small == LARGE]


def unpack(small: NDArray[np.uint8], large: Ints) -> NDArray[np.int32]:
    """The numbers that `pack` made bytes of.

    >>> unpack(*pack(np.array([3, 1000, 1]))).tolist()
    [3, 1000, 1]
    """
    values = small.astype(np.int32)
    values[small == LARGE] = large
    return values
