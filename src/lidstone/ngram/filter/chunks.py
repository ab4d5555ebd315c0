"""Sources of any size as pieces of whole lines with their positions, so that reading can continue at any of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lidstone.text.reading.lines import MARK, whole_lines
from lidstone.text.reading.streams import Source, name_of

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Place:
    """A position in the sources: all text before it has been read."""

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
        for data in whole_lines(sources[number], chunk_bytes, place.offset):
            text = data.removeprefix(MARK) if place.offset == 0 else data
            lines = data.count(b"\n") + (not data.endswith(b"\n"))
            end = Place(number, place.offset + len(data), place.line + lines, place.document + lines)
            yield Chunk(text.removesuffix(b"\n"), called[number], place, end)
            place = end
        place = Place(number + 1, 0, 0, place.document)
