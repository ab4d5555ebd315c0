"""Counting text that does not fit in memory: `count_to_file`."""

from __future__ import annotations

import functools
import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lidstone import __version__
from lidstone.errors import FileFormatError
from lidstone.ngram.counts import check_thresholds
from lidstone.ngram.disk.buckets import CountedRun, boundaries, copies
from lidstone.ngram.disk.estimate import bytes_of, temporary_bytes, tokens_of
from lidstone.ngram.disk.memory import block_tokens, bucket_nodes, chunk_size, plan, trim
from lidstone.ngram.disk.merging import merge_within
from lidstone.ngram.disk.output.assembly import Parts, count_type, write_counts
from lidstone.ngram.disk.output.dropping import drop_to_file
from lidstone.ngram.disk.pieces import Piece, load_piece, save_piece
from lidstone.ngram.disk.runs import RunWriter, open_runs, sum_unigrams
from lidstone.ngram.disk.workspace import check_space, workspace
from lidstone.ngram.trie import check_order
from lidstone.parallel import cores
from lidstone.progress import progress_bar
from lidstone.text.source import Source, stamp
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, Block

OpenRuns = Callable[[], list[CountedRun]]


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
        target, {**_identity(sources, order, vocab), "blank": blank}, Path(temporary) if temporary else None
    ) as folder:
        check_space(folder, temporary_bytes(sources, order))
        writer = RunWriter(folder, order, vocab, workers, blank)
        tokens = chunk_size(tokens_of(sources), block_tokens(plan(memory), order, workers), workers)
        with progress_bar(bytes_of(sources), "counting blocks", show=show, unit="bytes") as advance:
            found = writer.write(sources, tokens, _on_block(sources, advance))
        unigrams = sum_unigrams(folder, found)
        opened = functools.partial(open_runs, folder)
        whole = folder / "whole.safetensors" if any(limits) else target
        finish(opened, folder, found, order, unigrams, whole, memory=memory, workers=workers, show=show)
        if any(limits):
            drop_to_file(whole, target, limits, folder, memory=memory, workers=workers)


def finish(
    opened: OpenRuns,
    folder: Path,
    vocab: Vocabulary,
    order: int,
    unigrams: NDArray[np.int64],
    output: Path,
    *,
    memory: int,
    workers: int,
    show: bool = False,
) -> None:
    """Merge runs into pieces, bucket by bucket, and write these as one file. `opened` maps the runs into memory."""
    trim()
    limit = bucket_nodes(plan(memory), workers)
    nodes = sum(len(run.piece.words) for run in opened())
    starts = boundaries(opened(), vocab.size, chunk_size(nodes, limit, workers)) if order > 1 else []
    pieces = [folder / f"piece-{_digest(starts)}-{number}.safetensors" for number in range(len(starts))]
    ends = [*starts[1:], None]

    def merge_bucket(number: int) -> None:
        if not _is_complete(pieces[number]):
            parts = copies(opened(), starts[number], ends[number], vocab.bos)
            save_piece(merge_within(parts, order, vocab.bos, limit, count_type(unigrams)), pieces[number])
            trim()

    with progress_bar(len(pieces), "merging", show=show) as advance, ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(merge_bucket, range(len(pieces))):
            advance(1)
    merged = sum(int(_open(path).levels[-1]) for path in pieces)
    parts = Parts(vocab, order, unigrams, [functools.partial(_open, path) for path in pieces])
    with progress_bar(merged, "linking", show=show) as advance:
        write_counts(output, parts, workers=workers, memory=memory, advance=advance)


def _open(path: Path) -> Piece:
    return load_piece(path)[0]


def _is_complete(path: Path) -> bool:
    """Files appear whole or not at all; a checksum guards against a disk that lost power."""
    if not path.is_file():
        return False
    try:
        load_piece(path, verify=True)
    except FileFormatError:
        return False
    return True


def _digest(starts: Sequence[int]) -> str:
    return hashlib.blake2b(repr(list(starts)).encode(), digest_size=4).hexdigest()


def _identity(sources: Sequence[Source], order: int, vocab: Vocabulary | None) -> dict[str, object]:
    """What must be the same for a count to go on; text that is no file is never the same."""
    stamps = [stamp(source) or ["no file", uuid.uuid4().hex] for source in sources]
    words = None if vocab is None else vocab.fingerprint
    return {"sources": stamps, "order": order, "vocabulary": words, "lidstone": __version__}


def _on_block(sources: Sequence[Source], advance: Callable[[float], None]) -> Callable[[Block], None]:
    """A function that advances a bar of bytes to the end of a block."""
    sizes, done = list(_sizes(sources)), [0]

    def move_bar(block: Block) -> None:
        now = sum(sizes[: block.end.source]) + block.raw
        advance(now - done[0])
        done[0] = now

    return move_bar


def _sizes(sources: Sequence[Source]) -> Iterator[int]:
    for source in sources:
        known = stamp(source)
        yield known[1] if known else 0
