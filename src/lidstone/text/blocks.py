"""Text to ids in blocks of whole sentences, for text whose ids do not fit in memory at once.

The ids are those of `read_words`. Reading can continue from any block, given the words before it. A file that changes
during reading is an error: the ids would be neither those of the old text nor those of the new one.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lidstone.errors import LidstoneError, TextError
from lidstone.text.corpora import read_chunks
from lidstone.text.reading.kinds import HEAD, kind_of, not_text
from lidstone.text.reading.streams import Source, name_of
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, Ids, WordReader

CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class Place:
    """Where the next block begins."""

    source: int = 0
    """how many sources are read in full"""
    offset: int = 0
    """how many bytes of the next one are read, after decompression"""


@dataclass(frozen=True)
class Block:
    """Some sentences, and where they end."""

    ids: Ids
    new_words: bytes
    """the words that occur here for the first time, each followed by a line feed"""
    end: Place
    raw: int
    """how many bytes of the file that `end` is in are read, before decompression"""


@dataclass(frozen=True)
class _Chunk:
    text: bytes
    lines: int
    """how many lines come before it in its source"""
    end: int
    raw: int


def read_blocks(
    sources: Sequence[Source],
    tokens: int,
    vocab: Vocabulary | None = None,
    *,
    blank: Blank = "skip",
    start: Place | None = None,
    known: bytes = b"",
) -> Iterator[Block]:
    r"""Blocks of about `tokens` tokens, but at least one chunk of text; `known` are the words before `start`.

    >>> import io
    >>> [(block.ids.tolist(), block.new_words) for block in read_blocks([io.BytesIO(b"b a b\nc\n")], tokens=10)]
    [([2, 3, 2, 1, 4, 1], b'b\na\nc\n')]
    """
    place = start or Place()
    reader = _after(WordReader(vocab, blank), known)
    arena = int(reader.state[4])
    for number in range(place.source, len(sources)):
        offset = place.offset if number == place.source else 0
        for chunk in _chunks(sources[number], offset):
            reader.read(chunk.text, name_of(sources[number]), chunk.lines)
            if len(reader.ids) >= tokens:
                yield _take(reader, arena, Place(number, chunk.end), chunk.raw)
                arena = int(reader.state[4])
    if len(reader.ids):
        yield _take(reader, arena, Place(len(sources), 0), 0)


def _take(reader: WordReader, arena: int, end: Place, raw: int) -> Block:
    """The ids read since the last block; the reader keeps only its words."""
    return Block(reader.take(), reader.arena[arena : reader.state[4]].tobytes(), end, raw)


def _after(reader: WordReader, known: bytes) -> WordReader:
    """The reader, after it has read the known words in order, which gives them the same ids as before."""
    for chunk in read_chunks(io.BytesIO(known), CHUNK_BYTES):
        reader.read(chunk, "the words so far", 0)
        reader.take()
    return reader


def _chunks(source: Source, offset: int) -> Iterator[_Chunk]:
    """Chunks of a source from an offset on."""
    before, end, lines = stamp(source), 0, 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(Path(source).open("rb")) if before else None  # type: ignore[arg-type]
        for text in read_chunks(file or source, CHUNK_BYTES):
            if not end and kind_of(text[:HEAD]) == "arpa":
                raise not_text("arpa", source)
            end += len(text)
            if end > offset:
                yield _Chunk(text, lines, end, file.tell() if file else 0)
            lines += text.count(b"\n")
    if stamp(source) != before:
        hint = "wait until it is written, then count again"
        raise TextError(f"{name_of(source)} changed while it was read", hint=hint)


def stamp(source: Source) -> tuple[str, int, int] | None:
    """The path, size and time of change of a file; None if the source is not a file."""
    if not isinstance(source, (str, Path)) or str(source) == "-" or not Path(source).is_file():
        return None
    status = Path(source).stat()
    return str(Path(source).resolve()), status.st_size, status.st_mtime_ns


def check_readable(source: Source, vocab: Vocabulary | None = None) -> LidstoneError | None:
    """Read a source to its end; return its error, or None if there is none."""
    reader = WordReader(vocab)
    try:
        for chunk in _chunks(source, 0):
            reader.read(chunk.text, name_of(source), chunk.lines)
            reader.take()
    except LidstoneError as error:
        return error
    return None


def words_of(text: bytes) -> Vocabulary:
    """The vocabulary of words in order of appearance, each followed by a line feed."""
    return Vocabulary.from_words(text.decode().split("\n")[:-1])
