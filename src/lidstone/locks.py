"""Locks between processes. The operating system releases them when a process ends, however it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lidstone.errors import RunError


@contextlib.contextmanager
def claim(output: Path, name: str, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of this name below a folder of runs; False if another process holds it and `wait` is not set.

    >>> import tempfile; folder = Path(tempfile.mkdtemp())
    >>> with claim(folder, "a") as mine, claim(folder, "a") as mine_again:
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
