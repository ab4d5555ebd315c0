"""The folder of temporary files of one count or fit: locked, sized, resumed after a kill, and removed at the end.

It is removed on success, on an error and on Ctrl-C. Only a process that is killed leaves it behind; the next count of
the same text to the same output goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lidstone.errors import InputError
from lidstone.files import as_url, try_lock, write_text
from lidstone.ngram.disk.memory import format_size

PLAN = "plan.json"


@contextlib.contextmanager
def workspace(
    output: Path, plan: dict[str, Any], temporary: Path | None = None, *, work: str = "counting"
) -> Iterator[Path]:
    """A folder for the work on `output`: what was done there before by the same plan, or empty.

    >>> import tempfile; output = Path(tempfile.mkdtemp()) / "counts"
    >>> with workspace(output, {"order": 2}) as folder:
    ...     folder.is_dir()
    True
    >>> folder.exists()
    False
    """
    if url := as_url(output):
        raise InputError(f"{url} cannot be written piece by piece", hint="write to a local file, then copy it")
    folder = (temporary or output.parent) / f".{output.name}.{work}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "give --temporary a folder that you may write to"
        raise InputError(f"cannot create {folder}: {error.strerror}", hint=hint) from error
    with try_lock(folder, "count") as mine:
        if not mine:
            hint = "wait for it, or write to another file"
            raise InputError(f"another process is {work} to {output}", hint=hint)
        _keep_if_same(folder, plan)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _keep_if_same(folder: Path, plan: dict[str, Any]) -> None:
    """Empty the folder unless it was made by this very plan."""
    text = json.dumps(plan, sort_keys=True)
    known = folder / PLAN
    if known.is_file() and known.read_text(encoding="utf-8") == text:
        return
    for entry in folder.iterdir():
        if entry.name != ".locks":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    write_text(known, text)


def check_space(folder: Path, needed: float, *, work: str = "counting", temporary: bool = True) -> None:
    """Refuse work whose temporary files, or else its output, will not fit on the disk."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        kind, place = ("temporary space", "give --temporary a folder on") if temporary else ("space", "write to")
        raise InputError(
            f"{work} needs about {format_size(needed)} of {kind}; {folder} has {format_size(free)}",
            hint=f"free some space, or {place} another disk",
        )
