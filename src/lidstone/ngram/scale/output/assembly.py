"""Pieces of all buckets, one after the other, as one count file.

Buckets are ranges in the order of the trie, so each array of the file is the concatenation, order by order, of what the
pieces have. Node ids take 32 bits, or 64 where there are too many nodes; counts likewise.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError
from lidstone.files import atomic_write
from lidstone.ngram import counting
from lidstone.ngram.scale.output.links import link
from lidstone.ngram.scale.output.stream_file import MappedArray, Shape, StreamFile
from lidstone.ngram.scale.pieces import Ints, Piece, run_lengths
from lidstone.ngram.storage.files import FORMAT, VERSION, vocabulary_parts
from lidstone.text.vocabulary import Vocabulary

BLOCK_NODES = 1 << 20
Advance = Callable[[float], None]


@dataclass(frozen=True)
class Parts:
    """What a count file is made of."""

    vocab: Vocabulary
    order: int
    unigrams: NDArray[np.int64]
    """counts of the words and, last, of `<s>`"""
    pieces: Sequence[Callable[[], Piece]]
    """opens each bucket's piece, in the order of the buckets"""
    thresholds: tuple[int, ...] = ()
    """n-grams that occur so often or less are to be dropped from the whole; `write_counts` does not"""


def node_type(nodes: int) -> type[np.signedinteger]:
    """The integer that numbers so many nodes."""
    return np.int32 if nodes <= counting.MAX_NODES else np.int64


def count_type(unigrams: NDArray[np.int64]) -> type[np.signedinteger]:
    """The integer that holds every count and every sum of counts of a text with these words."""
    return np.int32 if int(unigrams.sum()) <= counting.MAX_NODES else np.int64


def write_counts(path: str | Path, parts: Parts, *, workers: int = 1, advance: Advance = lambda amount: None) -> None:
    """Write the count file; it appears when it is complete. `advance` is called with the number of nodes linked."""
    with atomic_write(path) as temporary:
        levels = _levels(parts)
        file = StreamFile(temporary, *_layout(parts, levels))
        try:
            _write(file, parts, levels)
            write_links(file, levels, workers, advance)
            file.finish()
        finally:
            file.close()


def _levels(parts: Parts) -> NDArray[np.int64]:
    sizes = np.zeros(parts.order, np.int64)
    sizes[0] = parts.vocab.size + 1
    for open_piece in parts.pieces:
        sizes[1:] += np.diff(open_piece().levels)
    return np.concatenate([[0], np.cumsum(sizes)])


def _layout(parts: Parts, levels: NDArray[np.int64]) -> tuple[dict[str, Shape], dict[str, str]]:
    size, inner, nodes = int(levels[-1]), int(levels[-2]), np.dtype(node_type(int(levels[-1])))
    counts = np.dtype(count_type(parts.unigrams))
    strings, vocabulary = vocabulary_parts(parts.vocab)
    shapes = {
        "levels": Shape(np.dtype(np.int64), len(levels)),
        "words": Shape(np.dtype(np.int32), size),
        "suffixes": Shape(nodes, size),
        "first": Shape(nodes, inner + 1),
        "counts": Shape(counts, size),
        **{name: Shape(array.dtype, len(array)) for name, array in strings.items()},
    }
    facts: dict[str, Any] = {"vocabulary": vocabulary, "thresholds": ()}
    written = {name: json.dumps(fact) for name, fact in facts.items()}
    return shapes, {"format": FORMAT, "version": str(VERSION), "kind": "counts", **written}


def _write(file: StreamFile, parts: Parts, levels: NDArray[np.int64]) -> None:
    strings, _ = vocabulary_parts(parts.vocab)
    for name, array in strings.items():
        file.append(name, array)
    file.append("levels", levels)
    file.append("words", np.arange(levels[1]))
    file.append("counts", parts.unigrams)
    for order in range(2, parts.order + 1):
        for piece in _opened(parts):
            file.append("words", piece.words[piece.level(order)])
            file.append("counts", piece.counts[piece.level(order)])
    _write_first(file, parts, levels)


def _write_first(file: StreamFile, parts: Parts, levels: NDArray[np.int64]) -> None:
    if parts.order == 1:
        file.append("first", levels[1:])
        return
    children = np.zeros(levels[1], np.int64)
    for piece in _opened(parts):
        np.add.at(children, *run_lengths(piece.heads))
    file.append("first", levels[1] + np.concatenate([[0], np.cumsum(children)[:-1]]))
    for order in range(2, parts.order):
        end = int(levels[order])
        for piece in _opened(parts):
            first = piece.first[piece.level(order)].astype(np.int64) - piece.base
            file.append("first", first - int(piece.levels[order - 1]) + end)
            end += int(piece.levels[order] - piece.levels[order - 1])
    file.append("first", levels[-1:])


def _opened(parts: Parts) -> Iterator[Piece]:
    for open_piece in parts.pieces:
        yield open_piece()


def write_links(
    file: StreamFile, levels: NDArray[np.int64], workers: int, advance: Advance = lambda amount: None
) -> None:
    """Find the suffix of every n-gram, when words and offsets are written."""
    file.append("suffixes", np.full(levels[1], -1))
    words, first, links = (file.read(name) for name in ("words", "first", "suffixes"))
    with ThreadPoolExecutor(workers) as pool:
        for order in range(2, len(levels)):
            blocks = _parent_blocks(first.array, int(levels[order - 2]), int(levels[order - 1]))
            for group in _groups(blocks, workers):
                find = functools.partial(_links, first, words, links, order)
                for found in pool.map(find, group):
                    file.append("suffixes", found)
                    advance(len(found))
                file.file.flush()
                for mapped in (words, first, links):
                    mapped.drop()


def _links(first: MappedArray, words: MappedArray, links: MappedArray, order: int, parents: range) -> Ints:
    begin, end = int(first.array[parents.start]), int(first.array[parents.stop])
    if order == 2:
        return words.array[begin:end]  # the suffix of a pair is its second word
    out = np.empty(end - begin, links.array.dtype)
    if not link(first.array, words.array, links.array[parents.start : parents.stop], parents, out):
        raise FileFormatError("the n-grams do not form a trie: one has no suffix", hint="count the text again")
    return out


def _parent_blocks(first: Ints, start: int, stop: int) -> Iterator[range]:
    """Parents start..stop in stretches with some `BLOCK_NODES` children."""
    while start < stop:
        limit = first.dtype.type(min(int(first[start]) + BLOCK_NODES, int(first[stop])))
        found = start + int(np.searchsorted(first[start : stop + 1], limit, side="right")) - 1
        end = min(max(found, start + 1), stop)
        yield range(start, end)
        start = end


def _groups(blocks: Iterator[range], workers: int) -> Iterator[list[range]]:
    """A few blocks at a time: what is in memory at once."""
    group: list[range] = []
    for block in blocks:
        group.append(block)
        if len(group) == 4 * workers:
            yield group
            group = []
    if group:
        yield group
