"""Unpack chosen members of zip and tar archives as regular files.

The names of written files come from the caller, never from the archive; a member must be a regular file. An archive is
refused as a whole if it has a path outside its folder, a link instead of a wanted file, damage anywhere, encryption, or
a compression ratio that text does not have.
"""

from __future__ import annotations

import errno
import gzip
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from lidstone.errors import DataError

Opener = Callable[[], IO[bytes] | None]
MOST_TIMES, MOST_BYTES = 100, 1 << 26
"""Largest unpacked size: this many times the size of the archive, or this many bytes, whichever is more."""
# zipfile: RuntimeError for passwords, NotImplementedError for unknown methods; decompressors have errors of their own.
_BAD = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, OverflowError,
        RuntimeError, NotImplementedError, LookupError, struct.error, gzip.BadGzipFile)  # fmt: skip


def extract(archive: Path, folder: Path, members: Mapping[str, str]) -> None:
    """Write each member {path inside: file name} of a zip or tar archive into `folder`."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                _write_all(_zip_members(opened), archive, folder, members)
        else:
            with tarfile.open(archive) as opened_tar:
                _write_all(_tar_members(opened_tar), archive, folder, members)
                _read_to_end(opened_tar)
    except (*_BAD, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # an error of the disk
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{archive.name} is not a readable archive: {reason}", hint="download it again") from error


def is_safe(name: str) -> bool:
    r"""Whether a path inside an archive stays inside.

    >>> [is_safe(name) for name in ("a/b.txt", "../b", "/etc/passwd", "C:\\b", "a/../../b")]
    [True, False, False, False, False]
    """
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    parts = {*posix.parts, *windows.parts}
    return not (posix.is_absolute() or windows.drive or windows.root or ".." in parts)


def _write_all(found: dict[str, Opener | None], archive: Path, folder: Path, members: Mapping[str, str]) -> None:
    unsafe = next((name for name in found if not is_safe(name)), None)
    if unsafe is not None:
        raise DataError(f"{archive.name} contains the unsafe path {unsafe!r}", hint="do not use this archive")
    missing = [name for name in members if name not in found]
    if missing:
        raise DataError(f"{archive.name} does not contain {missing[0]}", hint="the host may have changed the archive")
    room = max(MOST_TIMES * archive.stat().st_size, MOST_BYTES)
    for name, target in members.items():
        room -= _write(found[name], archive, name, folder / Path(target).name, room)


def _write(opener: Opener | None, archive: Path, name: str, target: Path, room: int) -> int:
    """Unpack one member; return its size, which must not exceed `room`."""
    stream = opener() if opener is not None else None
    if stream is None:
        raise DataError(f"{name} in {archive.name} is not a regular file", hint="do not use this archive")
    with stream, target.open("xb") as file:
        while block := stream.read(1 << 20):
            file.write(block)
            if file.tell() > room:
                raise DataError(
                    f"{archive.name} unpacks to more than {MOST_TIMES} times its size", hint="do not use this archive"
                )
        return file.tell()


def _read_to_end(archive: tarfile.TarFile) -> None:
    """Read what follows the last member: decompressors compare the checksum at the end of the stream."""
    stream: Any = archive.fileobj
    while stream.read(1 << 20):
        pass


def _zip_members(archive: zipfile.ZipFile) -> dict[str, Opener | None]:
    return {info.filename: _zip_opener(archive, info) for info in archive.infolist()}


def _zip_opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Opener | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    return (lambda: archive.open(info)) if kind in (0, stat.S_IFREG) and not info.is_dir() else None


def _tar_members(archive: tarfile.TarFile) -> dict[str, Opener | None]:
    return {info.name.removeprefix("./"): _tar_opener(archive, info) for info in archive}


def _tar_opener(archive: tarfile.TarFile, info: Any) -> Opener | None:
    return (lambda: archive.extractfile(info)) if info.isreg() else None
