"""Text to ids: a word is what stands between blanks (`tokens.py`), a line is a sentence.

A line without words is skipped, or it is a sentence without words, as for KenLM (`blank`). The stream of ids holds, for
each sentence, its words and then eos; `<s>` is not stored. `read_words` gives the ids of all text, with all cores for a
large file; `read_batches` and `read_blocks` give those of some lines at a time, `read_blocks` from the end of any block
on. `slow_read_words` is the simple reference implementation.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from lidstone.errors import InputError, LidstoneError, TextError
from lidstone.parallel import cores, equal_ranges, over_ranges
from lidstone.progress import progress_bar
from lidstone.text import interning
from lidstone.text.reader import Chunk, Place, line_begin, read_chunks, read_lines
from lidstone.text.source import Source, is_plain, name_of, plain_size
from lidstone.text.tokens import PADDING
from lidstone.text.vocabulary import BOS, EOS, UNK, Vocabulary

Ids = npt.NDArray[np.int32]
Sources = Source | Sequence[Source]
Blank = Literal["skip", "count"]
"""How lines without words are treated: skipped, or counted as empty sentences (`</s>` alone)"""
SEPARATORS = b" \t\r\n"
CHUNK_BYTES = 1 << 18
PARALLEL_BYTES = 1 << 22
"""A smaller file is left to one thread."""


class Batch(NamedTuple):
    """Some lines of a text."""

    ids: Ids
    """the words of each line and then eos; a line without words is eos alone"""
    text: bytes
    """the lines themselves"""


@dataclass(frozen=True)
class Block:
    """Some sentences, and where they end."""

    ids: Ids
    new_words: bytes
    """the words that occur here for the first time, each followed by a line feed"""
    end: Place
    raw: int
    """how many bytes of the file that `end` is in are read, before decompression"""


def read_words(
    sources: Sources,
    vocab: Vocabulary | None = None,
    *,
    blank: Blank = "skip",
    show: bool = False,
    seen: Callable[[bytes], None] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    threads: int | None = None,
) -> tuple[Ids, Vocabulary]:
    r"""Read one text, or several one after the other, as a stream of ids and their vocabulary.

    Without `vocab`, ids are given in order of first appearance after 0 `<unk>` and 1 `</s>`. With it, unknown
    words become `vocab.unk`. `blank="count"` makes a line without words a sentence, too. `show` shows a progress
    bar; `seen` is called with the text, some lines at a time. One large plain file is read by all cores unless
    `threads` says otherwise; the ids are the same.

    >>> import io
    >>> ids, vocab = read_words(io.BytesIO(b"b a b\n\n c <unk>\n"))
    >>> ids.tolist(), vocab.tokens
    ([2, 3, 2, 1, 4, 0, 1], ('<unk>', '</s>', 'b', 'a', 'c'))
    """
    path, threads = _large_file(sources), threads or cores()
    if path and threads > 1 and seen is None:
        try:
            return _read_in_parallel(path, vocab, blank, threads, show, chunk_bytes)
        except LidstoneError:  # one thread raises it with the right line number
            pass
    reader = WordReader(vocab, blank)
    for chunk in _chunks_read(reader, sources, show, chunk_bytes, keep=True):
        if seen is not None:
            seen(chunk.data)
    return reader.ids, vocab or reader.vocabulary()


def read_batches(
    sources: Sources,
    vocab: Vocabulary | None,
    *,
    show: bool = False,
    chunk_bytes: int = 1 << 20,
    prompt: bool = False,
    begin: Place | None = None,
    stop: int | None = None,
) -> Iterator[Batch]:
    r"""Read texts some lines at a time, in constant memory; lines without words are included; `prompt` as they arrive.

    Of one text, `begin` and `stop` are where lines begin and stop.

    >>> import io
    >>> [batch.ids.tolist() for batch in read_batches(io.BytesIO(b"a\n\nz\n"), Vocabulary.from_words(["a"]))]
    [[2, 1, 1, 0, 1]]
    """
    reader = WordReader(vocab, "count")
    where = begin, stop
    for chunk in _chunks_read(reader, sources, show, chunk_bytes, keep=False, prompt=prompt, where=where):
        yield Batch(reader.take(), chunk.data)


def read_blocks(
    sources: Sequence[Source],
    tokens: int,
    vocab: Vocabulary | None = None,
    *,
    blank: Blank = "skip",
    start: Place | None = None,
    stop: int | None = None,
    known: bytes = b"",
) -> Iterator[Block]:
    r"""Blocks of about `tokens` tokens, but at least one chunk of text; `known` are the words before `start`.

    The ids are those of `read_words`. A file that changes while it is read is an error.

    >>> import io
    >>> [(block.ids.tolist(), block.new_words) for block in read_blocks([io.BytesIO(b"b a b\nc\n")], tokens=10)]
    [([2, 3, 2, 1, 4, 1], b'b\na\nc\n')]
    """
    reader = WordReader(vocab, blank)
    for chunk in read_chunks(io.BytesIO(known), chunk_bytes=CHUNK_BYTES):  # gives them the same ids as before
        reader.read(chunk.data, "the words so far", 0)
        reader.take()
    arena = int(reader.state[4])
    for chunk in read_chunks(sources, start, stop=stop, chunk_bytes=CHUNK_BYTES, watch=True):
        reader.read(chunk.data, chunk.name, chunk.begin.line)
        if len(reader.ids) >= tokens:
            yield Block(reader.take(), reader.arena[arena : reader.state[4]].tobytes(), chunk.end, chunk.raw)
            arena = int(reader.state[4])
    if len(reader.ids):
        yield Block(reader.take(), reader.arena[arena : reader.state[4]].tobytes(), Place(len(sources)), 0)


def words_of(text: bytes) -> Vocabulary:
    """The vocabulary of words in order of appearance, each followed by a line feed."""
    return Vocabulary.from_words(text.decode().split("\n")[:-1])


def _chunks_read(
    reader: WordReader,
    sources: Sources,
    show: bool,
    chunk_bytes: int,
    *,
    keep: bool,
    prompt: bool = False,
    where: tuple[Place | None, int | None] = (None, None),
) -> Iterator[Chunk]:
    """Let the reader read all sources, and yield the text that it has just read; `keep` if all ids are kept."""
    for source in _each(sources):
        size = plain_size(source)
        reader.expect(size or 0 if keep else 0)
        with progress_bar(size, f"reading {name_of(source)}", show=show, unit="bytes") as advance:
            for chunk in read_chunks(source, where[0], stop=where[1], chunk_bytes=chunk_bytes, prompt=prompt):
                reader.read(chunk.data, chunk.name, chunk.begin.line)
                yield chunk
                advance(len(chunk.data))


def _large_file(sources: Sources) -> Path | None:
    """The file, if there is only one, and it is large and plain."""
    only = sources[0] if isinstance(sources, (list, tuple)) and len(sources) == 1 else sources
    size = plain_size(only) if isinstance(only, (str, Path)) else None
    return Path(only) if size and size >= PARALLEL_BYTES and is_plain(only) else None  # type: ignore[arg-type]


def _read_in_parallel(
    path: Path, vocab: Vocabulary | None, blank: Blank, threads: int, show: bool, chunk_bytes: int
) -> tuple[Ids, Vocabulary]:
    """Each thread reads a range of lines with its own table of words.

    Then the words of the second range are looked up in the table of the first, in the order in which they appeared, and
    so on: this gives the same ids as a single reader.
    """
    size = path.stat().st_size
    ranges = equal_ranges(size, threads, chunk_bytes)
    with progress_bar(size, f"reading {path}", show=show, unit="bytes") as advance, ThreadPoolExecutor(threads) as pool:

        def read(bounds: tuple[int, int]) -> WordReader:
            reader = WordReader(vocab, blank)
            reader.expect(bounds[1] - bounds[0])
            begin, stop = Place(0, line_begin(path, bounds[0])), None if bounds[1] == size else bounds[1]
            for chunk in read_chunks(path, begin, stop=stop, chunk_bytes=chunk_bytes):
                reader.read(chunk.data, str(path), 0)
                advance(len(chunk.data))
            return reader

        readers = list(pool.map(read, ranges))
    return _joined(readers, fixed=vocab is not None), vocab or readers[0].vocabulary()


def _joined(readers: list[WordReader], *, fixed: bool) -> Ids:
    """The ids of all readers, numbered by the first one, which adds the words of the others to its table."""
    first, *others = readers
    sizes = [len(reader.ids) for reader in readers]
    ids = np.empty(sum(sizes), np.int32)
    end = sizes[0]
    for reader, size in zip(others, sizes[1:], strict=True):
        if fixed:
            ids[end : end + size] = reader.ids
        else:
            _renumber(reader.ids, first.learn(reader.new_words), ids[end : end + size])
        end += size
    ids[: sizes[0]] = first.ids
    return ids


def _renumber(ids: Ids, numbers: Ids, found: Ids) -> None:
    """Let found = numbers[ids], with all cores and without a copy of the ids."""
    over_ranges(lambda start, stop: interning.renumber(ids[start:stop], numbers, found[start:stop]), len(ids))


def slow_read_words(
    sources: Sources, vocab: Vocabulary | None = None, *, blank: Blank = "skip"
) -> tuple[Ids, Vocabulary]:
    """The reference implementation of `read_words`: split, and look up in a dictionary."""
    reserved, known = _reserved_words(vocab), None if vocab is None or vocab.unk is not None else vocab.index
    sentences = []
    for source in _each(sources):
        for number, line in enumerate(read_lines(source), start=1):
            words = split_words(line)
            for word in words:
                if word in reserved or (known is not None and word not in known):
                    raise _word_error(word, name_of(source), number, word in reserved)
            if words or blank == "count":
                sentences.append(words)
    vocab = vocab or Vocabulary.from_words(dict.fromkeys(word for words in sentences for word in words))
    stream = [token for words in sentences for token in (*vocab.encode(words), vocab.eos)]
    return np.array(stream, dtype=np.int32), vocab


def split_words(line: str) -> list[str]:
    r"""The words of a line.

    >>> split_words(" a\tb\x0bc\r")
    ['a', 'b\x0bc']
    """
    return [word for word in line.translate(_TO_SPACES).split(" ") if word]


_TO_SPACES = str.maketrans("\t\r", "  ")


class WordReader:
    """The table of words and the ids read so far; all grow by doubling."""

    def __init__(self, vocab: Vocabulary | None, blank: Blank = "skip") -> None:
        if blank not in get_args(Blank):
            raise InputError(f"blank={blank!r} is unknown", hint="choose skip or count")
        self.blank = blank == "count"
        known, self.meaning = _known_words(vocab)
        self.fixed, self.eos = vocab is not None, 1 if vocab is None else vocab.eos
        self.unknown = -1 if vocab is None or vocab.unk is None else vocab.unk
        joined = b"\n".join((*known, b""))
        self.state = np.array([0, 0, 0, len(known), len(joined)], dtype=np.int64)
        self.arena = np.frombuffer(joined + bytes(8), dtype=np.uint8).copy()
        self.starts = np.cumsum([0, *(len(word) + 1 for word in known)], dtype=np.int64)
        self.all_ids = np.empty(1 << 16, dtype=np.int32)
        self._enlarge_table()

    @property
    def ids(self) -> Ids:
        """The ids read so far."""
        return self.all_ids[: self.state[1]]

    def expect(self, size: int) -> None:
        """Reserve memory for the ids of `size` bytes of text, at 4 bytes a word; unused memory costs nothing."""
        self.all_ids = _grown(self.all_ids, int(self.state[1]) + size // 4)

    def read(self, chunk: bytes, name: str, lines: int) -> None:
        """Append the ids of whole lines; for errors, the source's name and how many lines came before."""
        end = b"" if chunk.endswith(b"\n") else b"\n"
        text = np.frombuffer(b"".join((chunk, end, PADDING)), dtype=np.uint8)
        self._reserve(text.size)
        self.state[interning.POSITION] = 0
        while status := self._intern(text):
            if status != interning.FULL:
                position = int(self.state[interning.POSITION])
                line = lines + chunk.count(b"\n", 0, position) + 1
                raise _word_error(_word_at(chunk, position), name, line, status == interning.RESERVED)
            self._enlarge_table()

    def take(self) -> Ids:
        """The ids read so far; the reader does not keep them."""
        ids = self.ids.copy()
        self.state[1] = self.state[2] = 0
        return ids

    @property
    def new_words(self) -> bytes:
        """The words read, in order, each followed by a line feed; not for a given vocabulary."""
        known = len(b"\n".join((UNK.encode(), EOS.encode(), BOS.encode(), b"")))
        return self.arena[known : self.state[4]].tobytes()

    def learn(self, words: bytes) -> Ids:
        """Add the words of another reader; return this reader's id for each of its ids. No ids are appended."""
        before = int(self.state[1])
        self.read(words.replace(b"\n", b" "), "words", 0)
        ids = np.concatenate([np.array([0, 1], np.int32), self.ids[before:-1]])
        self.state[1] = self.state[2] = before
        return ids

    def vocabulary(self) -> Vocabulary:
        """The words read, in order; the known ones `<unk>`, `</s>`, `<s>` lead the arena."""
        unk, eos, _, *words, _ = self.arena[: self.state[4]].tobytes().decode().split("\n")
        return Vocabulary(len(words) + 2, eos=1, unk=0, tokens=(unk, eos, *words))

    def _intern(self, text: npt.NDArray[np.uint8]) -> int:
        table = interning.WordTable(self.groups, self.arena, self.starts)
        rules = self.fixed, self.unknown, self.eos, self.blank
        meaning = self.meaning.ctypes.data, len(self.meaning)
        written = self.all_ids.ctypes.data, self.state.ctypes.data
        read: int = interning.intern(text.ctypes.data, text.size - 8, table.address, *meaning, *rules, *written)
        return read

    def _reserve(self, size: int) -> None:
        """Enlarge the arrays for a text of `size` bytes, which has fewer than `size` words and sentences."""
        self.all_ids = _grown(self.all_ids, int(self.state[1]) + size)
        if not self.fixed:
            self.arena = _grown(self.arena, int(self.state[4]) + size + 8)

    def _enlarge_table(self) -> None:
        self.groups = interning.empty_table(int(self.state[3]))
        self.starts = _grown(self.starts, self.groups.size // 8 * interning.ENTRIES // 2 + 2)
        table = interning.WordTable(self.groups, self.arena, self.starts)
        interning.fill_words(table.address, int(self.state[3]))


def _known_words(vocab: Vocabulary | None) -> tuple[list[bytes], Ids]:
    """The words known at the start and their ids: -1 for those that no text may contain."""
    if vocab is None:
        return [UNK.encode(), EOS.encode(), BOS.encode()], np.array([0, -1, -1], dtype=np.int32)
    meaning = {UNK: -1 if vocab.unk is None else vocab.unk, **vocab.index}
    meaning.update(dict.fromkeys(_reserved_words(vocab), -1))
    return [_as_word(word) for word in meaning], np.array(list(meaning.values()), dtype=np.int32)


def _reserved_words(vocab: Vocabulary | None) -> set[str]:
    """Words that no text may contain: the ends of sentences, and all that are never predicted."""
    reserved = {BOS, EOS}
    if vocab is not None:
        never = {vocab.eos, *vocab.unpredictable}
        reserved.update(word for word, number in vocab.index.items() if number in never)
        reserved.update({UNK} if vocab.unk is None and UNK not in vocab.index else ())
    return reserved


def _as_word(token: str) -> bytes:
    """The bytes of a token, or none if no word of a text can be equal to it."""
    return b"" if set(token) & set(" \t\r\n\0") else token.encode(errors="surrogatepass")


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    if size <= array.size:
        return array
    larger = np.empty(max(size, 2 * array.size), dtype=array.dtype)
    larger[: array.size] = array
    return larger


def _word_at(chunk: bytes, position: int) -> str:
    end = next((i for i in range(position, len(chunk)) if chunk[i] in SEPARATORS), len(chunk))
    return chunk[position:end].decode()


def _word_error(word: str, name: str, line: int, reserved: bool) -> TextError:
    if reserved:
        return TextError(
            f"the text holds the reserved word {word} ({name}, line {line})",
            hint=f"sentence ends are added automatically; remove {word}, or spell it differently",
        )
    return TextError(
        f"{word!r} is not in the vocabulary ({name}, line {line})",
        hint="make the vocabulary with an unknown word, unk=",
    )


def _each(sources: Sources) -> Iterator[Source]:
    if isinstance(sources, (list, tuple)):
        if not sources:
            raise InputError("no text given", hint="name a file, or - for standard input")
        yield from sources
    else:
        yield sources  # type: ignore[misc]
