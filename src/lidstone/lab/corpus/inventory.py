"""Which of the corpora known by name are on this machine, where, and which of their files are missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidstone.lab.corpus.cache import corpus_roots
from lidstone.lab.corpus.catalogue import LAFAND, READERS, find_file
from lidstone.lab.corpus.sources import DATASETS

# Corpora that lidstone reads but does not download: folder, files, licence.
LOCAL = {
    "tatoeba": ("tatoeba-de-en", ("deu-eng.2018-05-13.tsv",), "CC BY 2.0 (tatoeba.org)"),
    **{
        f"lafand-{pair}": (
            "lafand-mt",
            tuple(f"{pair}.{part}.{language}" for part in ("train", "dev", "test") for language in pair.split("-")),
            "CC BY-NC 4.0 (Masakhane)",
        )
        for pair in LAFAND
    },
}


@dataclass(frozen=True)
class Found:
    """A corpus known by name, and which of its files are on this machine."""

    name: str
    licence: str
    folder: Path | None
    """Where its files are; None if there are none, or if it comes with Python."""
    missing: tuple[str, ...]
    """Files that were not found."""
    here: bool
    """Whether any of its files, or its folder, is on this machine."""

    @property
    def state(self) -> str:
        """`yes`, `no`, or `partial` with the first file that is missing."""
        if not self.here or not self.missing:
            return "yes" if self.here else "no"
        more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
        return f"partial: lacks {self.missing[0]}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        folder = None if self.folder is None else str(self.folder)
        return {"name": self.name, "here": self.here, "folder": folder, "missing": list(self.missing),
                "licence": self.licence}  # fmt: skip


def known_corpora() -> list[Found]:
    """Every corpus that a recipe may name.

    >>> [corpus.state for corpus in known_corpora() if corpus.name == "embedded"]
    ['yes']
    """
    return [_find(name) for name in sorted(READERS)]


def _find(name: str) -> Found:
    if name not in DATASETS and name not in LOCAL:
        return Found(name, "comes with Python (PSF licence)", None, (), here=True)
    folder, files, licence = LOCAL[name] if name in LOCAL else _downloadable(name)
    places = {file: find_file(folder, file) for file in files}
    missing = tuple(file for file, path in places.items() if path is None)
    roots = [root / folder for root in corpus_roots() if (root / folder).is_dir()]
    found = next((path.parent for path in places.values() if path is not None), roots[0] if roots else None)
    return Found(name, licence, found, missing, here=found is not None)


def _downloadable(name: str) -> tuple[str, tuple[str, ...], str]:
    """The folder, files and licence of a corpus that can be downloaded."""
    data = DATASETS[name]
    files = [file for item in data.downloads for file in (dict(item.members).values() if item.members else [item.file])]
    return data.folder, tuple(file.removesuffix(".gz") for file in files), data.licence
