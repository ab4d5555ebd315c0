"""Amounts of memory: as a user writes them, as the system reports them, and what a step needs per item.

Pages of mapped files count as memory of the process, too: `limit_pages` gives them back when there are too many.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.formats.checked_tensors import release

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SHARE = 0.85
"""How much of the memory left is planned for; the rest is for the allocator, file buffers and the vocabulary."""

BYTES_PER_NODE = 72
"""Of merging: input, sorted copy, number and output of each n-gram."""

NODE_BYTES = 96
"""Of a block, per history and per follower: rows, backoffs, offsets, and the terms that they are made of."""


def parse_size(text: str) -> int:
    """Bytes from a number with an optional unit K, M, G or T (powers of 1024).

    >>> parse_size("4G"), parse_size("1.5m"), parse_size("512 MB")
    (4294967296, 1572864, 536870912)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if match is None or not float(match[1]):
        raise InputError(f"{text!r} is not an amount of memory", hint="write it as 4G or 800M")
    return int(float(match[1]) * _UNITS[match[2]])


def format_size(size: float) -> str:
    """Bytes for a reader.

    >>> format_size(3 << 30), format_size(1500)
    ('3.0 GB', '1.5 KB')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def resident() -> int:
    """Bytes of memory this process occupies now; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0


def trim() -> None:
    """Give memory that was freed back to the system, where the C library keeps it for later."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def half_of_memory() -> int:
    """Half of the machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def plan(limit: int) -> int:
    """What may be used beyond what the process occupies already."""
    left = int((limit - resident()) * SHARE)
    if left < 32 << 20:
        raise InputError(
            f"a limit of {format_size(limit)} leaves {format_size(max(left, 0))} beside the program itself",
            hint=f"give at least --memory {(resident() >> 20) + 64}M",
        )
    return left


def block_tokens(memory: int, order: int, workers: int) -> int:
    """How many tokens a block may have if `workers` blocks are counted at the same time, and one is read.

    The kernel holds 4 bytes of text, two lists of entries of 8, and at most order - 1 nodes of 16 bytes per token.
    """
    return max(1, memory // (workers * (16 * order + 36) + 12))


def bucket_nodes(share: int) -> int:
    """How many nodes of all runs together a bucket may have, if its task may use so much memory."""
    return max(1, share // BYTES_PER_NODE)


def block_nodes(share: int) -> int:
    """How many nodes a block may have, if its task may use so much: results of two more wait, and as much is free."""
    return max(1, share // 2 // (3 * NODE_BYTES))


PAGE_SHARE = 0.8
"""The share of the limit from which on pages of files are given back."""
POLL_SECONDS = 0.002  # pages come in at some 50 MB in 10 ms


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
