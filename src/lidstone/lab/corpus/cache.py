"""The folders for downloads and prepared corpora, and those that are searched for corpora."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lidstone.errors import LidstoneError
from lidstone.files import from_home
from lidstone.text.corpora import data_root


def cache_folder() -> Path:
    """`LIDSTONE_CACHE` where set, else the platform's folder for caches; it may not exist yet."""
    chosen = os.environ.get("LIDSTONE_CACHE")
    return from_home(chosen) if chosen else _platform_cache() / "lidstone"


def cache_root() -> Path:
    """The folder of the cache, created if missing."""
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "set LIDSTONE_CACHE to a folder that you may write to"
        raise LidstoneError(f"cannot create the cache {root}: {error.strerror}", hint=hint) from error
    return root


def corpus_roots() -> list[Path]:
    """Folders that may hold corpora, best first: `LIDSTONE_DATA`, then what `lidstone data get` fetched."""
    named = data_root()
    return [*([named] if named else []), cache_folder() / "corpora"]


def sha256_of(path: Path) -> str:
    """The checksum of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `folder` when the block ends, and removed if the block fails."""
    try:
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            yield made
            made.chmod(0o755)
            _replace_folder(made, folder)
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
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as aside:
            folder.replace(Path(aside) / "old")
            made.replace(folder)


def _platform_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
