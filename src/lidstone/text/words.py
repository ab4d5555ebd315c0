"""Text to ids: words are what stands between spaces, tabs and line ends; a line is a sentence.

Separators are space, tab, carriage return and line feed, as for KenLM; other Unicode spaces belong to
words. Empty lines are skipped. The stream of ids holds, for each sentence, its words and then eos; `<s>` is
not stored. Memory is that of the ids and the vocabulary: the text passes in chunks. `slow_read_words` says
the same in a few plain lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lidstone.errors import InputError, TextError
from lidstone.progress import progress_bar
from lidstone.text.corpora import Source, read_chunks, read_lines
from lidstone.text.streams import COMPRESSED, name_of
from lidstone.text.vocabulary import BOS, EOS, UNK, Vocabulary

Ids = npt.NDArray[np.int32]
Sources = Source | Sequence[Source]


def read_words(
    sources: Sources,
    vocab: Vocabulary | None = None,
    *,
    show: bool = False,
    seen: Callable[[bytes], None] | None = None,
    chunk_bytes: int = 1 << 18,
) -> tuple[Ids, Vocabulary]:
    r"""Read one text, or several one after the other, as a stream of ids and their vocabulary.

    Without `vocab`, ids are given in order of first appearance after 0 `<unk>` and 1 `</s>`. With it, unknown
    words become `vocab.unk`. `show` asks for a progress bar; `seen` is given the text, some lines at a time.

    >>> import io
    >>> ids, vocab = read_words(io.BytesIO(b"b a b\n\n c <unk>\n"))
    >>> ids.tolist(), vocab.tokens
    ([2, 3, 2, 1, 4, 0, 1], ('<unk>', '</s>', 'b', 'a', 'c'))
    """
    reader = WordReader(vocab)
    for source in _each(sources):
        size = _plain_size(source)
        reader.expect(size or 0)
        with progress_bar(size, f"reading {name_of(source)}", show=show, unit="bytes") as advance:
            lines = 0
            for chunk in read_chunks(source, chunk_bytes):
                reader.read(chunk, name_of(source), lines)
                if seen is not None:
                    seen(chunk)
                lines += chunk.count(b"\n")
                advance(len(chunk))
    return reader.ids, vocab or reader.vocabulary()


def slow_read_words(sources: Sources, vocab: Vocabulary | None = None) -> tuple[Ids, Vocabulary]:
    """What `read_words` equals: split, and look up in a dictionary."""
    separators = str.maketrans("\t\r", "  ")
    lines = (line.translate(separators).split(" ") for source in _each(sources) for line in read_lines(source))
    sentences = [words for line in lines if (words := [word for word in line if word])]
    if vocab is None:
        vocab = Vocabulary.from_words(dict.fromkeys(word for words in sentences for word in words))
    stream = [token for words in sentences for token in (*vocab.encode(words), vocab.eos)]
    return np.array(stream, dtype=np.int32), vocab


class WordReader:
    """The table of words and the ids read so far; all grow by doubling."""

    def __init__(self, vocab: Vocabulary | None) -> None:
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
        """Make room for the ids of so many bytes, of words as long as usual; room that is not used costs nothing."""
        self.all_ids = _grown(self.all_ids, int(self.state[1]) + size // 4)

    def read(self, chunk: bytes, name: str, lines: int) -> None:
        """Append the ids of whole lines; for errors, the source's name and how many lines came before."""
        from lidstone.text import interning

        text = np.frombuffer(b"".join((chunk, b"\n", bytes(8))), dtype=np.uint8)
        self._make_room(text.size)
        self.state[interning.POSITION] = 0
        while status := self._intern(text):
            if status != interning.FULL:
                raise _refusal(chunk, int(self.state[interning.POSITION]), name, lines, status == interning.RESERVED)
            self._enlarge_table()

    def vocabulary(self) -> Vocabulary:
        """The words read, in order; the known ones `<unk>`, `</s>`, `<s>` lead the arena."""
        words = self.arena[: self.state[4]].tobytes().decode().split("\n")
        return Vocabulary.from_words(words[3:-1])

    def _intern(self, text: npt.NDArray[np.uint8]) -> int:
        from lidstone.text import interning

        table = interning.Table(self.keys, self.slots, self.arena, self.starts)
        return interning.intern(text, table, self.meaning, self.fixed, self.unknown, self.eos, self.all_ids, self.state)

    def _make_room(self, size: int) -> None:
        """A text of `size` bytes has fewer than `size` words and sentences, and words of fewer bytes."""
        self.all_ids = _grown(self.all_ids, int(self.state[1]) + size)
        if not self.fixed:
            self.arena = _grown(self.arena, int(self.state[4]) + size + 8)

    def _enlarge_table(self) -> None:
        from lidstone.text import interning

        slots = max(1 << 12, 1 << (4 * int(self.state[3])).bit_length())
        self.keys, self.slots = np.zeros(slots, dtype=np.uint64), np.zeros(slots, dtype=np.int32)
        self.starts = _grown(self.starts, slots // 2 + 2)
        interning.fill(interning.Table(self.keys, self.slots, self.arena, self.starts), int(self.state[3]))


def _known_words(vocab: Vocabulary | None) -> tuple[list[bytes], Ids]:
    """The words known at the start and the id each stands for: -1 for those that no text may hold."""
    if vocab is None:
        return [UNK.encode(), EOS.encode(), BOS.encode()], np.array([0, -1, -1], dtype=np.int32)
    meaning = dict(vocab.index)
    meaning.setdefault(UNK, -1 if vocab.unk is None else vocab.unk)
    never = {vocab.eos, *vocab.unpredictable}
    reserved = (word for word, number in vocab.index.items() if number in never)
    meaning.update(dict.fromkeys((BOS, EOS, *reserved), -1))
    return [_as_word(word) for word in meaning], np.array(list(meaning.values()), dtype=np.int32)


def _as_word(token: str) -> bytes:
    """The bytes of a token, or none if no word of a text can be equal to it."""
    return b"" if set(token) & set(" \t\r\n\0") else token.encode(errors="surrogatepass")


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    if size <= array.size:
        return array
    larger = np.empty(max(size, 2 * array.size), dtype=array.dtype)
    larger[: array.size] = array
    return larger


def _refusal(chunk: bytes, position: int, name: str, lines: int, reserved: bool) -> TextError:
    word = chunk[position:].split(maxsplit=1)[0].decode()
    line = lines + chunk.count(b"\n", 0, position) + 1
    if reserved:
        return TextError(
            f"the text holds the reserved word {word} ({name}, line {line})",
            hint=f"sentence ends are added by themselves; remove or respell {word}",
        )
    return TextError(
        f"{word!r} is not in the vocabulary ({name}, line {line})",
        hint="give the vocabulary an unknown word, unk=",
    )


def _each(sources: Sources) -> Iterator[Source]:
    if isinstance(sources, (list, tuple)):
        if not sources:
            raise InputError("no text given", hint="name a file, or - for standard input")
        yield from sources
    else:
        yield sources  # type: ignore[misc]


def _plain_size(source: Source) -> int | None:
    """The number of bytes to come, where the size of the file tells it."""
    if isinstance(source, (str, Path)) and str(source) != "-" and Path(source).suffix not in COMPRESSED:
        return Path(source).stat().st_size if Path(source).is_file() else None
    return None
