"""Pieces of all buckets, one after the other, as one count file; then the suffix links of the whole.

Buckets are ranges in the order of the trie, so each array of the file is the concatenation, order by order, of what the
pieces have. Node ids take 32 bits, or 64 where there are too many nodes; counts likewise.

The suffix of a child is the child, with the same word, of its parent's suffix: it is found among these by a search that
goes on where the last one ended, for both are sorted by word. Where the parents are 2-grams, their suffixes are words,
with many children each: 2-grams with the same second word are taken together and share a table of its children.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from lidstone.errors import FileFormatError
from lidstone.files import atomic_write
from lidstone.ngram import count
from lidstone.ngram.disk.memory import PAGE_SHARE, limit_pages
from lidstone.ngram.disk.pieces import Ints, load_piece, run_lengths
from lidstone.ngram.formats.checked_tensors import Part, StreamFile, Target
from lidstone.ngram.formats.safetensors import stream
from lidstone.parallel import bounded_lookahead
from lidstone.text.memory import prefetch_item
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
    files: Sequence[Path]
    """each bucket's piece, in the order of the buckets"""
    thresholds: tuple[int, ...] = ()
    """n-grams that occur so often or less are to be dropped from the whole; `write_counts` does not"""


def node_type(nodes: int) -> type[np.signedinteger]:
    """The integer that numbers so many nodes."""
    return np.int32 if nodes <= count.MAX_NODES else np.int64


def count_type(unigrams: NDArray[np.int64]) -> type[np.signedinteger]:
    """The integer that holds every count and every sum of counts of a text with these words."""
    return np.int32 if int(unigrams.sum()) <= count.MAX_NODES else np.int64


def write_counts(
    path: str | Path, parts: Parts, *, workers: int = 1, memory: int, advance: Advance = lambda amount: None
) -> None:
    """Write the count file; it appears when it is complete. `advance` is called with the number of nodes linked."""
    sizes = _sizes(parts)
    levels = np.cumsum([0, parts.vocab.size + 1, *sizes.sum(axis=0)])
    nodes = node_type(int(levels[-1]))
    types: dict[str, DTypeLike] = {
        "words": np.int32,
        "suffixes": nodes,
        "first": nodes,
        "counts": count_type(parts.unigrams),
    }
    with (
        atomic_write(path) as temporary,
        stream(temporary, "counts", parts.vocab, levels, types, {"thresholds": ()}) as file,
    ):
        _write(file, parts, levels, sizes, workers)
        write_links(file, levels, workers, memory, advance)


def _sizes(parts: Parts) -> NDArray[np.int64]:
    """How many n-grams each piece has of each order from 2 on."""
    found = [np.diff(load_piece(path)[0].levels) for path in parts.files]
    return np.array(found, np.int64).reshape(len(found), parts.order - 1)


def _write(file: StreamFile, parts: Parts, levels: NDArray[np.int64], sizes: NDArray[np.int64], workers: int) -> None:
    first = _first_of_words(parts, int(levels[1]))
    file.append({"words": np.arange(levels[1]), "counts": parts.unigrams, "first": first})
    begins = levels[1:-1] + np.cumsum(sizes, axis=0) - sizes
    write = functools.partial(_write_level, {name: file.target(name) for name in ("words", "counts", "first")}, begins)
    tasks = [(order, number) for order in range(2, parts.order + 1) for number in range(len(sizes))]
    with ThreadPoolExecutor(workers) as pool:
        for written in pool.map(lambda task: write(parts.files[task[1]], *task), tasks):
            file.take(written)
    file.append({"first": levels[-1:]})


def _first_of_words(parts: Parts, begin: int) -> NDArray[np.int64]:
    """Where the 2-grams of each word begin."""
    children = np.zeros(begin, np.int64)
    for path in parts.files:
        np.add.at(children, *run_lengths(load_piece(path)[0].heads))
    return begin + np.cumsum(children) - children if parts.order > 1 else np.empty(0, np.int64)


def _write_level(
    targets: Mapping[str, Target], begins: NDArray[np.int64], path: Path, order: int, number: int
) -> dict[str, Part]:
    """Write the n-grams of one order of a piece; `begins` has the number of the first one of each piece and order."""
    (piece, _), begin = load_piece(path), int(begins[number, order - 2])
    level = piece.level(order)
    found: dict[str, Ints] = {"words": piece.words[level], "counts": piece.counts[level]}
    if order < piece.order:
        shift = int(begins[number, order - 1]) - int(piece.levels[order - 1]) - piece.base
        found["first"] = np.add(piece.first[level], shift, dtype=targets["first"].dtype)
    return {name: targets[name].write(begin, values) for name, values in found.items()}


def write_links(
    file: StreamFile, levels: NDArray[np.int64], workers: int, memory: int, advance: Advance = lambda amount: None
) -> None:
    """Find the suffix of every n-gram, when words and offsets are written."""
    file.append({"suffixes": np.full(levels[1], -1)})
    mapped = words, first, links = [file.read(name) for name in ("words", "first", "suffixes")]
    with limit_pages(int(memory * PAGE_SHARE), *mapped), ThreadPoolExecutor(workers) as pool:
        for order in range(2, len(levels)):
            size = BLOCK_NODES * (4 if order == 3 else 1)
            parents = _parent_blocks(first, int(levels[order - 2]), int(levels[order - 1]), size)
            find = functools.partial(_write_links, file.target("suffixes"), first, words, links, order)
            for found in bounded_lookahead((pool.submit(find, block) for block in parents), workers):
                part, nodes = found.result()
                file.take({"suffixes": part})
                advance(nodes)


def _write_links(target: Target, first: Ints, words: Ints, links: Ints, order: int, parents: range) -> tuple[Part, int]:
    """Write the links of the children of some n-grams of order - 1; says how many."""
    begin, end = int(first[parents.start]), int(first[parents.stop])
    if order == 2:
        return target.write(begin, words[begin:end]), end - begin  # the suffix of a pair is its second word
    found = np.empty(end - begin, links.dtype)
    if order == 3:
        whole = link_to_pairs(first, words, parents, found)
    else:
        whole = link(first, words, links[parents.start : parents.stop], parents, found)
    if not whole:
        raise FileFormatError("the n-grams do not form a trie: one has no suffix", hint="count the text again")
    return target.write(begin, found), end - begin


def _parent_blocks(first: Ints, start: int, stop: int, size: int) -> Iterator[range]:
    """Parents start..stop in stretches with some `size` children."""
    while start < stop:
        limit = first.dtype.type(min(int(first[start]) + size, int(first[stop])))
        found = start + int(np.searchsorted(first[start : stop + 1], limit, side="right")) - 1
        end = min(max(found, start + 1), stop)
        yield range(start, end)
        start = end


AHEAD = 16
"""How many parents ahead the children of a suffix are asked for; their offsets twice as many."""


def link(first: Ints, words: Ints, parent_links: Ints, parents: range, out: Ints) -> bool:
    """The links of the children of `parents`, into `out`; False if one has no suffix: this is no trie.

    `parent_links` are those of the parents themselves.
    """
    return bool(_link(first, words, parent_links, parents.start, parents.stop, out))


def link_to_pairs(first: Ints, words: Ints, parents: range, out: Ints) -> bool:
    """`link` where the parents are 2-grams; a call takes time for all 2-grams, so it should have many parents."""
    vocabulary, seconds = int(first[0]), words[parents.start : parents.stop]
    if not (seconds.min(initial=0) >= 0 and seconds.max(initial=0) < vocabulary):
        return False
    places = np.zeros(vocabulary, first.dtype)
    return bool(_link_to_pairs(first, words, seconds, parents.start, _by_value(seconds, vocabulary), places, out))


@njit(cache=True, nogil=True)
def _link(first, words, parent_links, start, stop, out):  # type: ignore[no-untyped-def]
    base = first[start]
    for parent in range(start, stop):
        if parent + 2 * AHEAD < stop:
            prefetch_item(first, np.int64(parent_links[parent + 2 * AHEAD - start]))
            prefetch_item(words, np.int64(first[parent_links[parent + AHEAD - start]]))
        suffix = parent_links[parent - start]
        at, end = first[suffix], first[suffix + 1]
        for child in range(first[parent], first[parent + 1]):
            at = _search(words, words[child], at, end)
            if at == end or words[at] != words[child]:
                return False
            out[child - base] = at
    return True


@njit(cache=True, nogil=True)
def _by_value(values, size):  # type: ignore[no-untyped-def]
    """The positions of values below `size`, sorted by value."""
    ends, found = np.zeros(size + 1, np.int64), np.empty(len(values), np.int32)
    for value in values:
        ends[value + 1] += 1
    for value in range(size):
        ends[value + 1] += ends[value]
    for position in range(len(values)):
        value = values[position]
        found[ends[value]] = position
        ends[value] += 1
    return found


@njit(cache=True, nogil=True)
def _link_to_pairs(first, words, seconds, start, turns, places, out):  # type: ignore[no-untyped-def]
    base, turn = first[start], 0
    while turn < len(turns):
        word = seconds[turns[turn]]
        low, end = first[word], first[word + 1]
        for pair in range(low, end):
            if not 0 <= words[pair] < len(places):
                return False
            places[words[pair]] = pair
        while turn < len(turns) and seconds[turns[turn]] == word:
            if turn + 2 * AHEAD < len(turns):
                prefetch_item(first, np.int64(start + turns[turn + 2 * AHEAD]))
                prefetch_item(words, np.int64(first[start + turns[turn + AHEAD]]))
            parent = start + turns[turn]
            for child in range(first[parent], first[parent + 1]):
                at = places[words[child]] if 0 <= words[child] < len(places) else -1
                if at < low or at >= end or words[at] != words[child]:
                    return False
                out[child - base] = at
            turn += 1
    return True


@njit(cache=True, nogil=True)
def _search(words, word, low, end):  # type: ignore[no-untyped-def]
    """The first position from `low` on whose word is not smaller: in growing steps, then by halves."""
    step, high = 1, low
    while high < end and words[high] < word:
        low = high + 1
        high += step
        step *= 2
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low
