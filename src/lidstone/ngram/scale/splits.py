"""Inputs cut into parts that workers read on their own: whole files, or ranges of large plain ones.

A range holds the lines that begin in it, so every line is in exactly one part, in the order of the text.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lidstone.errors import InputError, TextError
from lidstone.text.blocks import stamp
from lidstone.text.inputs import Input
from lidstone.text.streams import COMPRESSED, Source

SPLIT_BYTES = 1 << 26
_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PAR1")


@dataclass(frozen=True)
class Split:
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
        return _Range(self.name, Path(self.name).open("rb"), self.start, self.stop)  # type: ignore[return-value]

    def check(self) -> None:
        """Refuse a file that changed since it was cut."""
        now = stamp(self.name)
        if self.changed and (now is None or now[2] != self.changed):
            hint = "wait until it is written, then count again; all nodes must see the same file"
            raise TextError(f"{self.name} changed while it was read", hint=hint)


def cut(inputs: Sequence[Input], size: int = SPLIT_BYTES) -> list[Split]:
    """The parts of all inputs, in the order of the text.

    >>> [part.name for part in cut([Input("a.gz"), Input("s3://bucket/b")])]
    ['a.gz', 's3://bucket/b']
    """
    found: list[Split] = []
    for item in inputs:
        if item.name == "-":
            raise InputError("workers cannot read standard input", hint="name files, or count without --engine ray")
        known = stamp(item.name)
        for start, stop in _ranges(item, known[1] if known else 0, size):
            found.append(Split(len(found), item.name, item.column, start, stop, known[2] if known else 0))
    return found


def _ranges(item: Input, size: int, limit: int) -> Iterator[tuple[int, int]]:
    if size <= limit or not _is_plain(item):
        yield 0, -1
        return
    parts = -(-size // limit)
    bounds = [size * part // parts for part in range(parts + 1)]
    yield from itertools.pairwise(bounds)


def _is_plain(item: Input) -> bool:
    if item.column is not None or Path(item.name).suffix in COMPRESSED:
        return False
    with Path(item.name).open("rb") as file:
        return not file.read(6).startswith(_MAGIC)


class _Range(io.RawIOBase):
    """The lines of a file that begin between two positions."""

    def __init__(self, name: str, file: BinaryIO, start: int, stop: int) -> None:
        self.name, self._file, self._stop = name, file, stop
        if start:  # the line that holds the byte before begins earlier, unless that byte ends it
            file.seek(start - 1)
            file.readline()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._stop - self._file.tell()
        data = self._file.read(min(len(buffer), left)) if left > 0 else self._rest(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _rest(self, size: int) -> bytes:
        """What is left of the last line: nothing once a line has ended."""
        self._file.seek(-1, io.SEEK_CUR)
        return b"" if self._file.read(1) == b"\n" else self._file.readline(size)

    def close(self) -> None:
        self._file.close()
        super().close()
