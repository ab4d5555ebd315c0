"""Texts by name: files, globs, addresses of other file systems, and columns of Parquet or JSON lines.

Each becomes a source for all readers of text. A row of a column is a line of text; a row with line feeds in it
is several lines.
"""

from __future__ import annotations

import glob
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidstone.errors import InputError, LidstoneError, TextError
from lidstone.text.raw import RawText
from lidstone.text.reader import read_lines
from lidstone.text.source import COMPRESSED, ByteStream, Source
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import read_batches

JSON_LINES = (".jsonl", ".ndjson")
ROWS = 1024


@dataclass(frozen=True)
class Input:
    """One text by its name."""

    name: str
    """a path, `-` for standard input, or an address such as s3://bucket/file"""
    column: str | None = None
    """the column to read of a Parquet or JSON lines file"""
    raw: RawText | None = None
    """how raw text becomes words; None: it is words"""

    def open(self, *, prompt: bool = False) -> Source:
        """The words as a source; a new one each time, except for standard input; `prompt` if lines are answered."""
        return self._text() if self.raw is None else self.raw.source(self._text(), prompt=prompt)

    def _text(self) -> Source:
        plain = Path(self.name).with_suffix("") if Path(self.name).suffix in COMPRESSED else Path(self.name)
        if plain.suffix == ".parquet":
            rows: Iterator[Any] = _parquet_rows(self.name, self._column(), _remote(self.name))
        elif self.column is not None and plain.suffix in JSON_LINES:
            rows = _json_rows(self.name, self.column, _remote(self.name))
        else:
            return _remote(self.name)
        return ByteStream(_lines_of(rows, self.name), self.name)  # type: ignore[return-value]

    def _column(self) -> str:
        if self.column is None:
            raise InputError(f"{self.name} has columns", hint="name the one with the text: --column text")
        return self.column


def expand(names: Iterable[str], column: str | None = None, raw: RawText | None = None) -> list[Input]:
    """The inputs of names, globs and addresses; those of one glob are sorted by name.

    >>> [found.name for found in expand(["-", "a.txt"])]
    ['-', 'a.txt']
    """
    return [Input(name, column, raw) for pattern in names for name in _matches(pattern)]


def readable(inputs: Sequence[Input], vocab: Vocabulary | None, report: Callable[[LidstoneError], None]) -> list[Input]:
    """The inputs that can be read to their end; `report` gets the errors of the others. Reads every input once."""
    good = []
    for item in inputs:
        error = None if item.name == "-" else _error_of(item.open(), vocab)
        report(error) if error else good.append(item)
    if not good:
        raise InputError(f"none of {len(inputs)} texts can be read", hint="leave out --skip-bad to see why")
    return good


def _error_of(source: Source, vocab: Vocabulary | None) -> LidstoneError | None:
    """Read a source to its end; return its error, or None if there is none."""
    try:
        for _ in read_batches(source, vocab):
            pass
    except LidstoneError as error:
        return error
    return None


def _matches(pattern: str) -> list[str]:
    if "://" in pattern:
        found = _remote_matches(pattern)
    elif glob.has_magic(pattern) and not Path(pattern).exists():
        found = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207
    else:
        return [pattern]
    if not found:
        raise InputError(f"no file matches {pattern}", hint="check the pattern; put it in quotes")
    return found


def _remote_matches(address: str) -> list[str]:
    import fsspec

    files, path = fsspec.core.url_to_fs(address)
    if not glob.has_magic(path):
        return [address]
    return sorted(files.unstrip_protocol(found) for found in files.glob(path))


def _remote(name: str) -> Source:
    """An address as an open file; a path unchanged."""
    if "://" not in name:
        return name
    import fsspec

    try:
        file: Source = fsspec.open(name, "rb").open()
    except (OSError, ValueError, ImportError) as error:
        raise TextError(f"cannot read {name}: {error}", hint="check the address and its credentials") from error
    return file


def _parquet_rows(name: str, column: str, source: Source) -> Iterator[str]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(source)
        if column not in file.schema_arrow.names:
            raise _no_column(name, column, file.schema_arrow.names)
        for batch in file.iter_batches(ROWS, columns=[column]):
            yield from (text for text in batch.column(0).to_pylist() if text is not None)
    except (OSError, arrow.ArrowException) as error:
        raise TextError(f"{name} is damaged, or not a Parquet file: {error}", hint="copy the file again") from error


def _json_rows(name: str, column: str, source: Source) -> Iterator[str]:
    for number, line in enumerate(read_lines(source), start=1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except ValueError as error:
            raise TextError(f"{name}, line {number} is not JSON: {error}", hint="write one object per line") from error
        if not isinstance(row, dict) or column not in row:
            raise _no_column(f"{name}, line {number}", column, list(row) if isinstance(row, dict) else [])
        if row[column] is not None:
            yield row[column]


def _no_column(where: str, column: str, there: Sequence[str]) -> InputError:
    return InputError(f"{where} has no column {column!r}", hint=f"its columns are {', '.join(there) or 'none'}")


def _lines_of(rows: Iterator[Any], name: str) -> Iterator[bytes]:
    """Rows as bytes, a line each, some at a time."""
    numbered = enumerate(rows, start=1)
    while batch := list(itertools.islice(numbered, ROWS)):
        for number, row in batch:
            if not isinstance(row, str):
                hint = "name the column with the text"
                raise TextError(f"{name}, row {number} is {type(row).__name__}, not text", hint=hint)
        yield b"".join(row.encode(errors="surrogatepass") + b"\n" for _, row in batch)
