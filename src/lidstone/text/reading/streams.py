"""Bytes from a plain or compressed file or from standard input, with errors that name the file.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from lidstone.errors import TextError

Source = str | Path | BinaryIO
"""A path, `-` for standard input, or an open binary file."""

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""How names of compressed files end."""

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
        kind = next((kind for magic, kind in _KINDS.items() if re.match(magic, stream.peek(10))), None)
    except OSError as error:
        raise _unreadable(source, error) from error
    if kind is None:
        return cast(BinaryIO, stream)
    return cast(BinaryIO, io.BufferedReader(_Decompressed(kind(stream), stream, name_of(source)), _BLOCK))


def open_plain(source: Source) -> io.BufferedReader:
    """Open `source` for reading, without decompressing it."""
    if isinstance(source, (str, Path)) and str(source) != "-":
        return _open_path(Path(source))
    return io.BufferedReader(_Borrowed(sys.stdin.buffer if isinstance(source, (str, Path)) else source), _BLOCK)


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


class _Borrowed(io.RawIOBase):
    """A stream of the caller: closing this object does not close it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._stream.readinto(buffer) or 0


class _Decompressed(io.RawIOBase):
    """A decompressing stream whose errors name the file; closing it closes the compressed stream, too."""

    def __init__(self, stream: Any, below: io.BufferedReader, name: str) -> None:
        self._stream, self._below, self.name = stream, below, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._stream.readinto(buffer) or 0
        except EOFError as error:
            raise TextError(f"{self.name} is cut off: its compressed data end too early", hint=_AGAIN) from error
        except _damage() as error:
            raise TextError(f"{self.name} is damaged: {error}", hint=_AGAIN) from error

    def close(self) -> None:
        self._stream.close()
        self._below.close()
        super().close()


_AGAIN = "copy or download the file again"


def _damage() -> tuple[type[Exception], ...]:
    import zstandard

    return (OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


class _Zstd(io.RawIOBase):
    """zstd frames one after the other; EOFError where the last is incomplete."""

    def __init__(self, stream: io.BufferedReader) -> None:
        import zstandard

        self._stream, self._new = stream, zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new()
        self._ready, self._waiting, self._fresh = memoryview(b""), b"", True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._waiting or self._stream.read(_BLOCK)
            if not block:
                return self._finish()
            self._decompress(block)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _finish(self) -> int:
        if not self._fresh:
            raise EOFError("incomplete zstd frame")
        return 0

    def _decompress(self, block: bytes) -> None:
        self._ready = memoryview(self._frame.decompress(block))
        self._waiting, self._fresh = self._frame.unused_data, self._frame.eof
        if self._frame.eof:
            self._frame = self._new()


_KINDS: dict[bytes, Callable[[io.BufferedReader], Any]] = {
    rb"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.BZ2File,
    rb"\xfd7zXZ\x00": lzma.LZMAFile,
    rb"\x28\xb5\x2f\xfd": _Zstd,
}
