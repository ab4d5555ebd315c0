"""Suffix links of a count file whose words and offsets are written: `write_links`.

The suffix of a child is the child, with the same word, of its parent's suffix: it is found among these by a search that
goes on where the last one ended, for both are sorted by word. Where the parents are 2-grams, their suffixes are words,
with many children each: 2-grams with the same second word are taken together and share a table of its children.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError
from lidstone.jit import helper, kernel
from lidstone.ngram.disk.executors import Executor, page_limit
from lidstone.ngram.disk.memory import limit_pages
from lidstone.ngram.disk.pieces import Ints
from lidstone.ngram.formats.checked_tensors import Part, StreamFile, Target
from lidstone.parallel import chunk_size
from lidstone.text.memory import prefetch_item

BLOCK_NODES = 1 << 20
REMOTE = 16
"""How many blocks a task of a cluster may have."""
Advance = Callable[[float], None]


class LinkArrays(NamedTuple):
    """The arrays of a count file that links are found in, mapped into memory."""

    words: Ints
    first: Ints
    links: Ints
    """as far as they are written"""


@dataclass(frozen=True)
class LinkFiles:
    """Where these arrays stand, and how long they are."""

    targets: tuple[Target, ...]
    sizes: tuple[int, ...]

    def open(self) -> LinkArrays:
        """Map them into memory."""
        return LinkArrays(*(target.read(size) for target, size in zip(self.targets, self.sizes, strict=True)))


def write_links(
    file: StreamFile,
    levels: NDArray[np.int64],
    executor: Executor,
    memory: int,
    advance: Advance = lambda amount: None,
) -> None:
    """Find the suffix of every n-gram, when words and offsets are written; `advance` is called with how many."""
    file.append({"suffixes": np.full(levels[1], -1)})
    names = "words", "first", "suffixes"
    files = LinkFiles(tuple(map(file.target, names)), tuple(file.shapes[name].size for name in names))
    arrays = files.open()
    with limit_pages(page_limit(executor, memory), *arrays):
        for order in range(2, len(levels)):
            size = BLOCK_NODES * (4 if order == 3 else 1)
            if executor.remote:  # few tasks: each takes a millisecond of this process
                size = chunk_size(levels[order] - levels[order - 1], REMOTE * size, executor.workers)
            parents = _parent_blocks(arrays.first, int(levels[order - 2]), int(levels[order - 1]), size)
            find = functools.partial(link_children, file.target("suffixes"), order)
            for part, nodes in executor.run(find, files, arrays, parents):
                file.take({"suffixes": part})
                advance(nodes)


def link_children(target: Target, order: int, arrays: LinkArrays, start: int, stop: int) -> tuple[Part, int]:
    """Write the links of the children of the n-grams start..stop of order - 1; says how many."""
    words, first, links = arrays
    begin, end = int(first[start]), int(first[stop])
    if order == 2:
        return target.write(begin, words[begin:end]), end - begin  # the suffix of a pair is its second word
    found = np.empty(end - begin, links.dtype)
    if order == 3:
        whole = link_to_pairs(first, words, range(start, stop), found)
    else:
        whole = link(first, words, links[start:stop], range(start, stop), found)
    if not whole:
        raise FileFormatError("the n-grams do not form a trie: one has no suffix", hint="count the text again")
    return target.write(begin, found), end - begin


def _parent_blocks(first: Ints, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Parents start..stop in stretches with some `size` children."""
    while start < stop:
        limit = first.dtype.type(min(int(first[start]) + size, int(first[stop])))
        found = start + int(np.searchsorted(first[start : stop + 1], limit, side="right")) - 1
        end = min(max(found, start + 1), stop)
        yield start, end
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


@kernel
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


@kernel
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


@kernel
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


@helper
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
