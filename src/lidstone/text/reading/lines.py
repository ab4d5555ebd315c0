"""Whole lines of a source, in blocks, from any position of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from lidstone.text.reading.streams import Source, open_bytes

MARK = b"\xef\xbb\xbf"  # the UTF-8 byte order mark


def whole_lines(source: Source, chunk_bytes: int, offset: int = 0) -> Iterator[bytes]:
    r"""Bytes from `offset` on, after decompression, in pieces of about `chunk_bytes` that end at a line end.

    The last piece perhaps does not; a line that is longer than `chunk_bytes` makes a piece longer.

    >>> import io
    >>> list(whole_lines(io.BytesIO(b"a\nbc\nd"), chunk_bytes=3, offset=2))
    [b'bc\n', b'd']
    """
    with open_bytes(source) as stream:
        _skip(stream, offset)
        begun: list[bytes] = []  # the incomplete line at the end of the last block, of any length
        while block := stream.read(chunk_bytes):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join((*begun, memoryview(block)[:cut]))
                begun = []
            begun.append(block[cut:])
        if any(begun):
            yield b"".join(begun)


def _skip(stream: BinaryIO, offset: int) -> None:
    """Move to an offset; what cannot seek, such as a pipe, is read."""
    if offset and stream.seekable():
        stream.seek(offset)
        return
    while offset > 0 and (block := stream.read(min(offset, 1 << 20))):
        offset -= len(block)
