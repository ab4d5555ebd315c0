"""`lidstone data get`: download a named corpus from its public host into the cache, and verify it.

A download is resumable, and kept only if its checksum is right. Received data are in `<file>.part`. The next attempt,
in this process or a later one, requests the rest with a Range header, provided the file is still the same (If-Range); a
host that does not support this sends the whole file again.

Of an archive only chosen members are unpacked, as regular files. Their names come from the caller, never from the
archive. It is refused as a whole if it has a path outside its folder, a link instead of a wanted file, damage anywhere,
encryption, or a compression ratio that text does not have.
"""

from __future__ import annotations

import errno
import gzip
import http.client
import json
import lzma
import shutil
import stat
import struct
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from lidstone.errors import DataError
from lidstone.files import hash_file, new_folder, parse_json, try_lock, write_text
from lidstone.lab.corpus.named import CORPORA, NamedCorpus, cache_root
from lidstone.lab.recipe.yaml import nearest
from lidstone.progress import progress_bar

MANIFEST = "lidstone.json"
Opener = Callable[[], IO[bytes] | None]
MOST_TIMES, MOST_BYTES = 100, 1 << 26
"""Largest unpacked size: this many times the size of the archive, or this many bytes, whichever is more."""
# zipfile: RuntimeError for passwords, NotImplementedError for unknown methods; decompressors have errors of their own.
_BAD = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, OverflowError,
        RuntimeError, NotImplementedError, LookupError, struct.error, gzip.BadGzipFile)  # fmt: skip
_BROKEN = (ConnectionError, TimeoutError, http.client.HTTPException, urllib.error.URLError)


@dataclass(frozen=True)
class Fetched:
    """A corpus in the cache."""

    name: str
    folder: Path
    files: dict[str, str]
    """sha256 of each file."""
    fresh: bool
    """Whether this call downloaded it."""


def get_dataset(name: str, *, show: bool = True, tries: int = 5, pause: float = 1.0) -> Fetched:
    """Fetch a corpus by name, or check the one that is already in the cache."""
    downloadable = sorted(corpus.name for corpus in CORPORA.values() if corpus.downloads)
    if name not in downloadable:
        raise DataError(f"there is no corpus {name!r} to get", hint=nearest(name, downloadable))
    dataset = CORPORA[name]
    folder = cache_root() / "corpora" / dataset.folder
    return _present(dataset, folder) or _fetch(dataset, folder, show, tries, pause)


def _present(dataset: NamedCorpus, folder: Path) -> Fetched | None:
    """The corpus in the cache, if every file still has its checksum."""
    try:
        files = parse_json((folder / MANIFEST).read_bytes())["files"]
        intact = all(hash_file(folder / file) == sha256 for file, sha256 in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Fetched(dataset.name, folder, files, fresh=False) if intact else None


def _fetch(dataset: NamedCorpus, folder: Path, show: bool, tries: int, pause: float) -> Fetched:
    downloads = cache_root() / "downloads"
    downloads.mkdir(exist_ok=True)
    folder.parent.mkdir(exist_ok=True)
    with try_lock(downloads, dataset.name) as mine, new_folder(folder) as made:
        if not mine:
            raise DataError(f"another process is downloading {dataset.name}", hint="wait until it has finished")
        for download in dataset.downloads:
            target, expected = downloads / download.file, download.checksum
            if not (target.exists() and checksum_of(target, expected) == expected):  # else an earlier attempt had it
                fetch(download.urls, target, expected, show=show, tries=tries, pause=pause)
        files = _unpack(dataset, downloads, made)
        facts = {"name": dataset.name, "licence": dataset.licence, "files": files}
        write_text(made / MANIFEST, json.dumps(facts, indent=1))
    return Fetched(dataset.name, folder, files, fresh=True)


def _unpack(dataset: NamedCorpus, downloads: Path, made: Path) -> dict[str, str]:
    """Fill the new folder; return the checksums of its files. The downloads are always removed."""
    try:
        for download in dataset.downloads:
            if download.members:
                extract(downloads / download.file, made, download.files)
            else:
                shutil.copyfile(downloads / download.file, made / download.file)
        files = {path.name: hash_file(path) for path in sorted(made.iterdir())}
        _check_contents(dataset, files)
        return files
    finally:
        for download in dataset.downloads:
            (downloads / download.file).unlink(missing_ok=True)


def _check_contents(dataset: NamedCorpus, files: dict[str, str]) -> None:
    for file, expected in dataset.contents.items():
        if files.get(file) != expected:
            raise DataError(
                f"{file} of {dataset.name} has the wrong checksum: {files.get(file)}, not {expected}",
                hint="the download was discarded; the host may have changed the archive",
            )


def fetch(
    urls: Sequence[str],
    target: Path,
    checksum: str,
    *,
    show: bool = True,
    tries: int = 5,
    pause: float = 1.0,
    timeout: float = 30.0,
) -> str:
    """Download one of `urls` to `target` and return its checksum; mirrors are tried in order.

    The checksum is SHA-256 in hex, or `md5:` and MD5 in hex.
    """
    problems = []
    for url in urls:
        try:
            _fetch_one(url, _part(target), tries, pause, timeout, show)
            return _accept(_part(target), target, checksum, url)
        except _Unusable as problem:
            problems.append(problem)
    hint = "try again later, an interrupted download is resumed; or see docs/data.md"
    raise DataError("; ".join(map(str, problems)), hint=next((p.hint for p in problems if p.hint), hint))


class _Unusable(Exception):
    """The file cannot be had from this mirror, or is another one; the next mirror is tried."""

    hint = ""


class _WrongFile(_Unusable):
    hint = "the download was discarded; try again, and do not use the file if this happens again"


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def checksum_of(path: Path, like: str) -> str:
    """The checksum of a file, of the same kind (SHA-256 or MD5) as `like`.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a"
    >>> _ = file.write_bytes(b"a")
    >>> checksum_of(file, "md5:..."), checksum_of(file, "ca97...")[:8]
    ('md5:0cc175b9c0f1b6a831c399e269772661', 'ca978112')
    """
    return f"md5:{hash_file(path, 'md5')}" if like.startswith("md5:") else hash_file(path)


def _accept(part: Path, target: Path, expected: str, url: str) -> str:
    actual = checksum_of(part, expected)
    if actual != expected:
        part.unlink()
        _tag_file(part).unlink(missing_ok=True)
        raise _WrongFile(f"{url} has the wrong checksum: {actual}, not {expected}")
    part.replace(target)
    _tag_file(part).unlink(missing_ok=True)
    return actual


def _fetch_one(url: str, part: Path, tries: int, pause: float, timeout: float, show: bool) -> None:
    if not url.startswith(("http://", "https://")):
        raise DataError(f"{url} is not a web address", hint="use http or https")
    for attempt in range(1, tries + 1):
        try:
            return _transfer(url, part, timeout, show)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what was received is not a part of this file
                part.unlink(missing_ok=True)
            elif error.code < 500:
                raise _Unusable(f"{url}: {error.code} {error.reason}") from error
            problem: Any = f"{error.code} {error.reason}"
        except _BROKEN as error:
            problem = getattr(error, "reason", None) or error
        if attempt < tries:
            time.sleep(pause * attempt)
    raise _Unusable(f"{url}: {problem} ({tries} tries)")


def _transfer(url: str, part: Path, timeout: float, show: bool) -> None:
    """Fetch what is missing in `part`; raise if the connection ends before the announced length."""
    request = urllib.request.Request(url, headers=_headers(url, part))
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        resumed = answer.status == 206 and _starts_at(answer) == part.stat().st_size
        done = part.stat().st_size if resumed else 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        _write_tag(url, part, answer.headers.get("ETag") or answer.headers.get("Last-Modified"))
        with (
            part.open("ab" if resumed else "wb") as file,
            progress_bar(total, f"fetching {part.stem}", show=show, unit="bytes") as advance,
        ):
            advance(done)
            while block := answer.read(1 << 16):
                file.write(block)
                advance(len(block))
    size = part.stat().st_size
    if total is not None and size < total:
        raise ConnectionError(f"the connection ended after {size} of {total} bytes")


def _headers(url: str, part: Path) -> dict[str, str]:
    from lidstone import __version__

    headers = {"User-Agent": f"lidstone/{__version__}", "Accept-Encoding": "identity"}
    size = part.stat().st_size if part.exists() else 0
    tag = _tag_file(part).read_text() if _tag_file(part).exists() else ""
    known_url, _, validator = tag.partition("\n")
    if size and known_url == url and validator:
        headers |= {"Range": f"bytes={size}-", "If-Range": validator}
    return headers


def _starts_at(answer: Any) -> int:
    span = str(answer.headers.get("Content-Range", "")).removeprefix("bytes ").partition("-")[0]
    return int(span) if span.isdigit() else -1


def _write_tag(url: str, part: Path, validator: str | None) -> None:
    """Record which version of which file the part belongs to; weak tags do not identify a version and are left out."""
    tag = validator or ""
    _tag_file(part).write_text(f"{url}\n{'' if tag.startswith('W/') else tag}")


def _tag_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")


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
        room -= _write_member(found[name], archive, name, folder / Path(target).name, room)


def _write_member(opener: Opener | None, archive: Path, name: str, target: Path, room: int) -> int:
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
