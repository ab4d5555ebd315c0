"""Documents as they are written: the line as it was, with its scores.

Text gets its scores in front, with tabs between; JSON objects get fields at their end, and all else in them stays byte
for byte as it was, unless a field of that name was there before.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Sequence
from typing import Any

_FLOAT = b"%.4f"
Columns = Sequence[Sequence[Any]]
"""the scores, one sequence per name with a value per document: floats, or words"""


def plain_lines(raw: Sequence[bytes]) -> bytes:
    """The lines alone."""
    return b"".join([line + b"\n" for line in raw])


def text_lines(raw: Sequence[bytes], names: Sequence[str], columns: Columns) -> bytes:
    r"""Scores, then the line.

    >>> text_lines([b"the cat"], ["perplexity", "bucket"], [[12.5], ["head"]])
    b'12.5000\thead\tthe cat\n'
    """
    form = b"\t".join([*(_FLOAT if name != "bucket" else b"%b" for name in names), b"%b\n"])
    return b"".join([form % row for row in zip(*map(_encoded, columns), raw, strict=True)])


def json_lines(raw: Sequence[bytes], names: Sequence[str], columns: Columns) -> bytes:
    r"""The object with its scores as fields.

    >>> json_lines([b'{"text": "a",  "n": 1.0}'], ["perplexity"], [[3.25]])
    b'{"text": "a",  "n": 1.0, "perplexity": 3.2500}\n'
    """
    keys = [f'"{name}"'.encode() for name in names]
    form = b", ".join([b"%b", *(_field_form(name) for name in names)]) + b"}\n"
    rows = zip(raw, *map(_encoded, columns), strict=True)
    written = []
    for line, *values in rows:
        if any(key in line for key in keys):
            written.append(_written_again(line, names, values))
        else:
            written.append(form % (line.rstrip()[:-1].rstrip(), *values))
    return b"".join(written)


def compressor(name: str) -> Callable[[bytes], bytes]:
    """The function that compresses a block for a file of this name; consecutive blocks are a file of that format."""
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


def _field_form(name: str) -> bytes:
    return b'"%b": ' % name.encode() + (_FLOAT if name != "bucket" else b'"%b"')


def _encoded(column: Sequence[Any]) -> Sequence[Any]:
    return [value.encode() for value in column] if column and isinstance(column[0], str) else column


def _written_again(line: bytes, names: Sequence[str], values: Sequence[Any]) -> bytes:
    """For an object that may have a field of this name: its value is replaced."""
    record = {key: value for key, value in json.loads(line).items() if key not in names}
    for name, value in zip(names, values, strict=True):
        record[name] = value.decode() if isinstance(value, bytes) else round(value, 4)
    try:
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can hold
        return json.dumps(record).encode() + b"\n"
