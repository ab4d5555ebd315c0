r"""The text of an ARPA file, in any of its dialects, as words and arrays.

    \data\                         anything may stand before this
    ngram 1=4
    \1-grams:
    -0.7  a  -0.3                  log10 p, the words, log10 of the backoff where there is one
    \end\

Fields are separated by tabs or spaces, lines may end as on Windows, blank lines mean nothing, and n-grams come in any
order. What is wrong is said with the line it stands in.

The inner loop is compiled: lines of n-grams in, arrays out. Words are looked up in a table of all unigrams
(`text/interning.py`). Numbers are read to within one unit in the last place, far finer than the seven digits of files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError, format_error
from lidstone.jit import helper, inlined, kernel
from lidstone.ngram.trie import MAX_ORDER
from lidstone.text.interning import index_words, number_of
from lidstone.text.memory import load_u8, load_u64, store_f64, store_i64, store_u32
from lidstone.text.reader import read_chunks
from lidstone.text.source import Source, name_of
from lidstone.text.tokens import PADDING, PLAIN_BLANKS, word_end

_BLANKS = bytes.maketrans(b"\t\r", b"  ")


@dataclass(frozen=True)
class NgramSection:
    """The n-grams of one order."""

    ngrams: NDArray[np.int32]
    """(n-grams, order): words by their place among the unigrams, oldest first"""
    logprobs: NDArray[np.float64]
    """log10 p"""
    backoffs: NDArray[np.float64]
    """log10 of the backoff; 0 where the line has none"""
    lines: NDArray[np.int64]
    """the position of each in the file"""

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All four."""
        return self.ngrams, self.logprobs, self.backoffs, self.lines


def read_sections(source: Source) -> tuple[list[str], list[NgramSection]]:
    r"""The words of an ARPA file in its own order, and a section per order.

    >>> import io
    >>> text = rb"\data\ |ngram 1=2|ngram 2=1|\1-grams:|-1 b -0.5|-2 a|\2-grams:|-0.1 b a|\end\ ".replace(b"|", b"\n")
    >>> words, sections = read_sections(io.BytesIO(text))
    >>> words, sections[0].backoffs.tolist(), sections[1].ngrams.tolist()
    (['b', 'a'], [-0.5, 0.0], [[0, 1]])
    """
    reader = _ArpaReader(name_of(source))
    for chunk in read_chunks(source, chunk_bytes=1 << 22, arpa=True):
        reader.read(chunk.data if chunk.data.endswith(b"\n") else chunk.data + b"\n")
    return reader.finish()


class _ArpaReader:
    """What has been read so far, and what may come next."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = 1
        self.state = "preamble"  # then data, ngrams, end
        self.declared: list[int] = []
        self.words: dict[bytes, int] = {}
        self.index = index_words([])
        self.pieces: list[NgramSection] = []
        self.sections: list[NgramSection] = []

    @property
    def order(self) -> int:
        """The order of the section that is being read, or comes next."""
        return len(self.sections) + 1

    def read(self, chunk: bytes) -> None:
        position = 0
        while position < len(chunk):
            if self.state == "ngrams":
                position = self._read_ngrams(chunk, position)
            if position < len(chunk):
                end = chunk.index(b"\n", position) + 1
                self._read_line(_fields(chunk[position:end]))
                position = end
                self.line += 1

    def finish(self) -> tuple[list[str], list[NgramSection]]:
        if self.state == "preamble":
            what = rf"{self.name} is not an ARPA file: no line says \data\ "
            raise FileFormatError(what.strip(), hint="give a model in ARPA format")
        if self.state != "end":
            raise self._error(r"the file is cut off: \end\ is missing")
        return [word.decode() for word in self.words], self.sections

    def _read_line(self, fields: list[bytes]) -> None:
        if self.state == "preamble":
            self.state = "data" if fields == [b"\\data\\"] else "preamble"
        elif fields and self.state != "end":
            if fields[0].startswith(b"\\"):
                self._mark(b" ".join(fields).decode())
            else:
                self._declare(b" ".join(fields))

    def _mark(self, marker: str) -> None:
        r"""\1-grams:, ... or \end\ begins."""
        if self.state == "ngrams":
            self._close_section()
        else:
            self._check_declared()
        more = self.order <= len(self.declared)
        due = f"\\{self.order}-grams:" if more else "\\end\\"
        if marker != due:
            raise self._error(f"{marker} was found where {due} is expected")
        self.state = "ngrams" if more else "end"
        self.pieces = [_room(0, self.order)]

    def _declare(self, text: bytes) -> None:
        """A line such as `ngram 2=47`."""
        found = re.fullmatch(rb"ngram (\d{1,3}) ?= ?(\d{1,18})", text)
        if not found or int(found[1]) != len(self.declared) + 1:
            due = f"ngram {len(self.declared) + 1}=COUNT"
            raise self._error(f"{text[:40].decode(errors='replace')!r} was found where {due} is expected")
        self.declared.append(int(found[2]))

    def _check_declared(self) -> None:
        if not self.declared or not self.declared[0]:
            raise self._error("the model has no words", hint="it needs at least one unigram")
        if len(self.declared) > MAX_ORDER:
            what = f"the model has order {len(self.declared)}"
            raise self._error(what, hint=f"lidstone reads orders up to {MAX_ORDER}")

    def _read_ngrams(self, chunk: bytes, position: int) -> int:
        """Lines of the current section up to a marker or the end of the chunk; where they end."""
        if self.order == 1:
            self._add_words(chunk, position)
        room = _room(chunk.count(b"\n", position), self.order)
        has_backoff = self.order < len(self.declared)
        text = np.frombuffer(chunk + PADDING, np.uint8)
        columns = (column.ctypes.data for column in room.columns)
        status, position, line, size = parse(
            text.ctypes.data, position, len(chunk), self.order, has_backoff, self.index.address, *columns
        )
        if status == FAULT:
            fields = _fields(chunk[position : chunk.index(b"\n", position)])
            self.line += line
            raise self._error(self._fault(fields, has_backoff))
        self.pieces.append(NgramSection(*(column[:size] for column in room.columns)))
        self.pieces[-1].lines[:] += self.line
        self.line += line
        return position

    def _add_words(self, chunk: bytes, position: int) -> None:
        """The second field of each line up to the next marker is a word."""
        marker = re.compile(rb"^[ \t\r]*\\", re.MULTILINE).search(chunk, position)
        lines = chunk[position : marker.start() if marker else len(chunk)].split(b"\n")
        for number, line in enumerate(lines, start=self.line):
            for word in _fields(line)[1:2]:
                if word in self.words:
                    raise format_error(self.name, f"the word {word.decode()!r} is listed twice", line=number)
                self.words[word] = len(self.words)
        self.index = index_words(list(self.words))

    def _close_section(self) -> None:
        columns = zip(*(piece.columns for piece in self.pieces), strict=True)
        section = NgramSection(*(np.concatenate(column) for column in columns))
        found, declared = len(section.lines), self.declared[self.order - 1]
        if found != declared:
            what = f"the header declares {declared} {self.order}-grams, but {found} stand above this line"
            raise self._error(what)
        self.sections.append(section)

    def _error(self, what: str, **hint: str) -> FileFormatError:
        return format_error(self.name, what, line=self.line, **hint)

    def _fault(self, fields: list[bytes], has_backoff: bool) -> str:
        """Why a line cannot be read."""
        widths = (self.order + 1, self.order + 2) if has_backoff else (self.order + 1,)
        if len(fields) not in widths:
            due = " or ".join(map(str, widths))
            return f"{len(fields)} fields, where {due} are due for {self.order}-grams of order {len(self.declared)}"
        for word in fields[1 : self.order + 1]:
            if word not in self.words:
                return f"the word {word.decode()!r} is not among the unigrams"
        numbers = {"log-probability": fields[0], "backoff": b" ".join(fields[self.order + 1 :])}
        wrong = "backoff" if _is_logprob(fields[0]) else "log-probability"
        return f"{numbers[wrong].decode()} is not a {wrong}"


def _fields(line: bytes) -> list[bytes]:
    return [field for field in line.rstrip(b"\n").translate(_BLANKS).split(b" ") if field]


def _is_logprob(number: bytes) -> bool:
    try:
        return float(number) <= 0
    except ValueError:
        return False


def _room(size: int, order: int) -> NgramSection:
    return NgramSection(np.empty((size, order), np.int32), np.empty(size), np.empty(size), np.empty(size, np.int64))


DONE, MARKER, FAULT = 0, 1, 2
"""Why `parse` stopped: the text ended; a line begins with a backslash; a line cannot be read."""

MOST_BACKOFF = 99.0
"""log10 of the largest backoff: the opposite of -99, which files use for zero"""

_MOST_EXPONENT = np.int64(9999)
_TENS = 10.0 ** np.arange(23)


@kernel
def parse(text, position, size, order, with_backoff, table, ngrams, logprobs, backoffs, lines):  # type: ignore[no-untyped-def]
    """Read lines from `position` on; `lines` gets the number of each n-gram's line within this call.

    The text, `size` bytes, is followed by the padding, and `table` holds the words of all unigrams. All are addresses.
    Gives why it stopped, where the line begins at which it did, the number of that line, and how many n-grams it read.
    """
    line = filled = np.int64(0)
    while position < size:
        begin = position
        position = _skip(text, position)
        if load_u8(text + position) == 92:
            return MARKER, begin, line, filled
        if load_u8(text + position) != 10:
            logprob, position = _number(text, position)
            for i in range(order):
                position = _skip(text, position)
                end = word_end(text, position, PLAIN_BLANKS)
                number = number_of(table, text, position, end)
                if number < 0:
                    return FAULT, begin, line, filled
                store_u32(ngrams + 4 * (order * filled + i), number)
                position = end
            position = _skip(text, position)
            backoff = 0.0
            if with_backoff and load_u8(text + position) != 10:
                backoff, position = _number(text, position)
                position = _skip(text, position)
            good = logprob <= 0.0 and backoff <= MOST_BACKOFF  # and so not NaN: bad numbers give it
            if not good or load_u8(text + position) != 10:
                return FAULT, begin, line, filled
            store_f64(logprobs + 8 * filled, logprob)
            store_f64(backoffs + 8 * filled, backoff)
            store_i64(lines + 8 * filled, line)
            filled += 1
        position += 1
        line += 1
    return DONE, position, line, filled


@helper
def _skip(text, position):  # type: ignore[no-untyped-def]
    """Past spaces, tabs and carriage returns."""
    byte = load_u8(text + position)
    while byte == 32 or byte == 9 or byte == 13:
        position += 1
        byte = load_u8(text + position)
    return position


@helper
def _number(text, position):  # type: ignore[no-untyped-def]
    """A decimal number or an infinity, and where it ends; NaN for anything else."""
    negative, position = _sign(text, position)
    byte = load_u8(text + position)
    if byte == 105 or byte == 73:  # inf
        end = word_end(text, position, PLAIN_BLANKS)
        letters = load_u64(text + position) & np.uint64(0xDFDFDF)
        good = end - position == 3 and letters == np.uint64(0x464E49)
        return (-np.inf if negative else np.inf) if good else np.nan, end
    mantissa, digits, scale, point = np.uint64(0), np.int64(0), np.int64(0), False
    while 48 <= byte <= 57 or (byte == 46 and not point):
        if byte == 46:
            point = True
        else:
            digits += 1
            if mantissa < np.uint64(10**17):
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - 48)
                scale -= point
            else:
                scale += not point
        position += 1
        byte = load_u8(text + position)
    if byte == 101 or byte == 69:  # an exponent, if digits follow
        minus, at = _sign(text, position + 1)
        exponent, first = np.int64(0), at
        byte = load_u8(text + at)
        while 48 <= byte <= 57:
            exponent = min(exponent * 10 + (byte - 48), _MOST_EXPONENT)
            at += 1
            byte = load_u8(text + at)
        scale += -exponent if minus else exponent
        position = at if at > first else position
    value = np.float64(mantissa)
    if scale < -22 or scale > 22:
        value *= 10.0**scale
    else:  # exactly rounded where both fit a float64
        value = value / _TENS[-scale] if scale < 0 else value * _TENS[scale]
    good = digits > 0 and load_u8(text + position) <= 32
    return (-value if negative else value) if good else np.nan, position


@inlined
def _sign(text, position):  # type: ignore[no-untyped-def]
    """Whether a minus stands there, and what follows a sign."""
    byte = load_u8(text + position)
    return byte == 45, position + (byte == 45 or byte == 43)
