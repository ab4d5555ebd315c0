"""Lists of sentences as blocks of bytes, for compiled code: one line feed between two sentences, padding at the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from lidstone.errors import TextError
from lidstone.text.tokens import PADDING

Text = str | bytes

BATCH = 1 << 17
"""Characters a batch: enough work for a thread, and small enough for its cache."""


def cut_batches(texts: Sequence[Text]) -> list[tuple[int, int]]:
    """Ranges of sentences with about BATCH characters each.

    >>> cut_batches(["a" * BATCH, "b", "c"]), cut_batches([])
    ([(0, 1), (1, 3)], [])
    """
    try:
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    except TypeError:
        ends = np.arange(len(texts))  # one of them is no text: `joined` says which
    if not len(ends):
        return []
    inside = np.searchsorted(ends, np.arange(BATCH, int(ends[-1]), BATCH)) + 1
    return list(pairwise(np.unique([0, *inside, len(ends)]).tolist()))


def joined(texts: Sequence[Text], first: int) -> bytes:
    r"""The sentences as lines. A line feed inside of one is a space; `first` is the number of the first, for errors.

    >>> joined(["a b", "c\nd"], 0)
    b'a b\nc d        '
    """
    try:
        lines = list(map(str.encode, texts))  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):  # some are bytes, or one is not valid
        lines = [text if isinstance(text, bytes) else _encoded(text, first + i) for i, text in enumerate(texts)]
    lines[-1] += PADDING
    whole = b"\n".join(lines)
    if whole.count(b"\n") < len(lines):
        return whole
    return b"\n".join([line.replace(b"\n", b" ") for line in lines])


def _encoded(text: str, number: int) -> bytes:
    try:
        return text.encode()
    except (UnicodeEncodeError, AttributeError) as error:
        raise TextError(
            f"line {number + 1} of the list cannot be scored: {error}",
            hint="give str or bytes, decoded with the right encoding",
        ) from error
