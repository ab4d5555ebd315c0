"""Text as pieces of whole lines with their places: what counting, scoring and filtering read.

    source -> stream of bytes (`source.py`) -> chunks of whole lines (here) -> tokens as byte ranges (`tokens.py`)

Text is UTF-8 without NUL bytes. A line ends at a line feed alone; a byte order mark at the start of the text is
dropped. Errors name the file, line and byte. Reading can begin at the place of any chunk, and a large plain file can be
read in ranges at the same time: the range start..stop has the lines that end in it, from `line_begin(start)` on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from lidstone.errors import DataError, TextError
from lidstone.text.source import HEAD, Source, kind_of, name_of, not_text, open_bytes, raw_position, stamp

CHUNK_BYTES = 1 << 20
MARK = b"\xef\xbb\xbf"  # the UTF-8 byte order mark


@dataclass(frozen=True)
class Place:
    """A position in some sources: all text before it has been read."""

    source: int = 0
    """the number of the source"""
    offset: int = 0
    """bytes of it, after decompression"""
    line: int = 0
    """lines of it"""
    document: int = 0
    """lines of all sources"""


@dataclass(frozen=True)
class Chunk:
    """Whole lines of one source; the last line of a source perhaps without its line feed."""

    data: bytes
    """without a byte order mark"""
    name: str
    """of the source, for messages"""
    begin: Place
    end: Place
    raw: int = 0
    """bytes of the file read so far, before decompression; 0 if the source is no file"""

    @property
    def text(self) -> bytes:
        """The lines with line feeds between."""
        return self.data.removesuffix(b"\n")

    @property
    def lines(self) -> list[bytes]:
        """The lines, without line feeds."""
        return self.text.split(b"\n")


def read_chunks(
    sources: Source | Sequence[Source],
    begin: Place | None = None,
    *,
    stop: int | None = None,
    names: Sequence[str] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    strict: bool = True,
    arpa: bool = False,
    watch: bool = False,
    prompt: bool = False,
) -> Iterator[Chunk]:
    r"""All lines of all sources, in pieces of about `chunk_bytes`; a longer line makes a piece longer.

    A piece has the lines that end in a stretch of `chunk_bytes`. So the pieces from the place of any piece on are the
    same. With `stop` there are the lines that end before that byte of the last source.

    What is not text is an error, unless `strict` is false; so is an ARPA file, except for its own reader (`arpa`). With
    `watch` a file that changes while it is read is an error: the text would be neither the old nor the new one. With
    `prompt` a piece is all lines that have arrived, so that a program that waits for an answer gets one.

    >>> import io
    >>> chunks = read_chunks(io.BytesIO(b"a\nbc\n\nd"), chunk_bytes=3)
    >>> [(chunk.data, chunk.end.line) for chunk in chunks]
    [(b'a\n', 1), (b'bc\n\n', 3), (b'd', 4)]
    """
    texts: Sequence[Source] = sources if isinstance(sources, (list, tuple)) else [sources]  # type: ignore[list-item]
    place = begin or Place()
    for number in range(place.source, len(texts)):
        source, name = texts[number], names[number] if names else name_of(texts[number])
        before = stamp(source) if watch else None
        with open_bytes(source) as stream:
            for data in _whole_lines(stream, chunk_bytes, place.offset, prompt, stop):
                if strict:
                    _check(data, source, name, place, arpa)
                lines = data.count(b"\n") + (not data.endswith(b"\n"))
                end = Place(number, place.offset + len(data), place.line + lines, place.document + lines)
                text = data if place.offset else data.removeprefix(MARK)
                if text:
                    yield Chunk(text, name, place, end, raw_position(stream))
                place = end
        if watch and stamp(source) != before:
            hint = "wait until it is written, then count again"
            raise TextError(f"{name} changed while it was read", hint=hint)
        place = Place(number + 1, 0, 0, place.document)


def read_lines(source: Source, chunk_bytes: int = 1 << 22) -> Iterator[str]:
    r"""Yield lines without their ends; a carriage return before the line feed is part of the end.

    >>> import io
    >>> list(read_lines(io.BytesIO("é a\r\n\nb".encode())))
    ['é a', '', 'b']
    """
    for chunk in read_chunks(source, chunk_bytes=chunk_bytes):
        yield from (line.removesuffix("\r") for line in chunk.text.decode().split("\n"))


def _whole_lines(stream: BinaryIO, chunk_bytes: int, offset: int, prompt: bool, stop: int | None) -> Iterator[bytes]:
    """The bytes from `offset` on, in pieces that end at a line end, the last one of a stream perhaps not."""
    _skip(stream, offset)
    read = stream.read1 if prompt else stream.read  # type: ignore[attr-defined]
    begun: list[bytes] = []  # the incomplete line at the end of the last block, of any length
    end = sys.maxsize if stop is None else stop
    while block := read(min(chunk_bytes - offset % chunk_bytes, end - offset)):
        offset += len(block)
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join((*begun, memoryview(block)[:cut]))
            begun = []
        begun.append(block[cut:])
    if offset != end and any(begun):
        yield b"".join(begun)


def _skip(stream: BinaryIO, offset: int) -> None:
    """Move to an offset; what cannot seek, such as a pipe, is read."""
    if offset and stream.seekable():
        stream.seek(offset)
        return
    while offset > 0 and (block := stream.read(min(offset, 1 << 20))):
        offset -= len(block)


def _check(data: bytes, source: Source, name: str, place: Place, arpa: bool) -> None:
    """Raise an error if these bytes, the next ones of a source, are not text."""
    kind = "text" if place.offset else kind_of(data[:HEAD])
    if kind not in ("text", "binary") and not (arpa and kind == "arpa"):  # of binary data the first bad byte is named
        raise not_text(kind, source)
    fault = find_fault(data)
    if fault:
        line = place.line + data.count(b"\n", 0, fault.at) + 1
        where = f"in line {line}, at byte {place.offset + fault.at}"
        raise TextError(f"{name} {fault.verb} {fault.what} {where}", hint=fault.hint)


class Fault(NamedTuple):
    """The first byte that no text may have."""

    at: int
    verb: str
    what: str
    hint: str


def find_fault(data: bytes) -> Fault | None:
    r"""What is wrong with these bytes as text; None if nothing is.

    >>> find_fault(b"ab\xe4c")[:3], find_fault(b"abc")
    ((2, 'is', 'not UTF-8: 0xe4'), None)
    """
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError as error:
        hint = "convert it, for example with iconv -f latin1 -t utf-8"
        return Fault(error.start, "is", f"not UTF-8: 0x{data[error.start]:02x}", hint)
    zero = data.find(b"\0")
    if zero < 0:
        return None
    hint = "this is not plain text; for UTF-16, convert it with iconv -f utf-16 -t utf-8"
    return Fault(zero, "has", "a NUL byte", hint)


def line_begin(path: str | Path, position: int) -> int:
    r"""Where the line begins in which the byte at a position of a file stands; after a line feed, a line begins.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "text"; _ = file.write_bytes(b"a\nbc\n")
    >>> [line_begin(file, position) for position in range(6)]
    [0, 0, 2, 2, 2, 5]
    """
    with Path(path).open("rb") as file:
        while position > 0:
            start = max(position - HEAD, 0)
            file.seek(start)
            if found := file.read(position - start).rfind(b"\n") + 1:
                return start + found
            position = start
    return 0


def aligned(texts: Sequence[Iterable[str]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Line n of each text is sample n; texts of different length are an error.

    >>> aligned([["a", "b"], ["A"]], ["x.de", "x.en"])
    Traceback (most recent call last):
    lidstone.errors.DataError: x.de has 2 lines but x.en has 1: line 2 has no partner. hint: ...
    """
    columns = [list(text) for text in texts]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise DataError(
            f"{names[0]} has {lengths[0]} lines but {names[1]} has {lengths[1]}: "
            f"line {min(lengths) + 1} has no partner",
            hint="line n of one file must translate line n of the other",
        )
    return list(zip(*columns, strict=True))
