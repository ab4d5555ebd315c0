"""The fingerprint of a count file, without having it in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lidstone.ngram.storage.checked_tensors import BLOCK_BYTES, read_arrays, release
from lidstone.ngram.storage.files import load_counts


def file_fingerprint(path: str | Path) -> str:
    """`Counts.fingerprint` of a file of counts in which every n-gram occurs: no thresholds, nothing inserted."""
    arrays, _ = read_arrays(path, verify=False)
    digest = hashlib.blake2b(load_counts(path, verify=False).vocab.fingerprint.encode(), digest_size=8)
    for name in ("levels", "first", "words", "counts"):
        digest.update(_digest(arrays[name]))
    return digest.hexdigest()


def _digest(array: NDArray[Any]) -> bytes:
    digest = hashlib.blake2b(f"{array.dtype.str} {len(array)}".encode(), digest_size=8)
    data = memoryview(array).cast("B")  # type: ignore[arg-type]
    for start in range(0, len(data), BLOCK_BYTES):
        digest.update(data[start : start + BLOCK_BYTES])
        release(array)
    return digest.digest()
