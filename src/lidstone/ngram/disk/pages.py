"""Pages of mapped files, which count as memory of the process: given back when there are too many."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from lidstone.ngram.disk.memory import resident
from lidstone.ngram.formats.checked_tensors import release

PAGE_SHARE = 0.8
"""The share of the limit from which on pages of files are given back."""
POLL_SECONDS = 0.01


@contextlib.contextmanager
def limit_pages(limit: int, *arrays: NDArray[Any]) -> Iterator[None]:
    """Give the pages of mapped files back whenever the process occupies more than `limit` bytes.

    Kernels run without Python's lock, so this thread runs beside them.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            if resident() > limit:
                for array in arrays:
                    release(array)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
