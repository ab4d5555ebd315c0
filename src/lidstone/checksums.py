"""Checksums of JSON records and of the files of a folder, to notice damage when they are read again."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

KEY = "checksum"
"""The key of a record's own checksum."""
_BLOCK = 1 << 20


def with_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the checksum of its values, to be written as JSON.

    >>> with_checksum({"a": 1})
    {'a': 1, 'checksum': 'f9d86028c6e0d64e'}
    """
    return {**_without(record), KEY: _checksum(record)}


def verify_checksum(record: Any) -> None:
    """Raise a ValueError if the record has a checksum and its values do not fit it. Spaces and line ends may differ.

    >>> verify_checksum({"a": 2, "checksum": "f9d86028c6e0d64e"})
    Traceback (most recent call last):
    ValueError: its checksum does not fit its content; remove the key "checksum" if you changed it yourself
    """
    if isinstance(record, dict) and KEY in record and record[KEY] != _checksum(record):
        raise ValueError(f'its checksum does not fit its content; remove the key "{KEY}" if you changed it yourself')


def file_checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The CRC-32 of each of these files, in hex."""
    return {name: _crc32(folder / name) for name in names}


def verify_files(folder: Path, checksums: Mapping[str, str]) -> None:
    """Raise a ValueError that names the first file that is missing or has changed."""
    for name, expected in checksums.items():
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if _crc32(folder / name) != expected:
            raise ValueError(f"{name} has changed (checksum)")


def _without(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != KEY}


def _checksum(record: Mapping[str, Any]) -> str:
    """16 hex digits of the hash of the values as JSON, whatever the order of the keys."""
    as_read = json.loads(json.dumps(_without(record)))  # tuples become lists, keys become text
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()[:16]


def _crc32(path: Path) -> str:
    value = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return f"{value:08x}"
