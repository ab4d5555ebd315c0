"""What the workers of a cluster do: words of a split, counts of a block by bucket, sum of a bucket.

Each takes and gives rows. An error in the input comes back as a row, so that the driver can raise it as it is; lost
workers are Ray's business, which runs their tasks again: all tasks give the same rows whenever they run.

Inputs are cut into splits, parts that workers read on their own: whole files, or ranges of large plain ones. A range
holds the lines that begin in it, so every line is in exactly one split, in the order of the text.

Blocks of text, and their n-grams by bucket, travel between workers as columns of bytes, a third of the size. Most
counts and numbers of children are small. They take a byte each; those of 255 and more stand apart, in order. Words take
two bytes likewise: they are numbered as they appear, so the frequent ones have small ids.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone import __version__
from lidstone.errors import InputError, LidstoneError, TextError
from lidstone.ngram.count import count_stream
from lidstone.ngram.disk.memory import chunk_size
from lidstone.ngram.disk.merge import merge_within
from lidstone.ngram.disk.pieces import Ints, Piece, PieceSlice, between, cut_out, piece_of, save_piece, whole
from lidstone.parallel import equal_ranges
from lidstone.ray_cluster import check_version
from lidstone.text.history import sentence_stream
from lidstone.text.inputs import Input
from lidstone.text.reader import FileRange
from lidstone.text.source import Source, is_plain, stamp
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, read_blocks

Rows = dict[str, Any]
COLUMNS = {
    "levels": np.int64,
    "heads": np.int32,
    "words": np.uint16,
    "large_words": np.int32,
    "counts": np.uint8,
    "large_counts": np.int32,
    "children": np.uint8,
    "large_children": np.int32,
}
"""A block has fewer than 2^31 tokens."""
IDS = "ids", "large_ids"


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
            check_version(job.version)
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
                yield {**row, **dict(zip(IDS, (part.tobytes() for part in pack(block.ids, np.uint16)), strict=True))}
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
        packed = zip(IDS, (np.uint16, np.int32), strict=True)
        ids = unpack(*(np.frombuffer(batch[name][row], dtype) for name, dtype in packed))
        split = int(batch["split"][row])
        stream = sentence_stream(_fetched(known.ids[split])[ids] if known.ids else ids, known.vocab)
        trie, counts = count_stream(stream, known.vocab.size, job.order, eos=known.vocab.eos, threads=1)
        run = whole(piece_of(trie, counts), bos)
        for bucket, (begin, end) in enumerate(zip(known.starts, [*known.starts[1:], None], strict=True)):
            part = between(run, begin, end, bos)
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


def _splits(batch: Rows) -> Iterator[TextSplit]:
    for number, name, column, start, stop, changed in zip(
        *(batch[field].tolist() for field in ("number", "name", "column", "start", "stop", "changed")), strict=True
    ):
        yield TextSplit(number, name, column or None, start, stop, changed)


def _fetched(item: Any) -> Any:
    """The object itself, or what its reference in the object store stands for."""
    import ray

    return ray.get(item) if isinstance(item, ray.ObjectRef) else item


SPLIT_BYTES = 1 << 26


@dataclass(frozen=True)
class TextSplit:
    """A part of the text."""

    number: int
    name: str
    column: str | None
    start: int = 0
    stop: int = -1
    """-1 for the end of the file"""
    changed: int = 0
    """when the file was changed last, in nanoseconds; 0 where that is not known"""

    def open(self) -> Source:
        """The lines of this part; an error if the file changed since it was cut."""
        self.check()
        if self.stop < 0:
            return Input(self.name, self.column).open()
        return FileRange(self.name, self.start, self.stop)  # type: ignore[return-value]

    def check(self) -> None:
        """Refuse a file that changed since it was cut."""
        now = stamp(self.name)
        if self.changed and (now is None or now[2] != self.changed):
            hint = "wait until it is written, then count again; all nodes must see the same file"
            raise TextError(f"{self.name} changed while it was read", hint=hint)


def cut(inputs: Sequence[Input], limit: int = SPLIT_BYTES, workers: int = 1) -> list[TextSplit]:
    """The parts of all inputs, in the order of the text: of at most `limit` bytes, and so many that workers are busy.

    >>> [part.name for part in cut([Input("a.gz"), Input("s3://bucket/b")])]
    ['a.gz', 's3://bucket/b']
    """
    if any(item.name == "-" for item in inputs):
        raise InputError("workers cannot read standard input", hint="name files, or count without --engine ray")
    known = [stamp(item.name) or (item.name, 0, 0) for item in inputs]
    size = chunk_size(sum(length for _, length, _ in known), limit, workers)
    found: list[TextSplit] = []
    for item, (_, length, changed) in zip(inputs, known, strict=True):
        uncut = length <= size or item.column is not None or not is_plain(item.name)
        for start, stop in [(0, -1)] if uncut else equal_ranges(length, -(-length // size)):
            found.append(TextSplit(len(found), item.name, item.column, start, stop, changed))
    return found


def as_row(piece: Piece) -> dict[str, bytes]:
    """A piece as columns of bytes."""
    packed = pack(piece.words, np.uint16), pack(piece.counts), pack(np.diff(piece.first))
    arrays = (piece.levels, piece.heads, *itertools.chain.from_iterable(packed))
    pairs = zip(COLUMNS.items(), arrays, strict=True)
    return {name: np.ascontiguousarray(array, dtype).tobytes() for (name, dtype), array in pairs}


def as_piece(batch: dict[str, Any], row: int) -> Piece:
    """The piece of one row of a batch."""
    columns: dict[str, NDArray[Any]] = {name: np.frombuffer(batch[name][row], dtype) for name, dtype in COLUMNS.items()}
    words, counts, children = (
        unpack(columns[name], columns[f"large_{name}"]) for name in ("words", "counts", "children")
    )
    first = np.cumsum(np.append(columns["levels"][1], children)).astype(np.int32)
    return Piece(columns["levels"], columns["heads"], words, counts, first)


def pack(values: Ints, dtype: type[Any] = np.uint8) -> tuple[NDArray[Any], Ints]:
    """Numbers in few bytes, and apart from them those that do not fit.

    >>> [part.tolist() for part in pack(np.array([3, 1000, 1]))]
    [[3, 255, 1], [1000]]
    """
    small = np.minimum(values, np.iinfo(dtype).max).astype(dtype)
    return small, values[small == np.iinfo(dtype).max]


def unpack(small: NDArray[Any], large: Ints) -> NDArray[np.int32]:
    """The numbers that `pack` put into few bytes.

    >>> unpack(*pack(np.array([3, 1000, 1]))).tolist()
    [3, 1000, 1]
    """
    values = small.astype(np.int32)
    values[small == np.iinfo(small.dtype).max] = large
    return values
