"""`lidstone data get`: download a named corpus from its public host into the cache, and verify it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from lidstone.errors import DataError
from lidstone.files import parse_json, try_lock, write_text
from lidstone.lab.corpus.archives import extract
from lidstone.lab.corpus.cache import cache_root, new_folder, sha256_of
from lidstone.lab.corpus.sources import DATASETS, Dataset, Download
from lidstone.lab.corpus.transfer import checksum_of, fetch
from lidstone.lab.recipe.yaml import nearest

MANIFEST = "lidstone.json"


@dataclass(frozen=True)
class Fetched:
    """A corpus in the cache."""

    name: str
    folder: Path
    files: dict[str, str]
    """sha256 of each file."""
    fresh: bool
    """Whether this call downloaded it."""


def dataset_names() -> list[str]:
    """The names that `lidstone data get` accepts.

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
    """The corpus in the cache, if every file still has its checksum."""
    try:
        files = parse_json((folder / MANIFEST).read_bytes())["files"]
        intact = all(sha256_of(folder / file) == sha256 for file, sha256 in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Fetched(dataset.name, folder, files, fresh=False) if intact else None


def _fetch(dataset: Dataset, folder: Path, show: bool, tries: int, pause: float) -> Fetched:
    downloads = cache_root() / "downloads"
    downloads.mkdir(exist_ok=True)
    folder.parent.mkdir(exist_ok=True)
    with try_lock(downloads, dataset.name) as mine, new_folder(folder) as made:
        if not mine:
            raise DataError(f"another process is downloading {dataset.name}", hint="wait until it has finished")
        for download in dataset.downloads:
            _download(download, downloads / download.file, show, tries, pause)
        files = _unpack(dataset, downloads, made)
        facts = {"name": dataset.name, "licence": dataset.licence, "files": files}
        write_text(made / MANIFEST, json.dumps(facts, indent=1))
    return Fetched(dataset.name, folder, files, fresh=True)


def _download(download: Download, target: Path, show: bool, tries: int, pause: float) -> None:
    """Fetch one file, unless an earlier attempt has completed it."""
    if not (target.exists() and checksum_of(target, download.checksum) == download.checksum):
        fetch(download.urls, target, download.checksum, show=show, tries=tries, pause=pause)


def _unpack(dataset: Dataset, downloads: Path, made: Path) -> dict[str, str]:
    """Fill the new folder; return the checksums of its files. The downloads are always removed."""
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
