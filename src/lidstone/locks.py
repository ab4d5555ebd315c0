"""Locks between the processes of a sweep. The system takes them back from a process that dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lidstone.errors import RunError


@contextlib.contextmanager
def claim(output: Path, name: str, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of this name below a folder of runs; False if another process holds it and we do not wait.

    >>> import tempfile; folder = Path(tempfile.mkdtemp())
    >>> with claim(folder, "a") as mine, claim(folder, "a") as mine_again:
    ...     mine, mine_again
    (True, False)
    """
    folder = output / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("ab") as file:
        yield _lock(file, wait)


def _lock(file: IO[bytes], wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        hint = "use a disk with file locks; on Lustre mount it with -o flock"
        raise RunError(f"cannot lock {file.name}: {error.strerror}", hint=hint) from error
    return True
