"""Documents as they are written: the line as it was, with its scores.

Text gets its scores in front, with tabs between; JSON objects get fields at their end, and all else in them stays byte
for byte as it was, unless a field of that name was there before.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Row = tuple[Any, ...]
"""a document's scores in the order of their names"""


def text_lines(raw: Iterable[bytes], names: Sequence[str], rows: Iterable[Row]) -> bytes:
    r"""Scores, then the line.

    >>> text_lines([b"the cat"], ["perplexity", "bucket"], [(12.5, "head")])
    b'12.5000\thead\tthe cat\n'
    """
    if not names:
        return b"".join(line + b"\n" for line in raw)
    return b"".join(_columns(row) + line + b"\n" for line, row in zip(raw, rows, strict=True))


def json_lines(raw: Iterable[bytes], names: Sequence[str], rows: Iterable[Row]) -> bytes:
    r"""The object with its scores as fields.

    >>> json_lines([b'{"text": "a",  "n": 1.0}'], ["perplexity"], [(math.inf,)])
    b'{"text": "a",  "n": 1.0, "perplexity": null}\n'
    """
    if not names:
        return b"".join(line + b"\n" for line in raw)
    return b"".join(_with_fields(line, names, row) + b"\n" for line, row in zip(raw, rows, strict=True))


def compressor(name: str) -> Callable[[bytes], bytes]:
    """What compresses a block as the name of the file asks; blocks one after the other are a file of that format."""
    kinds: dict[str, Callable[[bytes], bytes]] = {
        "gz": lambda block: gzip.compress(block, 6, mtime=0),
        "bz2": bz2.compress,
        "xz": lambda block: lzma.compress(block, preset=1),
        "zst": _zstd,
    }
    return kinds.get(name.rsplit(".", 1)[-1], bytes)


def _zstd(block: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(block)  # a compressor belongs to one thread


def _columns(row: Row) -> bytes:
    return b"".join(b"%.4f\t" % value if isinstance(value, float) else f"{value}\t".encode() for value in row)


def _with_fields(line: bytes, names: Sequence[str], row: Row) -> bytes:
    if any(b'"%b"' % name.encode() in line for name in names):
        return _written_again(line, names, row)
    fields = ", ".join(f'"{name}": {_json(value)}' for name, value in zip(names, row, strict=True))
    return line.rstrip()[:-1].rstrip() + b", " + fields.encode() + b"}"


def _written_again(line: bytes, names: Sequence[str], row: Row) -> bytes:
    """For an object that may have a field of this name: its value is replaced."""
    record = json.loads(line)
    if not any(name in record for name in names):
        return _with_fields_after(record, names, row)
    return _with_fields_after({key: value for key, value in record.items() if key not in names}, names, row)


def _with_fields_after(record: dict[str, Any], names: Sequence[str], row: Row) -> bytes:
    values = {name: json.loads(_json(value)) for name, value in zip(names, row, strict=True)}
    try:
        return json.dumps({**record, **values}, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can hold
        return json.dumps({**record, **values}).encode()


def _json(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if math.isfinite(value) else "null"
    return json.dumps(value)
