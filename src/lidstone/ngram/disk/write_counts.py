"""Runs become one count file: `write_counts`.

    runs -> buckets -> pieces -> count file -> suffix links

The runs are merged bucket by bucket, each into a piece. Buckets are ranges in the order of the trie, so each array of
the file is the concatenation, order by order, of what the pieces have. Then the suffix links of the whole are found
(`links`). Every step is a task over a range, which writes to files; here only ranges and totals are known. Node ids
take 32 bits, or 64 where there are too many nodes; counts likewise.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lidstone.errors import LidstoneError
from lidstone.files import atomic_write
from lidstone.ngram import count
from lidstone.ngram.disk.derive import drop_to_file
from lidstone.ngram.disk.executors import Executor
from lidstone.ngram.disk.links import write_links
from lidstone.ngram.disk.memory import bucket_nodes, trim
from lidstone.ngram.disk.merge import merge_within
from lidstone.ngram.disk.pieces import (
    SAMPLES,
    Ints,
    PieceSlice,
    boundaries,
    copies,
    load_piece,
    run_lengths,
    sample_keys,
    save_piece,
    whole,
)
from lidstone.ngram.formats.checked_tensors import Part, StreamFile, Target
from lidstone.ngram.formats.safetensors import stream
from lidstone.parallel import chunk_size
from lidstone.progress import progress_bar
from lidstone.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class RunFiles(Sequence[PieceSlice]):
    """The runs of a text, in files that are opened when they are needed."""

    paths: Sequence[Path]

    def open(self) -> RunFiles:
        """The runs themselves."""
        return self

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> PieceSlice:  # type: ignore[override]
        piece, extra = load_piece(self.paths[number])
        return whole(piece, len(extra["unigrams"]) - 1)


def write_counts(
    runs: Sequence[PieceSlice],
    folder: Path,
    vocab: Vocabulary,
    order: int,
    unigrams: NDArray[np.int64],
    output: Path,
    executor: Executor,
    *,
    memory: int,
    thresholds: Sequence[int] = (),
    show: bool = False,
) -> None:
    """Write the sum of runs as a count file; it appears when it is complete. `folder` is for temporary files.

    `unigrams` are the counts of the words and, last, of `<s>`. Thresholds drop n-grams of the whole.
    """
    trim()
    target = folder / "whole.safetensors" if any(thresholds) else output
    limit = bucket_nodes(executor.share(memory))
    job = MergeJob(str(folder), order, vocab.bos, limit, count_type(unigrams))
    starts = bucket_starts(runs, vocab.bos, limit, executor) if order > 1 else []
    with progress_bar(len(starts), "merging", show=show) as advance:
        pieces = []
        for piece in executor.run(functools.partial(merge_bucket, job), _files(runs), runs, _numbered(starts)):
            pieces.append(piece)
            advance(1)
    _write(_Pieces(vocab, order, unigrams, pieces), target, executor, memory, show)
    if any(thresholds):
        drop_to_file(target, output, thresholds, folder, memory=memory, executor=executor)


def _files(runs: Sequence[PieceSlice]) -> RunFiles | None:
    return runs if isinstance(runs, RunFiles) else None


def bucket_starts(runs: Sequence[PieceSlice], bos: int, limit: int, executor: Executor) -> list[int]:
    """Keys at which buckets begin: of few n-grams all are looked at, else of each bucket some."""
    numbers = [(number,) for number in range(len(runs))]
    sizes = list(executor.run(_size_of_run, _files(runs), runs, numbers))
    size = chunk_size(sum(sizes), limit, executor.workers)
    step = max(1, size // SAMPLES)
    sample = functools.partial(_sample_run, bos, step)
    keys = np.concatenate(list(executor.run(sample, _files(runs), runs, numbers)))
    return boundaries(keys, size if step == 1 else SAMPLES - SAMPLES // 4)  # a sample may be wrong by as much


def _size_of_run(runs: Sequence[PieceSlice], number: int) -> int:
    return runs[number].size


def _sample_run(bos: int, step: int, runs: Sequence[PieceSlice], number: int) -> NDArray[np.int64]:
    return sample_keys(runs[number], bos, step, number)


def _numbered(starts: Sequence[int]) -> Iterator[tuple[str, int, int | None]]:
    """Name and range of each bucket; names tell the buckets of other ranges apart."""
    digest = hashlib.blake2b(repr(list(starts)).encode(), digest_size=4).hexdigest()
    for number, (start, end) in enumerate(zip_longest(starts, starts[1:])):
        yield f"piece-{digest}-{number}.safetensors", start, end


@dataclass(frozen=True)
class MergeJob:
    """What the merging of all buckets has in common."""

    folder: str
    order: int
    bos: int
    limit: int
    """how many n-grams may be in memory"""
    counts: type[np.signedinteger]


class PieceFacts(NamedTuple):
    """What is known of a piece in a file."""

    path: Path
    sizes: NDArray[np.int64]
    """how many n-grams of each order from 2 on"""
    heads: Ints
    """the words that 2-grams begin with"""
    lengths: Ints
    """and how many each"""


def merge_bucket(job: MergeJob, runs: Sequence[PieceSlice], name: str, start: int, end: int | None) -> PieceFacts:
    """Merge what all runs have of a bucket into a file, unless it is there already."""
    path = Path(job.folder) / name
    if not is_complete(path):
        parts = copies(runs, start, end, job.bos)
        save_piece(merge_within(parts, job.order, job.bos, job.limit, job.counts), path)
        del parts
        trim()
    piece, _ = load_piece(path)
    return PieceFacts(path, np.diff(piece.levels), *run_lengths(np.asarray(piece.heads)))


def is_complete(path: Path) -> bool:
    """Files appear whole or not at all; a checksum guards against a disk that lost power."""
    with contextlib.suppress(LidstoneError):
        load_piece(path, verify=True)
        return True
    return False


@dataclass(frozen=True)
class _Pieces:
    """What a count file is made of."""

    vocab: Vocabulary
    order: int
    unigrams: NDArray[np.int64]
    pieces: Sequence[PieceFacts]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many n-grams each piece has of each order from 2 on."""
        return np.array([piece.sizes for piece in self.pieces], np.int64).reshape(len(self.pieces), self.order - 1)

    def first_of_words(self) -> NDArray[np.int64]:
        """Where the 2-grams of each word begin."""
        if self.order == 1:
            return np.empty(0, np.int64)
        children = np.zeros(self.vocab.size + 1, np.int64)
        for piece in self.pieces:
            children[piece.heads] += piece.lengths  # a piece has each word once
        return len(children) + np.cumsum(children) - children


def node_type(nodes: int) -> type[np.signedinteger]:
    """The integer that numbers so many nodes."""
    return np.int32 if nodes <= count.MAX_NODES else np.int64


def count_type(unigrams: NDArray[np.int64]) -> type[np.signedinteger]:
    """The integer that holds every count and every sum of counts of a text with these words."""
    return np.int32 if int(unigrams.sum()) <= count.MAX_NODES else np.int64


def _write(found: _Pieces, path: Path, executor: Executor, memory: int, show: bool) -> None:
    levels = np.cumsum([0, found.vocab.size + 1, *found.sizes.sum(axis=0)])
    nodes = node_type(int(levels[-1]))
    types: dict[str, DTypeLike] = {
        "words": np.int32,
        "suffixes": nodes,
        "first": nodes,
        "counts": count_type(found.unigrams),
    }
    with (
        atomic_write(path) as temporary,
        stream(temporary, "counts", found.vocab, levels, types, {"thresholds": ()}) as file,
        progress_bar(int(levels[-1] - levels[1]), "linking", show=show) as advance,
    ):
        _write_levels(file, found, levels, executor)
        write_links(file, levels, executor, memory, advance)


def _write_levels(file: StreamFile, found: _Pieces, levels: NDArray[np.int64], executor: Executor) -> None:
    file.append({"words": np.arange(levels[1]), "counts": found.unigrams, "first": found.first_of_words()})
    write = functools.partial(write_level, {name: file.target(name) for name in ("words", "counts", "first")})
    begins = np.column_stack(
        [levels[1:-1] + np.cumsum(found.sizes, axis=0) - found.sizes, levels[-1:].repeat(len(found.pieces))]
    )
    tasks = (
        (piece.path, order, *begins[number, order - 2 : order].tolist())
        for order in range(2, found.order + 1)
        for number, piece in enumerate(found.pieces)
    )
    for parts in executor.run(write, None, None, tasks):
        file.take(parts)
    file.append({"first": levels[-1:]})


def write_level(
    targets: Mapping[str, Target], _: None, path: Path, order: int, begin: int, below: int
) -> dict[str, Part]:
    """Write the n-grams of one order of a piece: where they begin in the file, and those of the next order."""
    piece = load_piece(path)[0]
    level = piece.level(order)
    arrays: dict[str, Ints] = {"words": piece.words[level], "counts": piece.counts[level]}
    if order < piece.order:
        shift = below - int(piece.levels[order - 1]) - piece.base
        arrays["first"] = np.add(piece.first[level], shift, dtype=targets["first"].dtype)
    return {name: targets[name].write(begin, values) for name, values in arrays.items()}
