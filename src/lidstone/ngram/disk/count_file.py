"""Counting text that does not fit in memory: `count_to_file`.

    text -> blocks -> runs -> count file

Blocks are read by one thread and counted by others, each into a file of its own, a run. Then `write_counts` makes one
file of the runs.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone import __version__
from lidstone.errors import InputError
from lidstone.ngram.count import count_stream
from lidstone.ngram.counts import check_thresholds
from lidstone.ngram.disk.executors import ThreadExecutor
from lidstone.ngram.disk.memory import block_tokens, plan, trim
from lidstone.ngram.disk.pieces import load_piece, piece_of, save_piece
from lidstone.ngram.disk.workspace import check_space, workspace
from lidstone.ngram.disk.write_counts import RunFiles, is_complete, write_counts
from lidstone.ngram.trie import check_order
from lidstone.parallel import bounded_lookahead, chunk_size, cores
from lidstone.progress import progress_bar
from lidstone.text.history import sentence_stream
from lidstone.text.reader import Place, read_chunks
from lidstone.text.source import Source, stamp
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, Block, Ids, read_blocks, words_of


def count_to_file(
    sources: Sequence[Source],
    order: int,
    output: str | Path,
    *,
    memory: int,
    vocab: Vocabulary | None = None,
    temporary: str | Path | None = None,
    workers: int | None = None,
    thresholds: Sequence[int] | None = None,
    blank: Blank = "skip",
    show: bool = False,
) -> None:
    """Count the words of texts into a file, in about `memory` bytes; the file is that of `count_text(...)` and `save`.

    Temporary files stand in `temporary`, or beside the output. They are removed at the end, however it ends; after
    a kill, the same call goes on where the last one was.
    """
    check_order(order)
    limits = check_thresholds(thresholds or [0], order)
    target, workers = Path(output), workers or cores()
    with workspace(
        target, {**count_identity(sources, order, vocab), "blank": blank}, Path(temporary) if temporary else None
    ) as folder:
        check_space(folder, temporary_bytes(sources, order))
        writer = RunWriter(folder, order, vocab, workers, blank)
        tokens = chunk_size(tokens_of(sources), block_tokens(plan(memory), order, workers), workers)
        with progress_bar(bytes_of(sources), "counting blocks", show=show, unit="bytes") as advance:
            found = writer.write(sources, tokens, _on_block(sources, advance))
        runs, executor = RunFiles(_files(folder)), ThreadExecutor(workers)
        options: dict[str, Any] = {"memory": memory, "thresholds": limits, "show": show}
        write_counts(runs, folder, found, order, sum_unigrams(folder, found), target, executor, **options)


def count_identity(sources: Sequence[Source], order: int, vocab: Vocabulary | None) -> dict[str, object]:
    """What must be the same for a count to go on; text that is no file is never the same."""
    stamps = [stamp(source) or ["no file", uuid.uuid4().hex] for source in sources]
    words = None if vocab is None else vocab.fingerprint
    return {"sources": stamps, "order": order, "vocabulary": words, "lidstone": __version__}


def _on_block(sources: Sequence[Source], advance: Callable[[float], None]) -> Callable[[Block], None]:
    """A function that advances a bar of bytes to the end of a block."""
    sizes, done = [(stamp(source) or ("", 0, 0))[1] for source in sources], [0]

    def move_bar(block: Block) -> None:
        now = sum(sizes[: block.end.source]) + block.raw
        advance(now - done[0])
        done[0] = now

    return move_bar


@dataclass(frozen=True)
class RunWriter:
    """Counts the blocks of a text into the files run-0, run-1, ... of a folder."""

    folder: Path
    order: int
    vocab: Vocabulary | None
    workers: int
    blank: Blank = "skip"

    def write(self, sources: Sequence[Source], tokens: int, on_block: Callable[[Block], None]) -> Vocabulary:
        """Count all sources from the folder's last block on, calling `on_block` after each; return the vocabulary."""
        number, known, place = self.progress()
        words, size = [known], known.count(b"\n") + 2  # <unk> and </s> are there from the start
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

    def progress(self) -> tuple[int, bytes, Place]:
        """How many complete runs the folder has; their words in order, a line feed after each; where they end.

        Where the vocabulary is given, there are no words. The files after the first gap are removed.
        """
        runs, words, place = 0, [], Place()
        while is_complete(self._path(runs)):
            _, extra = load_piece(self._path(runs))
            words.append(extra["new_words"].tobytes())
            place = Place(*map(int, extra["end"]))
            runs += 1
        for path in self.folder.glob("run-*"):
            if int(path.stem.split("-")[1]) >= runs:
                path.unlink()
        return runs, b"".join(words), place

    def _path(self, number: int) -> Path:
        return self.folder / f"run-{number}.safetensors"

    def _count(self, block: Block, number: int, vocab: Vocabulary) -> None:
        words = {"new_words": np.frombuffer(block.new_words, np.uint8), "end": np.array(astuple(block.end))}
        write_run(block.ids, vocab, self.order, self._path(number), words)
        trim()


def write_run(ids: Ids, vocab: Vocabulary, order: int, path: Path, extra: Mapping[str, NDArray[Any]]) -> None:
    """Count a block into a file, with its unigrams and other arrays beside it."""
    stream = sentence_stream(ids, vocab)
    trie, counts = count_stream(stream, vocab.size, order, eos=vocab.eos, threads=1)
    save_piece(piece_of(trie, counts), path, {"unigrams": counts[: vocab.size + 1], **extra})


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


SAMPLE_BYTES = 1 << 20
NGRAMS_PER_TOKEN = 0.75
"""Distinct n-grams per token and order above the first, in a block of some million words."""
BYTES_PER_NGRAM = 12 + 12
"""Word, count and offset: once in a run, once in a piece."""


def bytes_of(sources: Sequence[Source]) -> int | None:
    """The size of all files together, compressed as they are; None if one is no file."""
    stamps = [stamp(source) for source in sources]
    return None if None in stamps else sum(known[1] for known in stamps if known)


def temporary_bytes(sources: Sequence[Source], order: int) -> float:
    """About how much space runs and pieces take; 0 where the size of the text is not known.

    >>> temporary_bytes([], order=3)
    0.0
    """
    return tokens_of(sources) * (order - 1) * NGRAMS_PER_TOKEN * BYTES_PER_NGRAM


def tokens_of(sources: Sequence[Source]) -> float:
    """About how many tokens the text has; 0 where its size is not known."""
    size = bytes_of(sources)
    return size * _tokens_per_byte(sources) if size else 0.0


def _tokens_per_byte(sources: Sequence[Source]) -> float:
    """Tokens per byte of the file, compressed or not, at the start of the first file that has any."""
    for source in sources:
        with Path(source).open("rb") as file:  # type: ignore[arg-type]
            chunks = list(itertools.islice(read_chunks(file, chunk_bytes=SAMPLE_BYTES // 4), 4))
            if chunks:
                tokens = sum(len(chunk.data.split()) + chunk.data.count(b"\n") for chunk in chunks)
                return tokens / max(file.tell(), 1)
    return 0.0
