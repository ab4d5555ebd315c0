"""The fingerprint of a count file, without having it in memory."""

from __future__ import annotations

from pathlib import Path

from lidstone.ngram.formats.safetensors import load_counts


def file_fingerprint(path: str | Path) -> str:
    """`Counts.fingerprint` of a file of counts, which is mapped into memory."""
    return load_counts(path, verify=False).fingerprint
