"""Inputs cut into parts that workers read on their own: whole files, or ranges of large plain ones.

A range holds the lines that begin in it, so every line is in exactly one part, in the order of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lidstone.errors import InputError, TextError
from lidstone.ngram.disk.memory import chunk_size
from lidstone.text.inputs import Input
from lidstone.text.reader import FileRange, byte_ranges
from lidstone.text.source import Source, is_plain, stamp

SPLIT_BYTES = 1 << 26


@dataclass(frozen=True)
class TextSplit:
    """A part of the text."""

    number: int
    name: str
    column: str | None
    start: int = 0
    stop: int = -1
    """-1 for the end of the file"""
    changed: int = 0
    """when the file was changed last, in nanoseconds; 0 where that is not known"""

    def open(self) -> Source:
        """The lines of this part; an error if the file changed since it was cut."""
        self.check()
        if self.stop < 0:
            return Input(self.name, self.column).open()
        return FileRange(self.name, self.start, self.stop)  # type: ignore[return-value]

    def check(self) -> None:
        """Refuse a file that changed since it was cut."""
        now = stamp(self.name)
        if self.changed and (now is None or now[2] != self.changed):
            hint = "wait until it is written, then count again; all nodes must see the same file"
            raise TextError(f"{self.name} changed while it was read", hint=hint)


def cut(inputs: Sequence[Input], limit: int = SPLIT_BYTES, workers: int = 1) -> list[TextSplit]:
    """The parts of all inputs, in the order of the text: of at most `limit` bytes, and so many that workers are busy.

    >>> [part.name for part in cut([Input("a.gz"), Input("s3://bucket/b")])]
    ['a.gz', 's3://bucket/b']
    """
    if any(item.name == "-" for item in inputs):
        raise InputError("workers cannot read standard input", hint="name files, or count without --engine ray")
    known = [stamp(item.name) or (item.name, 0, 0) for item in inputs]
    size = chunk_size(sum(length for _, length, _ in known), limit, workers)
    found: list[TextSplit] = []
    for item, (_, length, changed) in zip(inputs, known, strict=True):
        for start, stop in _ranges(item, length, size):
            found.append(TextSplit(len(found), item.name, item.column, start, stop, changed))
    return found


def _ranges(item: Input, size: int, limit: int) -> list[tuple[int, int]]:
    whole = size <= limit or item.column is not None or not is_plain(item.name)
    return [(0, -1)] if whole else byte_ranges(size, limit)
