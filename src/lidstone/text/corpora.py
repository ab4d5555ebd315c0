"""Reading text: checked chunks and lines of any source, and the corpus that comes with Python.

Text is UTF-8 without NUL bytes. A line ends at a line feed alone; a carriage return before it and a byte
order mark at the start of the text are dropped. Errors name the file, line and byte.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from lidstone.errors import DataError, InputError, TextError
from lidstone.text.reading.kinds import HEAD, kind_of, not_text
from lidstone.text.reading.lines import MARK, whole_lines
from lidstone.text.reading.streams import Source, name_of, open_bytes

__all__ = [
    "Source",
    "aligned",
    "data_root",
    "embedded_corpus",
    "open_bytes",
    "read_chunks",
    "read_lines",
    "split_sentences",
    "tokenize",
]

Sentence = TypeVar("Sentence")


def read_chunks(source: Source, chunk_bytes: int = 1 << 24) -> Iterator[bytes]:
    r"""Yield the text in pieces of about `chunk_bytes` that end at a line end, the last one perhaps not.

    >>> import io
    >>> list(read_chunks(io.BytesIO(b"a\nbc\nd"), chunk_bytes=3))
    [b'a\n', b'bc\n', b'd']
    """
    for chunk, _ in _checked(source, chunk_bytes):
        yield chunk


def read_lines(source: Source, chunk_bytes: int = 1 << 22) -> Iterator[str]:
    r"""Yield lines without their ends.

    >>> import io
    >>> list(read_lines(io.BytesIO("é a\r\n\nb".encode())))
    ['é a', '', 'b']
    """
    for _, text in _checked(source, chunk_bytes):
        lines = text.removesuffix("\n").split("\n")
        yield from (line.removesuffix("\r") for line in lines)


def data_root() -> Path | None:
    """The folder of corpora named by the environment variable `LIDSTONE_DATA`, if it is set."""
    folder = os.environ.get("LIDSTONE_DATA")
    return Path(folder) if folder else None


def tokenize(text: str) -> list[str]:
    """Lower-case `text`; runs of word characters, with inner apostrophes, are words; other characters are tokens.

    >>> tokenize('It doesn’t (yet) call "__init__".')
    ['it', 'doesn’t', '(', 'yet', ')', 'call', '"', '__init__', '"', '.']
    """
    return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", text.lower())


def embedded_corpus() -> list[list[str]]:
    """Sentences of Python's own reference text, `pydoc_data.topics`: English on every machine with CPython.

    Paragraphs end at blank lines, sentences at `.`, `!`, `?` or `:` before white space. Grammar rules,
    interpreter sessions, tables, ruled lines and repeated paragraphs are left out. The text differs a
    little between versions of Python.
    """
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = dict.fromkeys(re.split(r"\n\s*\n", re.sub(r"(?m)^\s*[*=~^-]+$", "", text)))
    prose = (paragraph for paragraph in paragraphs if not re.search(r"::=|>>>|\+--", paragraph))
    sentences = (tokenize(part) for paragraph in prose for part in re.split(r"(?<=[.!?:])\s+", paragraph))
    return [sentence for sentence in sentences if sentence]


def split_sentences(
    sentences: Sequence[Sentence], block: int = 10
) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """Split sentences into 80 % training, 10 % validation and 10 % test, in blocks of neighbours.

    Of every ten blocks the ninth is for validation and the tenth for test.

    >>> train, valid, test = split_sentences(range(20), block=1)
    >>> valid, test
    ([8, 18], [9, 19])
    """
    if block < 1:
        raise InputError(f"a block has at least one sentence, not {block}", hint="use block >= 1")
    parts: tuple[list[Sentence], list[Sentence], list[Sentence]] = ([], [], [])
    for number, sentence in enumerate(sentences):
        parts[max(0, number // block % 10 - 7)].append(sentence)
    return parts


def _checked(source: Source, chunk_bytes: int) -> Iterator[tuple[bytes, str]]:
    offset = lines = 0
    for chunk in whole_lines(source, chunk_bytes):
        kind = "text" if offset else kind_of(chunk[:HEAD])
        if kind not in ("text", "arpa", "binary"):  # for binary data the decoder reports the first bad byte
            raise not_text(kind, source)
        text = _decode(chunk, name_of(source), offset, lines)
        offset, lines = offset + len(chunk), lines + chunk.count(b"\n")
        if offset == len(chunk) and chunk.startswith(MARK):
            chunk, text = chunk[len(MARK) :], text[1:]
        if chunk:
            yield chunk, text


def _decode(chunk: bytes, name: str, offset: int, lines: int) -> str:
    try:
        text = chunk.decode()
    except UnicodeDecodeError as error:
        line = lines + chunk.count(b"\n", 0, error.start) + 1
        raise TextError(
            f"{name} is not UTF-8: 0x{chunk[error.start]:02x} in line {line}, at byte {offset + error.start}",
            hint="convert it, for example with iconv -f latin1 -t utf-8",
        ) from error
    zero = chunk.find(b"\0")
    if zero >= 0:
        line = lines + chunk.count(b"\n", 0, zero) + 1
        raise TextError(
            f"{name} has a NUL byte in line {line}, at byte {offset + zero}",
            hint="this is not plain text; for UTF-16, convert it with iconv -f utf-16 -t utf-8",
        )
    return text


def aligned(texts: Sequence[Iterable[str]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Line n of each text is sample n; texts of different length are an error.

    >>> aligned([["a", "b"], ["A"]], ["x.de", "x.en"])
    Traceback (most recent call last):
    lidstone.errors.DataError: x.de has 2 lines but x.en has 1: line 2 has no partner. hint: ...
    """
    columns = [list(text) for text in texts]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise DataError(
            f"{names[0]} has {lengths[0]} lines but {names[1]} has {lengths[1]}: "
            f"line {min(lengths) + 1} has no partner",
            hint="line n of one file must translate line n of the other",
        )
    return list(zip(*columns, strict=True))
