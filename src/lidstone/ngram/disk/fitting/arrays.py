"""The arrays of a count file, mapped into memory, in blocks of histories.

The followers of neighbouring histories stand side by side, so a block of histories is a slice of every array. Nothing
is read before it is used; `pages.limit_pages` gives pages back to the system when there are too many.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lidstone.errors import InputError
from lidstone.ngram.disk.pieces import Ints
from lidstone.ngram.formats.checked_tensors import read_arrays
from lidstone.ngram.smoothers.plan import Block
from lidstone.ngram.trie import Trie
from lidstone.text.source import stamp

TRIE = ("levels", "words", "suffixes", "first")
DERIVED = ("totals", "adjusted", "adjusted_totals")


@dataclass(frozen=True, eq=False)
class CountArrays:
    """A trie, its counts, and where they are known the totals and the adjusted counts."""

    trie: Trie
    counts: Ints
    derived: dict[str, Ints]

    def block(self, order: int, start: int, stop: int) -> Block:
        """The histories start..stop, of order - 1 words each."""
        trie = self.trie
        offsets = trie.first[start : stop + 1]
        followers = slice(int(offsets[0]), int(offsets[-1]))
        whole_from = start if order == trie.order else trie.sentence_starts(order - 1).start
        totals, adjusted, adjusted_totals = (self.derived[name] for name in DERIVED)
        return Block(
            order,
            offsets - offsets[0],
            self.counts[followers],
            adjusted[followers],
            totals[start:stop],
            adjusted_totals[start:stop],
            np.arange(start, stop) >= whole_from,
        )


@dataclass(frozen=True)
class CountFiles:
    """Where the arrays stand: in a count file, and what was derived from it in a second one."""

    counts: str
    changed: tuple[str, int, int] | None
    """the path, size and time of change of the count file"""
    derived: str | None = None

    @classmethod
    def at(cls, path: str | Path) -> CountFiles:
        """A count file as it is now."""
        return cls(str(path), stamp(path))

    def open(self) -> CountArrays:
        """Map the arrays into memory; an error if the count file has changed."""
        self.check()
        arrays, _ = read_arrays(self.counts, verify=False)
        more = read_arrays(self.derived, verify=False)[0] if self.derived else arrays
        trie = Trie(*(arrays[name] for name in TRIE))
        return CountArrays(trie, arrays["counts"], {name: more[name] for name in DERIVED if name in more})

    def check(self) -> None:
        """Refuse a count file that changed."""
        if stamp(self.counts) != self.changed:
            hint = "wait until it is written, then try again; all nodes must see the same file"
            raise InputError(f"{self.counts} changed while it was read", hint=hint)


def history_blocks(trie: Trie, order: int, limit: int) -> Iterator[tuple[int, int]]:
    """The histories of order - 1 words in stretches that have, with their followers, at most `limit` nodes.

    A history is never cut, so one with more followers is a stretch of its own.
    """
    first, level = trie.first, trie.level(order - 1)
    start = level.start
    while start < level.stop:
        most = start + int(first[start]) + limit
        nodes = range(start + 1, level.stop + 1)
        found = bisect.bisect_right(nodes, most, key=lambda node: node + int(first[node]))
        stop = nodes[max(found - 1, 0)]
        yield start, stop
        start = stop


def chunks(part: slice, size: int) -> Iterator[slice]:
    """A slice in pieces of at most `size`.

    >>> list(chunks(slice(3, 8), 4))
    [slice(3, 7, None), slice(7, 8, None)]
    """
    for start in range(part.start, part.stop, size):
        yield slice(start, min(start + size, part.stop))
