"""Files that several processes share: written whole or not at all, JSON that may be hostile, checksums and locks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import platform
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from lidstone.errors import FileFormatError, LidstoneError, RunError

CHECKSUM = "checksum"
"""The key of a record's own checksum."""
_BLOCK = 1 << 20
_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9])(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for its devices, whatever their suffix."""


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it becomes `path` in one step, on failure it is deleted.

    A link stays a link: the file it points to is written. A pipe or device is written directly. A process that is
    killed leaves its temporary file behind; the next writing of the same `path` on this machine removes it, and so do
    `new_folder`s.

    >>> import tempfile; folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['a.txt']
    """
    target = Path(path)
    with write_errors(target):
        is_device = target.exists() and not target.is_file() and not target.is_dir()
    if is_device:
        with write_errors(target):
            yield target
        return
    with write_errors(target):
        final = place_of_output(target)
        temporary = _temporary_beside(final)
    try:
        with write_errors(target):
            yield temporary
            _flush_to_disk(temporary)
            temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)


def place_of_output(target: str | Path) -> Path:
    """What a path leads to, there or not yet; links in a circle, and what its owner has protected, are an OSError."""
    path = Path(os.path.realpath(target))
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if os.name == "posix" and path.exists():
        about = path.stat()
        if about.st_uid == os.geteuid() and not about.st_mode & 0o222:  # a renaming would replace it
            raise OSError(errno.EPERM, "it is write-protected")
    return path


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `folder` when the block ends, and removed if the block fails.

    A link stays a link: the folder it points to is written.
    """
    try:
        final = place_of_output(folder)
        made = _temporary_beside(final, tempfile.mkdtemp)
        try:
            yield made
            _replace_folder(made, final)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LidstoneError(f"cannot write {folder}: {reason}", hint="check the disk and the path") from error


def _replace_folder(made: Path, folder: Path) -> None:
    """Rename `made` to `folder`; an existing folder is moved away just before that and then deleted."""
    try:
        made.replace(folder)
    except OSError:
        if not folder.is_dir():
            raise
        removed = _temporary_beside(folder, tempfile.mkdtemp)
        try:
            folder.replace(removed / "old")
            made.replace(folder)
        finally:
            shutil.rmtree(removed, ignore_errors=True)


def reserve(file: BinaryIO, size: int) -> None:
    """Give an empty file its size, and its space where the system can: a full disk shows now, and writing is faster."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except (AttributeError, OSError) as error:
        if getattr(error, "errno", errno.EINVAL) not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        file.truncate(size)  # this system or file system cannot


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """The hash of a file, in hex."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_json(path: str | Path, hint: str = "", read: Callable[[Path], bytes] = Path.read_bytes) -> Any:
    """The value of a JSON file; a file that cannot be read, is not sound JSON or does not fit the checksum in it
    (`with_checksum`) is a `FileFormatError`. `read` gets the bytes of files that are kept in another way.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.json"
    >>> _ = file.write_text("[" * 100_000)
    >>> read_json(file)
    Traceback (most recent call last):
    lidstone.errors.FileFormatError: ...a.json is damaged: it is nested too deeply
    """
    try:
        value = parse_json(read(Path(path)))
        verify_checksum(value)
        return value
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}", hint=hint) from error
    except ValueError as error:
        raise FileFormatError(f"{path} is damaged: {error}", hint=hint) from error


def read_object(path: str | Path, what: str, hint: str = "", read: Callable[[Path], bytes] = Path.read_bytes) -> Any:
    """As `read_json`, for a file with a JSON object; anything else has no `what`, and is damaged."""
    value = read_json(path, hint, read)
    if not isinstance(value, dict):
        raise FileFormatError(f"{path} is damaged: it has no {what}", hint=hint)
    return value


def write_json(path: str | Path, record: Mapping[str, Any], indent: int | None = None) -> None:
    """Write a record as JSON, atomically and with its checksum; NaN and infinity become null."""
    made = with_checksum(jsonable(record))
    write_text(path, json.dumps(made, ensure_ascii=False, allow_nan=False, indent=indent) + "\n")


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text; whatever is wrong with it is a ValueError, deep nesting and lone surrogates too.

    >>> parse_json(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    text = data if isinstance(data, str) else data.decode("utf-8")
    try:
        value = json.loads(text, parse_int=_whole_number)
        if "\\ud" in text or "\\uD" in text:  # perhaps half of a surrogate pair, which no file can hold
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def jsonable(value: Any) -> Any:
    """The value for strict JSON: tuples as lists, keys as text, None for NaN and infinity.

    >>> jsonable({"a": (1.0, float("nan"))})
    {'a': [1.0, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    return [jsonable(item) for item in value] if isinstance(value, (list, tuple)) else value


def _whole_number(digits: str) -> int:
    if len(digits) > 300:  # more than a float can hold
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


@contextlib.contextmanager
def write_errors(target: Path) -> Iterator[None]:
    """Turn an error of the system into one that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        raise LidstoneError(f"cannot write {target}: {error.strerror or error}", hint=_remedy(error)) from error


def _temporary_beside(target: Path, make: Callable[..., Any] = tempfile.mkstemp) -> Path:
    """An empty file or folder beside the target, named after it, this machine and this process."""
    stem = f".{_short(target.name)}.{_MACHINE}-"
    _remove_abandoned(target.parent, stem)
    made = make(dir=target.parent, prefix=f"{stem}{os.getpid()}.", suffix=".tmp")
    if make is tempfile.mkstemp:
        os.close(made[0])
        made = made[1]
    umask = os.umask(0)
    os.umask(umask)
    path = Path(made)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)  # 0600 would hide it from others who share the folder
    return path


_MACHINE = f"{zlib.crc32(platform.node().encode()):08x}"


def _short(name: str) -> str:
    """A name that leaves room for more: file systems allow 255 bytes."""
    return name if len(os.fsencode(name)) <= 150 else hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _remove_abandoned(folder: Path, stem: str) -> None:
    """Remove what processes of this machine that were killed left of earlier writings of the same target."""
    for path in folder.iterdir():
        if path.name.startswith(stem) and path.name.endswith(".tmp"):
            process = path.name.removeprefix(stem).partition(".")[0]
            if process.isdigit() and not _is_alive(int(process)):
                with contextlib.suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _is_alive(process: int) -> bool:
    """Whether a process of this number runs; where that cannot be asked (Windows), it is taken to."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _flush_to_disk(path: Path) -> None:
    with path.open("r+b") as file:  # Windows flushes only what may be written
        os.fsync(file.fileno())


def _remedy(error: OSError) -> str:
    return {
        errno.ENOSPC: "free some space or write to another disk",
        getattr(errno, "EDQUOT", -1): "your quota is used up; free some space or write to another disk",
        errno.ENOENT: "create the folder first",
        errno.EACCES: "choose a folder that you may write to",
        errno.EPERM: "choose another name or folder, or allow writing with chmod u+w",
        errno.EROFS: "choose a disk that is not read-only",
        errno.ENAMETOOLONG: "give a shorter name",
        errno.EISDIR: "give the name of a file, not of a folder",
    }.get(error.errno or 0, "check the path and the disk")


def as_url(path: Any) -> str | None:
    """The address, where a path is one; `Path` takes away one or two of its slashes, which are put back.

    >>> as_url("s3://b/x"), as_url(Path("hf://u/r/x")), as_url(Path("file:///t/x")), as_url("c://x"), as_url("a.txt")
    ('s3://b/x', 'hf://u/r/x', 'file:///t/x', None, None)
    """
    if isinstance(path, PurePath) and (parts := re.match(r"([a-zA-Z][\w+.-]+):/(?!/)(.+)", path.as_posix())):
        return f"{parts[1]}:{'///' if parts[1] in ('file', 'local') else '//'}{parts[2]}"
    return path if isinstance(path, str) and re.match(r"[a-zA-Z][\w+.-]+://", path) else None


def from_home(path: str) -> Path:
    """The path, with ~/ at its beginning as the user's home; any other name that begins with ~ is that of a file.

    >>> from_home("~/a") == Path.home() / "a", from_home("~notes.txt")
    (True, PosixPath('~notes.txt'))
    """
    if path != "~" and not path.startswith("~/"):
        return Path(path)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise LidstoneError(f"there is no home folder for {path}", hint="write the whole path") from error


def cache_folder() -> Path:
    """`LIDSTONE_CACHE` where set, else the platform's folder for caches; it may not exist yet."""
    chosen = os.environ.get("LIDSTONE_CACHE")
    return from_home(chosen) if chosen else _platform_cache() / "lidstone"


def _platform_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def is_portable_name(name: str) -> bool:
    r"""Whether a name from somebody else's file can be that of a file here: no folder, drive or device on any system.

    >>> [is_portable_name(name) for name in ("run.json", "../b", "c:b", "a\\b", "NUL.json", "a.", "")]
    [True, False, False, False, False, False, False]
    """
    return bool(re.fullmatch(r"[\w. -]*[\w-]", name)) and not _DEVICE.fullmatch(name)


def with_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the checksum of its values, to be written as JSON.

    >>> with_checksum({"a": 1})
    {'a': 1, 'checksum': 'f9d86028c6e0d64e'}
    """
    return {**_without(record), CHECKSUM: _checksum(record)}


def verify_checksum(record: Any) -> None:
    """Raise a ValueError if the record has a checksum and its values do not fit it. Spaces and line ends may differ.

    >>> verify_checksum({"a": 2, "checksum": "f9d86028c6e0d64e"})
    Traceback (most recent call last):
    ValueError: its checksum does not fit its content; remove the key "checksum" if you changed it yourself
    """
    if isinstance(record, dict) and CHECKSUM in record and record[CHECKSUM] != _checksum(record):
        remedy = f'remove the key "{CHECKSUM}" if you changed it yourself'
        raise ValueError(f"its checksum does not fit its content; {remedy}")


def file_checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The CRC-32 of each of these files, in hex."""
    return {name: _crc32(folder / name) for name in names}


def verify_files(folder: Path, checksums: Mapping[str, str]) -> None:
    """Raise a ValueError that names the first file that is missing or has changed."""
    for name, expected in checksums.items():
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if _crc32(folder / name) != expected:
            raise ValueError(f"{name} has changed (checksum)")


def _without(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != CHECKSUM}


def _checksum(record: Mapping[str, Any]) -> str:
    """16 hex digits of the hash of the values as JSON, whatever the order of the keys."""
    as_read = json.loads(json.dumps(_without(record)))  # tuples become lists, keys become text
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()[:16]


def _crc32(path: Path) -> str:
    value = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return f"{value:08x}"


@contextlib.contextmanager
def try_lock(output: Path, name: str, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of this name below a folder of runs; False if another process holds it and `wait` is not set.

    The operating system releases it when a process ends, however it ends.

    >>> import tempfile; folder = Path(tempfile.mkdtemp())
    >>> with try_lock(folder, "a") as mine, try_lock(folder, "a") as mine_again:
    ...     mine, mine_again
    (True, False)
    """
    from filelock import FileLock, Timeout

    path = output / ".locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False)  # a soft lock would outlive a killed process
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        yield False
        return
    except OSError as error:
        hint = "use a disk with file locks; on Lustre mount it with -o flock"
        raise RunError(f"cannot lock {path}: {error.strerror}", hint=hint) from error
    try:
        yield True
    finally:
        lock.release()
