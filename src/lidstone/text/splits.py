"""Texts cut into parts that workers read: `cut`.

A plain file is cut at multiples of the size of its chunks, so its parts have the very chunks of the whole
(`read_chunks`). A compressed file, one with columns, one at an address, and one of raw text is one part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from lidstone.errors import InputError, TextError
from lidstone.parallel import chunk_size, equal_ranges
from lidstone.text.inputs import Input
from lidstone.text.reader import CHUNK_BYTES, Place, line_begin
from lidstone.text.source import Source, is_plain, stamp

Result = TypeVar("Result")
SPLIT_BYTES = 1 << 26


@dataclass(frozen=True)
class TextSplit:
    """A part of a text."""

    item: Input
    number: int = 0
    """which of the texts it is a part of"""
    start: int = 0
    stop: int | None = None
    """the lines that end in start..stop; None for the end of the file"""
    changed: int = 0
    """when the file was changed last, in nanoseconds; 0 where that is not known"""

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.item.name

    @property
    def begin(self) -> Place:
        """Where its first line begins, as a place in the file alone, without its number."""
        return Place(offset=line_begin(self.name, self.start) if self.start else 0)

    def check(self) -> None:
        """Refuse a file that changed since it was cut."""
        now = stamp(self.name)
        if self.changed and (now is None or now[2] != self.changed):
            hint = "wait until it is written, then begin again; all nodes must see the same file"
            raise TextError(f"{self.name} changed while it was read", hint=hint)

    def read(self, work: Callable[[Source, Place, int | None], Result]) -> Result:
        """What `work` makes of the lines; an error of the text names its line in the file."""
        self.check()
        begin = self.begin
        try:
            found = work(self.item.open(), begin, self.stop)
        except TextError:
            if begin.offset:
                work(self.item.open(), replace(begin, line=lines_before(self.name, begin.offset)), self.stop)
            raise
        self.check()
        return found


def lines_before(path: str | Path, offset: int) -> int:
    """How many lines of a file end before an offset."""
    with Path(path).open("rb") as file:
        blocks = iter(lambda: file.read(min(CHUNK_BYTES, offset - file.tell())), b"")
        return sum(block.count(b"\n") for block in blocks)


def cut(
    inputs: Sequence[Input], limit: int | None = None, workers: int = 1, chunk_bytes: int = 1, *, lines: bool = True
) -> list[TextSplit]:
    """The parts of all inputs, in the order of the text: of at most `limit` bytes, and so many that workers are busy.

    They are cut at multiples of `chunk_bytes`. `lines` says that files are read line by line, unless they have columns.

    >>> [part.name for part in cut([Input("a.gz"), Input("s3://bucket/b")])]
    ['a.gz', 's3://bucket/b']
    """
    if any(item.name == "-" for item in inputs):
        raise InputError("workers cannot read standard input", hint="name files, or leave out --engine ray")
    known = [stamp(item.name) or (item.name, 0, 0) for item in inputs]
    size = chunk_size(sum(length for _, length, _ in known), limit or SPLIT_BYTES, workers)
    found: list[TextSplit] = []
    for number, (item, (_, length, changed)) in enumerate(zip(inputs, known, strict=True)):
        whole = length <= size or not lines or item.column is not None or item.raw is not None
        parts = 1 if whole or not is_plain(item.name) else -(-length // size)
        found += [
            TextSplit(item, number, start, None if stop == length else stop, changed)
            for start, stop in equal_ranges(length, parts, chunk_bytes if parts > 1 else 1)
            if start < stop or not length
        ]
    return found
