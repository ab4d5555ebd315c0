"""From text to runs: blocks are read by one thread and counted by others, each into a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError, InputError
from lidstone.ngram.counting import count_stream
from lidstone.ngram.disk.buckets import CountedRun
from lidstone.ngram.disk.memory import trim
from lidstone.ngram.disk.pieces import load_piece, piece_of_trie, save_piece
from lidstone.parallel import bounded_lookahead
from lidstone.text.history import sentence_stream
from lidstone.text.reader import Place
from lidstone.text.source import Source
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, Block, read_blocks, words_of


@dataclass(frozen=True)
class Progress:
    """How far reading has come."""

    runs: int
    words: bytes
    """all words so far, in order, each followed by a line feed; empty where the vocabulary is given"""
    place: Place


class RunWriter:
    """Counts the blocks of a text into the files run-0, run-1, ... of a folder."""

    def __init__(self, folder: Path, order: int, vocab: Vocabulary | None, workers: int, blank: Blank = "skip") -> None:
        self.folder, self.order, self.vocab, self.workers, self.blank = folder, order, vocab, workers, blank

    def write(self, sources: Sequence[Source], tokens: int, on_block: Callable[[Block], None]) -> Vocabulary:
        """Count all sources from the folder's last block on, calling `on_block` after each; return the vocabulary."""
        progress = self.progress()
        words, number = [progress.words], progress.runs
        size = progress.words.count(b"\n") + 2  # <unk> and </s> are there from the start
        place, known = progress.place, progress.words
        blocks = read_blocks(sources, tokens, self.vocab, blank=self.blank, start=place, known=known)
        with ThreadPoolExecutor(self.workers) as pool:

            def start() -> Iterator[Future[None]]:
                nonlocal size, number
                for block in blocks:
                    words.append(block.new_words)
                    size += block.new_words.count(b"\n")
                    yield pool.submit(self._count, block, number, self.vocab or Vocabulary(size, eos=1, unk=0))
                    number += 1
                    on_block(block)

            for counted in bounded_lookahead(start(), self.workers):
                counted.result()
        if not number:
            raise InputError("there is nothing to count: no sentence has a token", hint="give some text")
        return self.vocab or words_of(b"".join(words))

    def progress(self) -> Progress:
        """What complete runs the folder has; the files after the first gap are removed."""
        runs, words, place = 0, [], Place()
        while (path := self._path(runs)).is_file():
            try:
                _, extra = load_piece(path, verify=True)
            except FileFormatError:
                break
            words.append(extra["new_words"].tobytes())
            place = Place(*map(int, extra["end"]))
            runs += 1
        for path in self.folder.glob("run-*"):
            if int(path.stem.split("-")[1]) >= runs:
                path.unlink()
        return Progress(runs, b"".join(words), place)

    def _path(self, number: int) -> Path:
        return self.folder / f"run-{number}.safetensors"

    def _count(self, block: Block, number: int, vocab: Vocabulary) -> None:
        stream = sentence_stream(block.ids, vocab)
        trie, counts = count_stream(stream, vocab.size, self.order, eos=vocab.eos, threads=1)
        extra: dict[str, NDArray[Any]] = {
            "unigrams": counts[: vocab.size + 1],
            "new_words": np.frombuffer(block.new_words, np.uint8),
            "end": np.array(astuple(block.end)),
        }
        save_piece(piece_of_trie(trie, counts), self._path(number), extra)
        del stream, trie, counts, extra
        trim()


def open_runs(folder: Path) -> list[CountedRun]:
    """The runs of a folder, mapped into memory."""
    return [CountedRun(piece, len(extra["unigrams"]) - 1) for piece, extra in map(load_piece, _files(folder))]


def sum_unigrams(folder: Path, vocab: Vocabulary) -> NDArray[np.int64]:
    """How often each word occurs, and last how many sentences there are."""
    total = np.zeros(vocab.size + 1, np.int64)
    for path in _files(folder):
        unigrams = load_piece(path)[1]["unigrams"]
        total[: len(unigrams) - 1] += unigrams[:-1]
        total[-1] += unigrams[-1]
    return total


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("run-*"), key=lambda path: int(path.stem.split("-")[1]))
