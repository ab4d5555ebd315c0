"""A study in one file: the runs of a folder, packed.

A packed study is a zip archive whose name ends in `.runs`. Its members are sorted, have no dates, and are compressed
one by one with bzip2, whose output is the same on all machines:

    <id>/run.json.bz2           the record of a run, byte for byte
    <id>/sentences.json.bz2     the scores of its test sentences
    explorer.json.bz2           the data of the page's explorer, if there is any

So the same runs give the same bytes, and version control stores only the members that are new. A file in a study has a
path like any other, `study.runs/<id>/run.json`: `read_bytes` takes both kinds. Nothing in a study is trusted: names are
plain, sizes are bounded, and zip and bzip2 have checksums.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import os
import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from lidstone.errors import FileFormatError, InputError
from lidstone.files import atomic_write, is_portable_name, read_json, write_errors

SUFFIX = ".runs"
RECORD = "run.json"
EXPLORER = "explorer.json"
_HINT = "copy it again, or pack the runs again; report and compare can skip damaged runs (--skip-damaged)"
_PLAIN = re.compile(r"(?:[0-9A-Za-z_][\w.-]{0,99}/)?[0-9A-Za-z_][\w.-]{0,99}\.bz2", re.ASCII)
_DAMAGE = (BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, struct.error)
SMALL, RATIO = 1 << 20, 200
"""A file in a study has at most this many bytes and this many times those that are stored."""


def records_in(path: Path) -> list[Path]:
    """Every `run.json` in a packed study, or in the part of one that the path is; none for other paths."""
    study = _study_of(path)
    files = [study / member.removesuffix(".bz2") for member in _open(study).NameToInfo] if study else []
    return [file for file in files if file.name == RECORD and path in (file, *file.parents)]


def is_file(path: Path) -> bool:
    """Whether there is such a file, which may be in a packed study."""
    study = _study_of(path.parent)
    return _member(path.relative_to(study).as_posix()) in _open(study).NameToInfo if study else path.is_file()


def read_bytes(path: Path) -> bytes:
    """The content of a file, which may be in a packed study: what is compressed with gzip elsewhere is not so there."""
    study = _study_of(path.parent)
    if not study:
        return path.read_bytes()
    if not is_file(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return _decompressed(study, _member(path.relative_to(study).as_posix()))


def pack(files: Mapping[str, bytes], study: Path) -> None:
    """Add files, by their names in the study, to a packed study, or begin one; a file that it has is replaced."""
    if study.suffix != SUFFIX:
        raise InputError(f"{study} is not a name for a packed study", hint=f"end it in {SUFFIX}")
    members = {member: _stored(study, member) for member in _open(study).NameToInfo} if study.exists() else {}
    members |= {_member(name): bz2.compress(content) for name, content in files.items()}
    for member in members:
        if not _is_plain(member):
            raise InputError(f"{member!r} is not a name for a file in a packed study", hint="use letters and digits")
    with atomic_write(study) as temporary, ZipFile(temporary, "w", ZIP_STORED) as archive:
        for member, content in sorted(members.items()):
            about = ZipInfo(member)  # of 1980, when the format begins
            about.create_system, about.external_attr = 3, 0o644 << 16  # as on Unix, wherever this runs
            archive.writestr(about, content)


def unpack(study: Path, output: Path) -> tuple[int, int]:
    """Write the runs of a packed study as folders: how many were written, and how many were there and left alone."""
    records = records_in(study)
    if not records:
        raise InputError(f"{study} is not a packed study", hint=f"give a {SUFFIX} file that lidstone pack has made")
    missing = [file for file in records if not (output / file.parent.name / RECORD).exists()]
    with write_errors(output):
        for file in missing:
            (output / file.parent.name).mkdir(parents=True, exist_ok=True)
            _unpack_run(file, output / file.parent.name)
    explorer = output / EXPLORER
    if is_file(study / EXPLORER) and not explorer.exists():
        _write(explorer, read_bytes(study / EXPLORER))
    return len(missing), len(records) - len(missing)


def _unpack_run(file: Path, folder: Path) -> None:
    """Write the sentences, then `run.json`: a folder that has it is a complete run."""
    record = read_json(file, hint=_HINT, read=read_bytes)
    about = record.get("sentences") if isinstance(record, dict) else None
    name = about.get("file") if isinstance(about, dict) else None
    if isinstance(name, str) and is_portable_name(name) and is_file(file.parent / name):
        scores = read_bytes(file.parent / name)
        _write(folder / name, gzip.compress(scores, mtime=0) if name.endswith(".gz") else scores)
    _write(folder / RECORD, read_bytes(file))


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _study_of(path: Path) -> Path | None:
    """The packed study that a path is or lies in."""
    return next((found for found in (path, *path.parents) if found.suffix == SUFFIX and found.is_file()), None)


def _member(name: str) -> str:
    """The name of a file's member in the archive."""
    return f"{name.removesuffix('.gz')}.bz2"


def _is_plain(member: str) -> bool:
    return bool(_PLAIN.fullmatch(member)) and all(map(is_portable_name, member.split("/")))


def _open(study: Path) -> ZipFile:
    """The archive, in memory: no file stays open, and processes share no position in it."""
    about = study.stat()
    return _opened(study, (about.st_ino, about.st_mtime_ns, about.st_size))


@lru_cache(maxsize=4)
def _opened(study: Path, stamp: tuple[int, ...]) -> ZipFile:
    try:
        archive = ZipFile(io.BytesIO(study.read_bytes()))
    except _DAMAGE as error:
        raise _damaged(study, error) from error
    members = archive.infolist()
    if len(members) != len(archive.NameToInfo):
        raise _damaged(study, "two of its files have one name")
    for member in members:
        if not _is_plain(member.orig_filename) or member.compress_type != ZIP_STORED:
            raise _damaged(study, f"{member.orig_filename!r} is not a file of a packed study")
    return archive


def _stored(study: Path, member: str) -> bytes:
    try:
        return _open(study).read(member)
    except _DAMAGE as error:
        raise _damaged(study, error) from error


def _decompressed(study: Path, member: str) -> bytes:
    """The content of a member; no more than can be honest is ever in memory."""
    stored, decompressor = _stored(study, member), bz2.BZ2Decompressor()
    try:
        found = decompressor.decompress(stored, max_length=max(SMALL, RATIO * len(stored)))
    except _DAMAGE as error:
        raise _damaged(study, f"{error} in {member}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise _damaged(study, f"{member} is cut off, or much larger than it should be")
    return found


def _damaged(study: Path, what: object) -> FileFormatError:
    return FileFormatError(f"{study} is damaged: {what}", hint=_HINT)
