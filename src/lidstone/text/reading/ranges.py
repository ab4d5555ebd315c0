"""The lines of a plain file that begin between two positions: parts of a file that can be read in parallel."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from lidstone.text.reading.lines import MARK
from lidstone.text.reading.streams import COMPRESSED

_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PAR1")


def is_plain(path: str | Path) -> bool:
    """Whether a file is neither compressed nor Parquet, by its name and its first bytes."""
    if Path(path).suffix in COMPRESSED:
        return False
    with Path(path).open("rb") as file:
        return not file.read(6).startswith(_MAGIC)


def byte_ranges(size: int, limit: int) -> list[tuple[int, int]]:
    """0..size in equal ranges of at most `limit` bytes.

    >>> byte_ranges(10, 4)
    [(0, 3), (3, 6), (6, 10)]
    """
    parts = max(1, -(-size // limit))
    bounds = [size * part // parts for part in range(parts + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))  # noqa: RUF007


class FileRange(io.RawIOBase):
    """The lines of a file that begin in start..stop, as a stream of bytes."""

    def __init__(self, path: str | Path, start: int, stop: int) -> None:
        self.name, self._stop, self._file = str(path), stop, Path(path).open("rb")  # noqa: SIM115
        self._ahead = b""
        if start:  # the line of the byte before begins earlier, unless that byte ends it
            self._file.seek(start - 1)
            self._file.readline()
            self._ahead = self._mark()

    def _mark(self) -> bytes:
        """A byte order mark for readers to drop, if the range begins with one that is part of the text."""
        position = self._file.tell()
        marked = position < self._stop and self._file.read(len(MARK)) == MARK
        self._file.seek(position)
        return MARK if marked else b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read on, to the end of the line in which the range ends."""
        if self._ahead:
            data, self._ahead = self._ahead[: len(buffer)], self._ahead[len(buffer) :]
        elif (left := self._stop - self._file.tell()) > 0:
            data = self._file.read(min(len(buffer), left))
        else:
            data = self._rest(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _rest(self, size: int) -> bytes:
        """The rest of the last line: empty once the line has ended."""
        if not self._file.tell():
            return b""
        self._file.seek(-1, io.SEEK_CUR)
        return b"" if self._file.read(1) == b"\n" else self._file.readline(size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
