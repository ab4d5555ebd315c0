"""How much temporary space a count will need, from the sizes of its files and a look at the first text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from lidstone.text.reader import read_chunks
from lidstone.text.source import Source, stamp

SAMPLE_BYTES = 1 << 20
NGRAMS_PER_TOKEN = 0.75
"""Distinct n-grams per token and order above the first, in a block of some million words."""
BYTES_PER_NGRAM = 12 + 12
"""Word, count and offset: once in a run, once in a piece."""


def bytes_of(sources: Sequence[Source]) -> int | None:
    """The size of all files together, compressed as they are; None if one is no file."""
    stamps = [stamp(source) for source in sources]
    return None if None in stamps else sum(known[1] for known in stamps if known)


def temporary_bytes(sources: Sequence[Source], order: int) -> float:
    """About how much space runs and pieces take; 0 where the size of the text is not known.

    >>> temporary_bytes([], order=3)
    0.0
    """
    return tokens_of(sources) * (order - 1) * NGRAMS_PER_TOKEN * BYTES_PER_NGRAM


def tokens_of(sources: Sequence[Source]) -> float:
    """About how many tokens the text has; 0 where its size is not known."""
    size = bytes_of(sources)
    return size * _tokens_per_byte(sources) if size else 0.0


def _tokens_per_byte(sources: Sequence[Source]) -> float:
    """Tokens per byte of the file, compressed or not, at the start of the first file that has any."""
    for source in sources:
        with Path(source).open("rb") as file:  # type: ignore[arg-type]
            chunks = list(itertools.islice(read_chunks(file, chunk_bytes=SAMPLE_BYTES // 4), 4))
            if chunks:
                tokens = sum(len(chunk.data.split()) + chunk.data.count(b"\n") for chunk in chunks)
                return tokens / max(file.tell(), 1)
    return 0.0
