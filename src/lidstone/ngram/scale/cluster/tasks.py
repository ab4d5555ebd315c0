"""What the workers of a cluster do: words of a split, counts of a split by bucket, sum of a bucket.

Each takes and gives rows. An error in the input comes back as a row, so that the driver can raise it as it is; lost
workers are Ray's business, which runs their tasks again: all tasks give the same rows whenever they run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone import __version__
from lidstone.errors import LidstoneError, RunError
from lidstone.ngram.counting import count_stream
from lidstone.ngram.scale.buckets import Run, slices
from lidstone.ngram.scale.cluster.rows import COLUMNS, as_piece, as_row
from lidstone.ngram.scale.cluster.splits import Split
from lidstone.ngram.scale.merging import Slice, merge_within, whole
from lidstone.ngram.scale.pieces import cut_out, piece_of_trie, save_piece
from lidstone.text.blocks import read_blocks
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.windows import sentence_stream
from lidstone.text.words import Blank

Rows = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What all tasks of one count share."""

    order: int
    tokens: int
    """how many tokens a block may have"""
    nodes: int
    """how many n-grams may be merged at once"""
    skip_bad: bool = False
    blank: Blank = "skip"
    version: str = __version__


@dataclass(frozen=True)
class Space:
    """The words and the buckets, known once the text was read once."""

    vocab: Vocabulary
    starts: list[int]
    """the keys at which buckets begin"""
    folder: str
    """where the pieces go"""
    counts: type[np.signedinteger] = np.int64
    """the type of the sums"""


def guarded(task: Callable[..., Iterator[Rows]], job: Job, *rest: Any) -> Callable[[Rows], Iterator[Rows]]:
    """A task that gives an error as a row, and refuses to run under another version of lidstone."""

    def run(batch: Rows) -> Iterator[Rows]:
        try:
            _check_version(job)
            yield from (_as_batch({**BLANK, **row}) for row in task(batch, job, *rest))
        except LidstoneError as error:
            yield _as_batch({**BLANK, "error": f"{error.message}\0{error.hint}"})

    return run


BLANK: Rows = {"error": "", "bad": "", "split": -1, "bucket": -1, "block": "", "file": "", "pairs": 0}
BLANK |= dict.fromkeys(COLUMNS, b"")
"""All rows have all columns: a row with an error passes through every step."""


def _as_batch(row: Rows) -> Rows:
    return {name: np.array([value], object if isinstance(value, bytes) else None) for name, value in row.items()}


def read_split(batch: Rows, job: Job, vocab: Vocabulary | None) -> Iterator[Rows]:
    """The words of each split in order of appearance, and how often each occurs; `</s>` and sentences too."""
    for split in _splits(batch):
        try:
            words, counts = _words(split, job, vocab)
        except LidstoneError as error:
            if not job.skip_bad:
                raise
            yield {"split": split.number, "bad": error.message}
            continue
        yield {"split": split.number, "words": words, "counts": counts.tobytes()}


def _words(split: Split, job: Job, vocab: Vocabulary | None) -> tuple[bytes, NDArray[np.int64]]:
    found, total = [], np.zeros(0, np.int64)
    for block in read_blocks([split.open()], job.tokens, vocab, blank=job.blank):
        found.append(block.new_words)
        counts = np.bincount(block.ids, minlength=len(total)).astype(np.int64)
        counts[: len(total)] += total
        total = counts
    split.check()
    return b"".join(found), total


def count_split(batch: Rows, job: Job, space: Any) -> Iterator[Rows]:
    """A row per block of a split and bucket: the n-grams of all orders that belong there."""
    known: Space = _fetched(space)
    for split in _splits(batch):
        for number, block in enumerate(read_blocks([split.open()], job.tokens, known.vocab, blank=job.blank)):
            stream = sentence_stream(block.ids, known.vocab)
            trie, counts = count_stream(stream, known.vocab.size, job.order, eos=known.vocab.eos, threads=1)
            run = Run(piece_of_trie(trie, counts), known.vocab.bos)
            for bucket, (begin, end) in enumerate(zip(known.starts, [*known.starts[1:], None], strict=True)):
                (part,) = slices([run], begin, end, known.vocab.bos)
                if part.size:
                    piece = cut_out(run.piece, part.starts, part.stops)
                    yield {"bucket": bucket, "block": f"{split.number}.{number}", **as_row(piece)}
        split.check()


def add_bucket(batch: Rows, job: Job, space: Any) -> Iterator[Rows]:
    """Merge the rows of each bucket in a batch into a file; says which blocks it holds and how many pairs."""
    known: Space = _fetched(space)
    for row in np.flatnonzero(batch["error"] != ""):
        message, hint = batch["error"][row].split("\0")
        raise LidstoneError(message, hint=hint)
    for bucket in np.unique(batch["bucket"]).tolist():
        rows = np.flatnonzero(batch["bucket"] == bucket).tolist()
        blocks = sorted(str(block) for block in batch["block"][rows])
        parts: list[Slice] = [whole(as_piece(batch, row), known.vocab.bos) for row in rows]
        piece = merge_within(parts, job.order, known.vocab.bos, job.nodes, known.counts)
        name = f"part-{bucket:05d}-{hashlib.blake2b(' '.join(blocks).encode(), digest_size=6).hexdigest()}.safetensors"
        save_piece(piece, Path(known.folder) / name)
        pairs = int(piece.counts[piece.level(2)].sum())
        yield {"bucket": bucket, "block": " ".join(blocks), "file": name, "pairs": pairs}


def _check_version(job: Job) -> None:
    if job.version != __version__:
        raise RunError(
            f"a worker has lidstone {__version__}, the driver {job.version}",
            hint="install the same version on all nodes",
        )


def _splits(batch: Rows) -> Iterator[Split]:
    for number, name, column, start, stop, changed in zip(
        *(batch[field].tolist() for field in ("number", "name", "column", "start", "stop", "changed")), strict=True
    ):
        yield Split(number, name, column or None, start, stop, changed)


def _fetched(space: Any) -> Space:
    """The object itself, or what its reference in the object store stands for."""
    if isinstance(space, Space):
        return space
    import ray

    found: Space = ray.get(space)
    return found
