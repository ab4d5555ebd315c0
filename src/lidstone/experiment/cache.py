"""Where downloads and prepared corpora are kept, and where corpora are looked for."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from lidstone.text.corpora import data_root


def cache_root() -> Path:
    """`LIDSTONE_CACHE` where set, else the platform's folder for caches; made when missing."""
    chosen = os.environ.get("LIDSTONE_CACHE")
    root = Path(chosen).expanduser() if chosen else _platform_cache() / "lidstone"
    root.mkdir(parents=True, exist_ok=True)
    return root


def corpus_roots() -> list[Path]:
    """Folders that may hold corpora, best first: `LIDSTONE_DATA`, then what `lidstone data get` fetched."""
    named = data_root()
    return [*([named] if named else []), cache_root() / "corpora"]


def sha256_of(path: Path) -> str:
    """The checksum of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _platform_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
