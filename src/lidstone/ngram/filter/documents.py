"""From lines to documents and back to lines: a line of text is one, or the text field of a JSON object on a line.

A `Form` is how documents stand in files: `TextForm`, `JsonForm`, and that of Parquet in `parquet.py`.

What cannot be used is kept apart with the reason, and is never dropped in silence. Documents are written as they were,
with their scores: text gets them in front, with tabs between; JSON objects get fields at their end, and all else in
them stays byte for byte as it was, unless a field of that name was there before.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Protocol

from lidstone.files import jsonable
from lidstone.text.raw import RawText
from lidstone.text.reader import Chunk, Place, find_fault, read_chunks
from lidstone.text.source import Source


@dataclass(frozen=True)
class Bad:
    """A line that is no document."""

    name: str
    """of the file"""
    number: int
    """of the line, from 1 on"""
    reason: str
    raw: bytes

    @property
    def where(self) -> str:
        """file:line."""
        return f"{self.name}:{self.number}"

    @property
    def kind(self) -> str:
        """The reason without particulars.

        >>> Bad("a", 1, "not UTF-8: 0xff at byte 1 of the line", b"").kind
        'not UTF-8'
        """
        return re.split(": | at byte | \\(it has", self.reason)[0]

    @property
    def line(self) -> bytes:
        """As it is kept apart: the place, the reason, a tab, the line."""
        return f"{self.where}: {self.reason}\t".encode() + self.raw + b"\n"


@dataclass(frozen=True)
class Documents:
    """The documents of a chunk."""

    numbers: list[int]
    """which line of the chunk each one is"""
    raw: list[bytes]
    """each as it stands in the source"""
    text: bytes
    """what is scored: the lines of all documents, UTF-8, with line feeds between"""
    sizes: list[int] | None = None
    """how many lines of it each document has; None: one"""
    bad: list[Bad] = field(default_factory=list)
    was_raw: bool = False
    """whether its words were made of raw text"""

    @classmethod
    def of_texts(
        cls, numbers: list[int], texts: list[str], bad: list[Bad], raw: list[bytes] | None = None
    ) -> Documents:
        """Documents of one line or more each."""
        texts = [text.removesuffix("\n") for text in texts]
        sizes = [text.count("\n") + 1 for text in texts]
        whole = "\n".join(texts).encode("utf-8", "surrogatepass")
        return cls(numbers, [b""] * len(texts) if raw is None else raw, whole, sizes, bad)

    @property
    def texts(self) -> list[bytes]:
        r"""Each document's text.

        >>> Documents([0, 1], [b"", b""], b"a\nb\nc", [2, 1]).texts
        [b'a\nb', b'c']
        """
        lines = self.text.split(b"\n") if self.raw else []
        if self.sizes is None:
            return lines
        return [
            b"\n".join(lines[end - size : end]) for size, end in zip(self.sizes, accumulate(self.sizes), strict=True)
        ]

    def prepared(self, raw: RawText | None) -> Documents:
        """The same documents as lines of words, one each; as they are without rules for raw text."""
        if raw is None:
            return self
        return replace(self, text=b"\n".join(raw.words(self.texts)), sizes=None, was_raw=True)


Bounds = tuple[Place, int | None]
"""Where lines begin and stop"""
_WHOLE: Bounds = (Place(), None)


class Form(Protocol):
    """How documents stand in files."""

    def check(self, sources: Sequence[Source], names: Sequence[str]) -> None:
        """Refuse files that do not belong together, where this is known without reading them."""

    def chunks(
        self, sources: Sequence[Source], names: Sequence[str], chunk_bytes: int, prompt: bool, bounds: Bounds = _WHOLE
    ) -> Iterator[Chunk]:
        """All of the text, or the lines within bounds, some documents at a time."""

    def documents(self, chunk: Chunk) -> Documents:
        """The documents of a chunk."""

    def rows(self, chunk: Chunk, numbers: Sequence[int], names: Sequence[str], columns: Columns) -> bytes:
        """Some of its documents as they are written, with scores under these names."""


@dataclass(frozen=True)
class TextForm:
    """Lines of text."""

    def check(self, sources: Sequence[Source], names: Sequence[str]) -> None:
        """All belong together."""

    def chunks(
        self, sources: Sequence[Source], names: Sequence[str], chunk_bytes: int, prompt: bool, bounds: Bounds = _WHOLE
    ) -> Iterator[Chunk]:
        """All lines, what is not text included."""
        begin, stop = bounds
        options: dict[str, Any] = {"names": names, "chunk_bytes": chunk_bytes, "prompt": prompt}
        return read_chunks(sources, begin, stop=stop, strict=False, **options)

    def documents(self, chunk: Chunk) -> Documents:
        """Its lines."""
        return text_documents(chunk)

    def rows(self, chunk: Chunk, numbers: Sequence[int], names: Sequence[str], columns: Columns) -> bytes:
        """Lines with scores in front, or alone."""
        lines = chunk.lines
        return self.written([lines[number] for number in numbers], names, columns)

    def written(self, raw: Sequence[bytes], names: Sequence[str], columns: Columns) -> bytes:
        """The lines as they are written."""
        return text_lines(raw, names, columns) if names else plain_lines(raw)


@dataclass(frozen=True)
class JsonForm(TextForm):
    """JSON objects, one on a line."""

    name: str
    """the field with the text"""

    def documents(self, chunk: Chunk) -> Documents:
        """Their texts."""
        return json_documents(chunk, self.name)

    def written(self, raw: Sequence[bytes], names: Sequence[str], columns: Columns) -> bytes:
        """The objects with scores as fields."""
        return json_lines(raw, names, columns) if names else plain_lines(raw)


def text_documents(chunk: Chunk) -> Documents:
    r"""Every line is a document; those that are not UTF-8, or hold a NUL byte, are bad.

    >>> from lidstone.text.reader import Place
    >>> found = text_documents(Chunk(b"a b\n\xff\n\n", "x.txt", Place(), Place()))
    >>> found.raw, found.bad[0].where, found.bad[0].reason
    ([b'a b', b''], 'x.txt:2', 'not UTF-8: 0xff at byte 1 of the line')
    """
    lines = chunk.lines
    if find_fault(chunk.data) is None:
        return Documents(list(range(len(lines))), lines, chunk.text)
    reasons = [_reason(line) for line in lines]
    good = [number for number, reason in enumerate(reasons) if not reason]
    bad = [_bad(chunk, number, reason, lines[number]) for number, reason in enumerate(reasons) if reason]
    raw = [lines[number] for number in good]
    return Documents(good, raw, b"\n".join(raw), None, bad)


def json_documents(chunk: Chunk, name: str) -> Documents:
    r"""Every line is a JSON object whose field `name` is the text; empty lines are no documents.

    >>> from lidstone.text.reader import Place
    >>> found = json_documents(Chunk(b'{"text": "a\\nb"}\n{"t": 1}\n[]', "x.jsonl", Place(), Place()), "text")
    >>> found.text, found.sizes, [bad.reason for bad in found.bad]
    (b'a\nb', [2], ["no field 'text' (it has 't')", 'not a JSON object but an array'])
    """
    numbers, raw, texts, bad = [], [], [], []
    for number, line in enumerate(chunk.lines):
        try:
            text = _field(line, name)
        except ValueError as error:
            bad.append(_bad(chunk, number, str(error), line))
            continue
        if text is not None:
            numbers.append(number)
            raw.append(line)
            texts.append(text)
    return Documents.of_texts(numbers, texts, bad, raw)


def _field(line: bytes, name: str) -> str | None:
    """The text of one line, None if it is blank; ValueError says what is wrong."""
    try:
        record = json.loads(line.decode(), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: 0x{line[error.start]:02x} at byte {error.start + 1} of the line") from error
    except json.JSONDecodeError as error:
        if not line.strip():
            return None
        what = "a byte order mark" if "BOM" in error.msg else error.msg
        raise ValueError(f"not JSON: {what} at character {error.colno}") from error
    except RecursionError as error:
        raise ValueError("not JSON that can be read: nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError(f"not a JSON object but {_kind(record)}")
    if name not in record:
        raise ValueError(f"no field {name!r} ({_fields(record)})")
    if not isinstance(record[name], str):
        raise ValueError(f"the field {name!r} is {_kind(record[name])}, not a string")
    return str(record[name])


def _no_number(name: str) -> None:
    raise ValueError(f"not JSON: {name}")


def _fields(record: dict[str, Any]) -> str:
    """The names of the first few fields."""
    names = [repr(name if len(name) <= 30 else f"{name[:30]}...") for name in list(record)[:6]]
    return f"it has {', '.join(names) or 'none'}{' and more' if len(record) > 6 else ''}"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _reason(line: bytes) -> str:
    fault = find_fault(line)
    return f"{fault.what} at byte {fault.at + 1} of the line" if fault else ""


def _bad(chunk: Chunk, number: int, reason: str, raw: bytes) -> Bad:
    return Bad(chunk.name, chunk.begin.line + number + 1, reason, raw)


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
    columns = [_json_values(column) for column in columns]
    form = b", ".join([b"%b", *map(_field_form, names, columns)]) + b"}\n"
    rows = zip(raw, *columns, strict=True)
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


def _field_form(name: str, column: Sequence[Any]) -> bytes:
    return b'"%b": ' % name.encode() + (b"%b" if column and isinstance(column[0], bytes) else _FLOAT)


def _json_values(column: Sequence[Any]) -> Sequence[Any]:
    """Finite numbers as they are; words, and all numbers where one is infinite, as JSON, which has null for it."""
    if column and not isinstance(column[0], str):
        if all(map(math.isfinite, column)):
            return column
        column = [round(value, 4) if math.isfinite(value) else None for value in column]
    return [json.dumps(value).encode() for value in column]


def _encoded(column: Sequence[Any]) -> Sequence[Any]:
    return [value.encode() for value in column] if column and isinstance(column[0], str) else column


def _written_again(line: bytes, names: Sequence[str], values: Sequence[Any]) -> bytes:
    """For an object that may have a field of this name: its value is replaced."""
    record = {key: value for key, value in json.loads(line).items() if key not in names}
    for name, value in zip(names, values, strict=True):
        record[name] = json.loads(value) if isinstance(value, bytes) else round(value, 4)
    record = jsonable(record)  # a number that no float can hold would be written as Infinity
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can hold
        return json.dumps(record, allow_nan=False).encode() + b"\n"
