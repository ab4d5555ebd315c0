"""Sequences of ids as models read them: batches of similar length, padding, and pieces of long sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError

Ids = NDArray[np.integer]
IGNORED = -100  # the label of a position that is not predicted, as everywhere in PyTorch


def length_batches(
    lengths: Sequence[int] | NDArray[np.integer], *, tokens: int | None = None, size: int | None = None
) -> list[NDArray[np.int64]]:
    """Indices of sequences in batches of similar length: at most `size` of them, or `tokens` with padding.

    A sequence longer than `tokens` is a batch of its own. Sequences of one length stay in their order.

    >>> [batch.tolist() for batch in length_batches([3, 1, 2, 9], tokens=6)]
    [[1, 2], [0], [3]]
    """
    if not (tokens or size):
        raise InputError("a batch needs a limit", hint="pass tokens= or size=")
    lengths = np.asarray(lengths)
    order = np.argsort(lengths, kind="stable")
    starts, first = [0], 0
    for place, length in enumerate(lengths[order]):
        count = place - first + 1
        if count > 1 and ((tokens and count * length > tokens) or (size and count > size)):
            starts.append(place)
            first = place
    return np.split(order, starts[1:]) if len(order) else []


def padded(rows: Sequence[Ids], fill: int) -> NDArray[np.int64]:
    """Rows of different length as one array, filled up on the right.

    >>> padded([np.array([1, 2, 3]), np.array([4])], fill=0).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    array = np.full((len(rows), max(map(len, rows), default=0)), fill, dtype=np.int64)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array


def pair_inputs(
    sources: Sequence[Ids], targets: Sequence[Ids], eos: int, pad: int
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """What a translation model reads for some pairs, and the labels at the positions of its decoder.

    >>> inputs, labels = pair_inputs([np.array([5])], [np.array([7, 8])], eos=2, pad=1)
    >>> inputs["input_ids"].tolist(), inputs["decoder_input_ids"].tolist(), labels.tolist()
    ([[5, 2]], [[2, 7, 8]], [[7, 8, 2]])
    """
    read = padded([np.append(source, eos) for source in sources], pad)
    start = np.array([eos])
    inputs = {
        "input_ids": read,
        "attention_mask": padded([np.ones(len(source) + 1, np.int64) for source in sources], 0),
        "decoder_input_ids": padded([np.append(start, target) for target in targets], pad),
    }
    return inputs, padded([np.append(target, eos) for target in targets], IGNORED)


def pieces(length: int, limit: int, overlap: int) -> list[tuple[int, int, int]]:
    """Cut 0..length into pieces of at most `limit`: (start, first new position, end).

    Every position is new in exactly one piece; the `overlap` positions before it are context only.

    >>> pieces(10, limit=6, overlap=2)
    [(0, 0, 6), (4, 6, 10)]
    >>> pieces(5, limit=6, overlap=2)
    [(0, 0, 5)]
    """
    if not 0 <= overlap < limit:
        raise InputError(f"an overlap of {overlap} does not fit a limit of {limit}", hint="use 0 <= overlap < limit")
    found = [(0, 0, min(length, limit))]
    while found[-1][2] < length:
        done = found[-1][2]
        found.append((done - overlap, done, min(done - overlap + limit, length)))
    return found
