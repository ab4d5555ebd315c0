"""Sources of any size as pieces of whole lines that know where they stand, so that reading can go on from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lidstone.text.reading.streams import Source, name_of, open_bytes

CHUNK_BYTES = 1 << 20
_MARK = b"\xef\xbb\xbf"  # the UTF-8 byte order mark


@dataclass(frozen=True)
class Place:
    """Where reading stands: all before it has been read."""

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
    """Whole lines of one source."""

    data: bytes
    """without the last line feed, and without a byte order mark"""
    name: str
    """of the source, for messages"""
    begin: Place
    end: Place

    @property
    def lines(self) -> list[bytes]:
        """The lines, without line feeds."""
        return self.data.split(b"\n")


def read_chunks(
    sources: Sequence[Source],
    begin: Place | None = None,
    *,
    names: Sequence[str] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Chunk]:
    r"""All lines of all sources, in pieces of about `chunk_bytes`; a longer line is a piece of its own.

    >>> import io
    >>> [(chunk.data, chunk.end.line) for chunk in read_chunks([io.BytesIO(b"a\nbc\n\nd")], chunk_bytes=3)]
    [(b'a', 1), (b'bc\n', 3), (b'd', 4)]
    """
    place = begin or Place()
    called = names or [name_of(source) for source in sources]
    for number in range(place.source, len(sources)):
        for data in _whole_lines(sources[number], place.offset, chunk_bytes):
            text = data.removeprefix(_MARK) if place.offset == 0 else data
            lines = data.count(b"\n") + (not data.endswith(b"\n"))
            end = Place(number, place.offset + len(data), place.line + lines, place.document + lines)
            yield Chunk(text.removesuffix(b"\n"), called[number], place, end)
            place = end
        place = Place(number + 1, 0, 0, place.document)


def _whole_lines(source: Source, offset: int, chunk_bytes: int) -> Iterator[bytes]:
    with open_bytes(source) as stream:
        if offset and stream.seekable():
            stream.seek(offset)
        else:
            _skip(stream, offset)
        begun: list[bytes] = []  # a line that the last block broke off in
        while block := stream.read(chunk_bytes):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join((*begun, memoryview(block)[:cut]))
                begun = []
            if cut < len(block):
                begun.append(block[cut:])
        if begun:
            yield b"".join(begun)


def _skip(stream, offset: int) -> None:  # type: ignore[no-untyped-def]
    """Read past what was done before: a compressed stream has no other way."""
    while offset > 0:
        block = stream.read(min(offset, 1 << 20))
        if not block:
            return
        offset -= len(block)
