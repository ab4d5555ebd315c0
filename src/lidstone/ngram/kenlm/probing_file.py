"""KenLM's probing models: hash tables that are used in place, in the mapped file.

vocabulary       version and number of words, uint32 each; a hash table from the hash of a word to its id
unigrams         by id: log10 p, log10 of the backoff, with rest costs a third number; float32
orders 2 to n-1  hash tables from the key of an n-gram to the same numbers
order n          a hash table from the key of an n-gram to log10 p
words            in the order of their ids, a zero byte after each; not needed here
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import format_error
from lidstone.ngram.kenlm.build import Packed
from lidstone.ngram.kenlm.compiled.lines import index_word
from lidstone.ngram.kenlm.compiled.step import (
    BOS,
    EOS,
    LONGEST_VALUE,
    MIDDLE_VALUE,
    ORDER,
    TABLES,
    UNIGRAM_BYTES,
    UNIGRAMS,
    VOCAB,
    VOCAB_BUCKETS,
    VOCAB_VALUE,
)
from lidstone.ngram.kenlm.header import REST, Header
from lidstone.text.tokens import PADDING

_CHUNK = 1 << 20
_ENTRY = np.dtype([("key", "<u8"), ("id", "<u4")])


def map_probing(data: NDArray[np.uint8], header: Header, path: str | Path) -> Packed:
    """The positions of all parts, after a check that they are inside the file."""
    values = 12 if header.kind == REST else 8
    layout = np.zeros(TABLES + 2 * header.order, np.int64)
    layout[[ORDER, UNIGRAM_BYTES, MIDDLE_VALUE]] = header.order, values, values
    buckets = [_buckets(count, header.multiplier) for count in header.counts]
    layout[[VOCAB, VOCAB_BUCKETS]] = header.size + 8, buckets[0]
    layout[UNIGRAMS] = end = header.size + 8 + buckets[0] * (8 + VOCAB_VALUE)
    end += (header.counts[0] + 1) * values
    for k in range(header.order - 1):
        layout[TABLES + 2 * k : TABLES + 2 * k + 2] = end, buckets[k + 1]
        end += buckets[k + 1] * (8 + (LONGEST_VALUE if k == header.order - 2 else values))
    if end > len(data):
        raise format_error(path, f"it is cut off: {end} bytes are due, and {len(data)} are there")
    _check_words(data, header, layout, path)
    _check_numbers(data, header, layout, path)
    layout[[VOCAB, UNIGRAMS]] += data.ctypes.data
    layout[TABLES::2] += data.ctypes.data
    return Packed(data, _with_specials(layout, path))


def _buckets(count: int, multiplier: float) -> int:
    return max(count + 1, int(np.float32(multiplier) * np.float32(count)))


def _check_words(data: NDArray[np.uint8], header: Header, layout: NDArray[np.int64], path: str | Path) -> None:
    """All ids must be unigrams: scoring follows them unasked."""
    version = data[header.size : header.size + 4].view("<u4")[0]
    if version != 0:
        raise format_error(path, f"its vocabulary has version {version}, and lidstone reads version 0")
    start = layout[VOCAB]
    entries = data[start : start + layout[VOCAB_BUCKETS] * (8 + VOCAB_VALUE)].view(_ENTRY)
    wrong = (entries["key"] != 0) & (entries["id"] > header.counts[0])
    if wrong.any():
        raise format_error(path, f"its vocabulary has the id {entries['id'][wrong][0]} among {header.counts[0]} words")


def _check_numbers(data: NDArray[np.uint8], header: Header, layout: NDArray[np.int64], path: str | Path) -> None:
    """Every log probability and backoff must be finite; one pass over the file, which is then in the page cache."""
    width = int(layout[UNIGRAM_BYTES])
    tables = [(int(layout[UNIGRAMS]), header.counts[0] + 1, width, 0)]
    for k in range(header.order - 1):
        start, buckets = (int(value) for value in layout[TABLES + 2 * k : TABLES + 2 * k + 2])
        tables.append((start, buckets, 8 + (LONGEST_VALUE if k == header.order - 2 else width), 8))
    for order, (start, count, size, key) in enumerate(tables, start=1):
        rows = data[start : start + count * size].reshape(count, size)
        for first in range(0, count, _CHUNK):
            if not _are_finite(rows[first : first + _CHUNK], key):
                raise format_error(path, f"an n-gram of order {order} has a probability or backoff that is not finite")


def _are_finite(rows: NDArray[np.uint8], key: int) -> bool:
    """Whether the numbers behind the key are finite in all rows that are in use; key 0 is an empty slot."""
    finite = np.isfinite(rows[:, key:].view("<f4")).all(1)
    return bool((finite | ~rows[:, :key].any(1) if key else finite).all())


def _with_specials(layout: NDArray[np.int64], path: str | Path) -> NDArray[np.int64]:
    for place, word in ((BOS, b"<s>"), (EOS, b"</s>")):
        layout[place] = index_word(layout, word + PADDING)
        if layout[place] == 0:
            raise format_error(path, f"it has no {word.decode()}")
    return layout
