"""Bytes from a plain or compressed file or from standard input, with errors that name the file; and its kind.

The compression of a stream is found from its first bytes, not from its name, so `-` may be compressed too. A
stream that ends too early is an error for every format, also for zstd, whose own reader would not report it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from lidstone.errors import TextError

Source = str | Path | BinaryIO
"""A path, `-` for standard input, or an open binary file."""

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""How names of compressed files end."""

Kind = Literal["text", "arpa", "table", "counts", "safetensors", "kenlm", "zip", "binary"]

HEAD = 1 << 14
"""How many bytes, after decompression, are checked"""
KIND_NAMES: dict[Kind, str] = {
    "text": "text",
    "arpa": "an ARPA file",
    "table": "a table",
    "counts": "counts",
    "safetensors": "a safetensors file",
    "kenlm": "a KenLM binary",
    "zip": "a zip archive",
    "binary": "not text",
}
_ARPA = re.compile(rb"^\s*\\data\\\s*$\s*^ngram +1 *=", re.MULTILINE)
_KIND = re.compile(rb'"kind": "(table|counts)"')
_BLOCK = 1 << 17


def name_of(source: Source) -> str:
    """The name of the source in errors.

    >>> name_of("-"), name_of("a.txt")
    ('<stdin>', 'a.txt')
    """
    if isinstance(source, (str, Path)):
        return "<stdin>" if str(source) == "-" else str(source)
    return str(getattr(source, "name", "<stream>"))


def open_bytes(source: Source) -> BinaryIO:
    """Open `source` for reading, decompressing gz, bz2, xz and zst.

    >>> open_bytes(io.BytesIO(gzip.compress(b"a b"))).read()
    b'a b'
    """
    stream = open_plain(source)
    try:
        decompress = _decompressor(stream.peek(10))
    except OSError as error:
        raise _unreadable(source, error) from error
    if decompress is None:
        return cast(BinaryIO, stream)
    name = name_of(source)
    return cast(BinaryIO, io.BufferedReader(ByteStream(_checked(decompress(stream), name), name, stream), _BLOCK))


def open_plain(source: Source) -> io.BufferedReader:
    """Open `source` for reading, without decompressing it."""
    if isinstance(source, (str, Path)) and str(source) != "-":
        return _open_path(Path(source))
    borrowed = sys.stdin.buffer if isinstance(source, (str, Path)) else source  # the caller closes it
    return io.BufferedReader(ByteStream(_blocks_of(borrowed), name_of(source)), _BLOCK)


def raw_position(stream: BinaryIO) -> int:
    """How many bytes of the file have been read, before decompression; 0 if it is no file."""
    below = getattr(getattr(stream, "raw", None), "below", None) or stream
    return below.tell() if below.seekable() else 0


def is_plain(path: str | Path) -> bool:
    """Whether a file is neither compressed nor Parquet, by its name and its first bytes."""
    if Path(path).suffix in COMPRESSED:
        return False
    with open_plain(path) as stream:
        head = stream.peek(10)
        return _decompressor(head) is None and not head.startswith(b"PAR1")


def plain_size(source: Source) -> int | None:
    """The number of bytes to read, if it is known from the size of the file."""
    known = None if Path(name_of(source)).suffix in COMPRESSED else stamp(source)
    return known[1] if known else None


def stamp(source: Source) -> tuple[str, int, int] | None:
    """The path, size and time of change of a file; None if the source is not a file."""
    if not isinstance(source, (str, Path)) or str(source) == "-" or not Path(source).is_file():
        return None
    status = Path(source).stat()
    return str(Path(source).resolve()), status.st_size, status.st_mtime_ns


def _open_path(path: Path) -> io.BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(source: Source, error: OSError) -> TextError:
    hint = {
        FileNotFoundError: "check the path; - is standard input",
        IsADirectoryError: "use the name of a file, not of a folder",
        PermissionError: "check the permissions of the file",
    }.get(type(error), "check the path and the disk")
    return TextError(f"cannot read {name_of(source)}: {error.strerror or error}", hint=hint)


class ByteStream(io.RawIOBase):
    """Blocks of bytes as a stream; closing it closes the stream below, if there is one."""

    def __init__(self, blocks: Iterator[bytes], name: str, below: BinaryIO | None = None) -> None:
        self.name, self.below = name, below
        self._blocks, self._ready = blocks, memoryview(b"")

    def readable(self) -> bool:  # noqa: D102
        return True

    def readinto(self, buffer: Any) -> int:
        """Read on; blocks may be empty."""
        while not self._ready:
            if (block := next(self._blocks, None)) is None:
                return 0
            self._ready = memoryview(block)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:  # noqa: D102
        if self.below is not None:
            self.below.close()
        super().close()


def _blocks_of(stream: Any) -> Iterator[bytes]:
    read = getattr(stream, "read1", stream.read)  # of a pipe what has arrived
    return iter(lambda: read(_BLOCK) or b"", b"")


def _checked(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks; errors name the file."""
    import zstandard

    try:
        yield from blocks
    except EOFError as error:
        raise TextError(f"{name} is cut off: its compressed data end too early", hint=_AGAIN) from error
    except (OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise TextError(f"{name} is damaged: {error}", hint=_AGAIN) from error


_AGAIN = "copy or download the file again"


def _zstd_blocks(stream: io.BufferedReader) -> Iterator[bytes]:
    """Of zstd frames one after the other; EOFError where the last is incomplete."""
    import zstandard

    frame, waiting = zstandard.ZstdDecompressor().decompressobj(), b""
    begun = False
    while block := waiting or stream.read(_BLOCK):
        yield frame.decompress(block)
        waiting, begun = frame.unused_data, not frame.eof
        if frame.eof:
            frame = zstandard.ZstdDecompressor().decompressobj()
    if begun:
        raise EOFError("incomplete zstd frame")


_DECOMPRESSORS: dict[bytes, Callable[[io.BufferedReader], Iterator[bytes]]] = {
    rb"\x1f\x8b": lambda stream: _blocks_of(gzip.GzipFile(fileobj=stream)),
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": lambda stream: _blocks_of(bz2.BZ2File(stream)),
    rb"\xfd7zXZ\x00": lambda stream: _blocks_of(lzma.LZMAFile(stream)),  # noqa: SIM115
    rb"\x28\xb5\x2f\xfd": _zstd_blocks,
}


def _decompressor(head: bytes) -> Callable[[io.BufferedReader], Iterator[bytes]] | None:
    """What decompresses a stream that begins with these bytes; None for plain ones."""
    return next((found for magic, found in _DECOMPRESSORS.items() if re.match(magic, head)), None)


def kind_of(head: bytes) -> Kind:
    r"""The kind of a file that begins with these bytes.

    >>> kind_of(b"\n\\data\\\nngram 1=5\n"), kind_of(b"mmap lm http://kheafield.com/code format version 5\n\0")
    ('arpa', 'kenlm')
    """
    if head.startswith(b"mmap lm http://kheafield.com/code"):
        return "kenlm"
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head[5:9] == b"\0\0\0{":
        found = _KIND.search(head)
        return "safetensors" if found is None else "table" if found[1] == b"table" else "counts"
    if b"\0" in head or not _is_utf8(head):
        return "binary"
    return "arpa" if _ARPA.search(head) else "text"


def _is_utf8(head: bytes) -> bool:
    """Whether bytes are UTF-8, except for a character that is cut off at the end."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start > len(head) - 4
    return True


def kind_of_file(path: str | Path) -> tuple[Kind, bool]:
    """The kind of a file, and whether it is compressed."""
    with open_bytes(path) as stream, open_plain(path) as plain:
        head = stream.read(HEAD)
        return kind_of(head), plain.read(9) != head[:9]


def not_text(kind: Kind, source: Source) -> TextError:
    """The error for a model or an archive that is passed as text."""
    hints = {
        "arpa": "read it with lidstone.read_arpa; on the command line it can be the MODEL",
        "table": "read it with lidstone.load; on the command line it can be the MODEL",
        "counts": "read it with lidstone.load, or fit a smoother: lidstone fit COUNTS --output MODEL",
        "kenlm": "read it with lidstone.load; on the command line it can be the MODEL",
        "zip": "unpack it first: unzip",
    }
    hint = hints.get(kind, "use plain text, one sentence per line")
    return TextError(f"{name_of(source)} is {KIND_NAMES[kind]}, not text", hint=hint)
