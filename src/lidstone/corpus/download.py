"""`lidstone data get`: a named corpus from its public host into the cache, verified, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lidstone.corpus.archives import extract
from lidstone.corpus.cache import cache_root, new_folder, sha256_of
from lidstone.corpus.sources import DATASETS, Dataset, Download
from lidstone.corpus.transfer import fetch
from lidstone.errors import DataError
from lidstone.files import write_text
from lidstone.recipe.mistakes import nearest

MANIFEST = "lidstone.json"


@dataclass(frozen=True)
class Fetched:
    """A corpus in the cache."""

    name: str
    folder: Path
    files: dict[str, str]
    """sha256 of each file."""
    fresh: bool
    """Whether it was downloaded just now."""
    unverified: tuple[str, ...] = ()
    """Downloads whose checksum nobody had told us beforehand."""


def dataset_names() -> list[str]:
    """What `lidstone data get` knows.

    >>> dataset_names()
    ['iwslt14', 'multi30k', 'wikitext2', 'wikitext2-raw', 'wmt14']
    """
    return sorted(DATASETS)


def get_dataset(name: str, *, show: bool = True, tries: int = 5, pause: float = 1.0) -> Fetched:
    """Fetch a corpus by name, or check the one that is already in the cache."""
    if name not in DATASETS:
        raise DataError(f"there is no corpus {name!r} to get", hint=nearest(name, dataset_names()))
    dataset = DATASETS[name]
    folder = cache_root() / "corpora" / dataset.folder
    return _present(dataset, folder) or _fetch(dataset, folder, show, tries, pause)


def _present(dataset: Dataset, folder: Path) -> Fetched | None:
    """What is in the cache, if every file still has its checksum."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        intact = all(sha256_of(folder / file) == sha256 for file, sha256 in files.items())
    except (OSError, ValueError, KeyError):
        return None
    return Fetched(dataset.name, folder, files, fresh=False) if intact else None


def _fetch(dataset: Dataset, folder: Path, show: bool, tries: int, pause: float) -> Fetched:
    downloads = cache_root() / "downloads"
    downloads.mkdir(exist_ok=True)
    folder.parent.mkdir(exist_ok=True)
    ledger = _Ledger(downloads / "checksums.json")
    with _sole_user(downloads / f"{dataset.name}.lock"), new_folder(folder) as made:
        sums = {
            download.file: _bring(download, downloads, ledger, show, tries, pause) for download in dataset.downloads
        }
        files = _unpack(dataset, downloads, made)
        ledger.put(sums)
        facts = {"name": dataset.name, "licence": dataset.licence, "files": files}
        write_text(made / MANIFEST, json.dumps(facts, indent=1))
    unverified = tuple(download.file for download in dataset.downloads if not download.sha256)
    return Fetched(dataset.name, folder, files, fresh=True, unverified=unverified)


def _bring(download: Download, downloads: Path, ledger: _Ledger, show: bool, tries: int, pause: float) -> str:
    """Fetch one file, unless an interrupted attempt has left it whole; return its checksum."""
    arrived = downloads / download.file
    expected = download.sha256 or ledger.get(download.file)
    if arrived.exists() and expected is not None and sha256_of(arrived) == expected:
        return expected
    return fetch(download.urls, arrived, expected, show=show, tries=tries, pause=pause)


def _unpack(dataset: Dataset, downloads: Path, made: Path) -> dict[str, str]:
    """Fill the new folder; return the checksums of its files. The downloads go, whether they are good or bad."""
    try:
        for download in dataset.downloads:
            if download.members:
                extract(downloads / download.file, made, dict(download.members))
            else:
                shutil.copyfile(downloads / download.file, made / download.file)
        files = {path.name: sha256_of(path) for path in sorted(made.iterdir())}
        _check_contents(dataset, files)
        return files
    finally:
        for download in dataset.downloads:
            (downloads / download.file).unlink(missing_ok=True)


def _check_contents(dataset: Dataset, files: dict[str, str]) -> None:
    for file, expected in dataset.contents.items():
        if files.get(file) != expected:
            raise DataError(
                f"{file} of {dataset.name} has the wrong checksum: {files.get(file)}, not {expected}",
                hint="the download was discarded; the host may have changed the archive",
            )


class _Ledger:
    """Checksums of earlier downloads: the first is trusted, later ones must agree."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, file: str) -> str | None:
        return self._read().get(file)

    def put(self, sums: dict[str, str]) -> None:
        write_text(self.path, json.dumps({**self._read(), **sums}, indent=1))

    def _read(self) -> dict[str, str]:
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}


@contextlib.contextmanager
def _sole_user(path: Path) -> Iterator[None]:
    """Two processes must not write one download; where the platform has no locks, nothing is checked."""
    with path.open("w") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except OSError as error:
            raise DataError(f"another process is getting {path.stem}", hint="wait for it to end") from error
        yield
