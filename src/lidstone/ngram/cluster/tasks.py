"""What the workers of a cluster do: words of a split, counts of a block by bucket, sum of a bucket.

Each takes and gives rows. An error in the input comes back as a row, so that the driver can raise it as it is; lost
workers are Ray's business, which runs their tasks again: all tasks give the same rows whenever they run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lidstone import __version__
from lidstone.errors import LidstoneError, RunError
from lidstone.ngram.cluster.rows import COLUMNS, IDS, as_ids, as_piece, as_row, ids_of
from lidstone.ngram.cluster.splits import TextSplit
from lidstone.ngram.counting import count_stream
from lidstone.ngram.disk.merge import merge_within
from lidstone.ngram.disk.pieces import PieceSlice, cut_out, piece_of_trie, save_piece, slices, whole
from lidstone.text.history import sentence_stream
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, read_blocks

Rows = dict[str, Any]


@dataclass(frozen=True)
class CountJob:
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
    """The words and the buckets, known once the text was read."""

    vocab: Vocabulary
    """without strings"""
    ids: Mapping[int, Any]
    """by split, the id of each of its words, or where that is in the object store; empty if the vocabulary was given"""
    starts: list[int]
    """the keys at which buckets begin"""
    folder: str
    """where the pieces go"""
    counts: type[np.signedinteger] = np.int64
    """the type of the sums"""
    left_out: frozenset[int] = frozenset()
    """splits of bad files"""


def guarded(task: Callable[..., Iterator[Rows]], job: CountJob, *rest: Any) -> Callable[[Rows], Iterator[Rows]]:
    """A task that gives an error as a row, and refuses to run under another version of lidstone."""

    def run(batch: Rows) -> Iterator[Rows]:
        try:
            _check_version(job)
            yield from (_as_batch({**BLANK, **row}) for row in task(batch, job, *rest))
        except LidstoneError as error:
            yield _as_batch({**BLANK, "error": f"{error.message}\0{error.hint}"})

    return run


def on_tables(task: Callable[[Rows], Iterator[Rows]]) -> Callable[[Any], Iterator[Rows]]:
    """A task over Arrow tables, whose bytes stay where they are: in the object store."""

    def run(table: Any) -> Iterator[Rows]:
        yield from task({name: _column(table[name]) for name in table.column_names})

    return run


def _column(column: Any) -> Any:
    from pyarrow import types

    in_bytes = types.is_binary(column.type) or types.is_large_binary(column.type)
    return [value.as_buffer() for value in column] if in_bytes else column.to_numpy()


BLANK: Rows = {"error": "", "bad": "", "split": -1, "number": 0, "bucket": -1, "block": "", "file": "", "pairs": 0}
BLANK |= dict.fromkeys((*COLUMNS, *IDS), b"")
"""All rows have all columns: a row with an error passes through every step."""


def _as_batch(row: Rows) -> Rows:
    return {name: np.array([value], object if isinstance(value, bytes) else None) for name, value in row.items()}


def read_split(batch: Rows, job: CountJob, vocab: Vocabulary | None) -> Iterator[Rows]:
    """A row per block of a split: its ids, its new words in order, how often each word of the split occurs in it."""
    for split in _splits(batch):
        try:
            for number, block in enumerate(read_blocks([split.open()], job.tokens, vocab, blank=job.blank)):
                counts = np.bincount(block.ids).astype(np.int64).tobytes()
                row = {"split": split.number, "number": number, "words": block.new_words, "counts": counts}
                yield {**row, **as_ids(block.ids)}
            split.check()
        except LidstoneError as error:
            if not job.skip_bad:
                raise
            yield {"split": split.number, "bad": error.message}


def count_block(batch: Rows, job: CountJob, space: Any) -> Iterator[Rows]:
    """A row per block and bucket: the n-grams of all orders that belong there."""
    known: Space = _fetched(space)
    bos = known.vocab.bos
    for row in np.flatnonzero(~np.isin(batch["split"], list(known.left_out))).tolist():
        ids, split = ids_of(batch, row), int(batch["split"][row])
        stream = sentence_stream(_fetched(known.ids[split])[ids] if known.ids else ids, known.vocab)
        trie, counts = count_stream(stream, known.vocab.size, job.order, eos=known.vocab.eos, threads=1)
        run = whole(piece_of_trie(trie, counts), bos)
        for bucket, (begin, end) in enumerate(zip(known.starts, [*known.starts[1:], None], strict=True)):
            (part,) = slices([run], begin, end, bos)
            if part.size:
                piece = cut_out(run.piece, part.starts, part.stops)
                yield {"bucket": bucket, "block": f"{batch['split'][row]}.{batch['number'][row]}", **as_row(piece)}


def add_bucket(batch: Rows, job: CountJob, space: Any) -> Iterator[Rows]:
    """Merge the rows of each bucket in a batch into a file; says which blocks it holds and how many pairs."""
    known: Space = _fetched(space)
    for row in np.flatnonzero(batch["error"] != ""):
        message, hint = batch["error"][row].split("\0")
        raise LidstoneError(message, hint=hint)
    for bucket in np.unique(batch["bucket"]).tolist():
        rows = np.flatnonzero(batch["bucket"] == bucket).tolist()
        blocks = sorted(str(block) for block in batch["block"][rows])
        parts: list[PieceSlice] = [whole(as_piece(batch, row), known.vocab.bos) for row in rows]
        piece = merge_within(parts, job.order, known.vocab.bos, job.nodes, known.counts)
        name = f"part-{bucket:05d}-{hashlib.blake2b(' '.join(blocks).encode(), digest_size=6).hexdigest()}.safetensors"
        save_piece(piece, Path(known.folder) / name)
        pairs = int(piece.counts[piece.level(2)].sum())
        yield {"bucket": bucket, "block": " ".join(blocks), "file": name, "pairs": pairs}


def _check_version(job: CountJob) -> None:
    if job.version != __version__:
        raise RunError(
            f"a worker has lidstone {__version__}, the driver {job.version}",
            hint="install the same version on all nodes",
        )


def _splits(batch: Rows) -> Iterator[TextSplit]:
    for number, name, column, start, stop, changed in zip(
        *(batch[field].tolist() for field in ("number", "name", "column", "start", "stop", "changed")), strict=True
    ):
        yield TextSplit(number, name, column or None, start, stop, changed)


def _fetched(item: Any) -> Any:
    """The object itself, or what its reference in the object store stands for."""
    import ray

    return ray.get(item) if isinstance(item, ray.ObjectRef) else item
