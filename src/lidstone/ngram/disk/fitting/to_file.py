"""Fitting counts that do not fit in memory: `fit_to_file`.

    count file -> derived counts (a temporary file) -> discounts -> blocks of histories -> table file

The smoother sees the whole text through its counts of counts and its words (`plan`); then each block of histories gives
rows and backoffs that are written at once. The file has the very bytes of `smoother.fit(counts)` and `save`.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone import __version__
from lidstone.errors import InputError, format_error
from lidstone.files import atomic_write
from lidstone.ngram.counts import Counts
from lidstone.ngram.disk.fitting.arrays import (
    DERIVED,
    TRIE,
    CountArrays,
    CountFiles,
    chunks,
    history_blocks,
)
from lidstone.ngram.disk.fitting.derive import derive_to_file, read_derived
from lidstone.ngram.disk.fitting.engine import Engine, Threads
from lidstone.ngram.disk.memory import chunk_size, format_size, resident
from lidstone.ngram.disk.memory import plan as plan_memory
from lidstone.ngram.disk.output.stream_file import Part, Shape, StreamFile, Target
from lidstone.ngram.disk.pages import PAGE_SHARE, limit_pages
from lidstone.ngram.disk.pieces import Ints
from lidstone.ngram.disk.workspace import check_space, workspace
from lidstone.ngram.formats.checked_tensors import read_arrays, release, verify_arrays
from lidstone.ngram.formats.remote import as_url
from lidstone.ngram.formats.safetensors import load_counts, make_metadata, vocabulary_parts
from lidstone.ngram.formats.validate import check_counts, check_trie
from lidstone.ngram.smoothers.base import make_signature
from lidstone.ngram.smoothers.plan import Fill, Plan, make_plan
from lidstone.parallel import cores
from lidstone.progress import progress_bar

NODE_BYTES = 96
"""Of a block, per history and per follower: rows, backoffs, offsets, and the terms that they are made of."""
COPIED_NODES = 1 << 21
"""Copied at once, from pages of one file to pages of another."""
Advance = Callable[[float], None]


def fit_to_file(
    counts: str | Path,
    output: str | Path,
    smoother: Any,
    *,
    memory: int,
    name: str = "",
    temporary: str | Path | None = None,
    engine: Engine | None = None,
    verify: bool = True,
    show: bool = False,
) -> None:
    """Fit a smoother to a count file, in about `memory` bytes; the file is that of `smoother.fit` and `save`.

    Temporary files stand in `temporary`, or beside the output, and are removed at the end. With a Ray engine, workers
    need them, and the count file, at the same paths; `memory` is then that of each.
    """
    if url := as_url(counts):
        raise InputError(f"{url} cannot be mapped into memory", hint="copy it to a local file first")
    target, engine = Path(output), engine or Threads(cores())
    nodes, pages = _budget(memory, engine)
    files = CountFiles.at(counts)
    place = Path(temporary) if temporary else None
    with workspace(target, {"counts": files.changed, "lidstone": __version__}, place, work="fitting") as folder:
        loaded = load_counts(counts, verify=False)
        with limit_pages(pages, loaded.counts):
            if verify:
                verify_counts(counts, loaded, pages)
            files, loaded = with_derived(loaded, files, folder, nodes=nodes, engine=engine)
            with limit_pages(pages, *_derived_arrays(loaded)):
                _write_table(target, loaded, files, smoother, name or type(smoother).__name__, nodes, engine, show)


def _budget(memory: int, engine: Engine) -> tuple[int, int]:
    """The nodes of a block, and how much this process may occupy before it gives pages back.

    Workers of a cluster have `memory` each, and this process has as much for itself.
    """
    if engine.remote:
        return block_nodes(memory, 0), resident() + memory
    return block_nodes(plan_memory(memory), engine.workers), int(memory * PAGE_SHARE)


def block_nodes(memory: int, workers: int) -> int:
    """How many nodes a block may have if each worker has one and results of as many more wait."""
    return max(1, memory // 2 // ((2 * workers + 1) * NODE_BYTES))


def verify_counts(path: str | Path, counts: Counts, memory: int) -> None:
    """All that `load_counts` checks, of counts that were loaded without it."""
    arrays, metadata = read_arrays(path, verify=False)
    with limit_pages(memory, arrays["counts"]):
        verify_arrays(path, arrays, metadata)
    release(arrays["counts"])
    try:
        check_trie(counts.trie, counts.vocab)
        check_counts(counts)
    except InputError as error:
        raise format_error(path, f"its parts do not fit together ({error})") from error


def with_derived(
    counts: Counts, files: CountFiles, folder: Path, *, nodes: int, engine: Engine
) -> tuple[CountFiles, Counts]:
    """The counts with totals and adjusted counts, which are in the count file or are written to `folder`."""
    if counts.stored is not None:
        return files, counts
    check_space(folder, _derived_bytes(counts), work="fitting")
    files = derive_to_file(counts, files, folder / "derived.safetensors", nodes=nodes, engine=engine)
    return files, replace(counts, stored=read_derived(counts, files, nodes))


def _derived_bytes(counts: Counts) -> int:
    return counts.counts.itemsize * (counts.trie.size + 2 * counts.trie.num_histories)


def _derived_arrays(counts: Counts) -> tuple[Any, ...]:
    return () if counts.stored is None else (counts.stored.adjusted,)


def _write_table(
    target: Path,
    counts: Counts,
    files: CountFiles,
    smoother: Any,
    name: str,
    nodes: int,
    engine: Engine,
    show: bool,
) -> None:
    plan = make_plan(smoother, name, counts)
    signature = make_signature(smoother, plan.name, counts, plan.notes)
    strings, vocabulary = vocabulary_parts(counts.vocab)
    metadata = make_metadata("table", {"vocabulary": vocabulary, "signature": signature})
    shapes = _layout(counts, strings)
    _check_output_space(target.resolve().parent, sum(shape.nbytes for shape in shapes.values()))
    with atomic_write(target) as temporary, progress_bar(counts.trie.size, "fitting", show=show) as advance:
        file = StreamFile(temporary, shapes, metadata)
        try:
            _copy(file, counts, strings)
            _fill(file, counts, files, plan, nodes, engine, advance)
            files.check()
            file.finish()
        finally:
            file.close()


def _check_output_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        hint = "free some space, or write to another disk"
        raise InputError(f"the table takes {format_size(needed)}; {folder} has {format_size(free)}", hint=hint)


def _layout(counts: Counts, strings: Mapping[str, NDArray[Any]]) -> dict[str, Shape]:
    trie, number = counts.trie, np.dtype(np.float64)
    copied: dict[str, Ints] = {
        "levels": trie.levels,
        "words": trie.words,
        "suffixes": trie.suffixes,
        "first": trie.first,
    }
    shapes = {name: Shape(array.dtype, len(array)) for name, array in copied.items()}
    shapes |= {"base": Shape(number, counts.vocab.size), "rows": Shape(number, trie.size)}
    shapes |= {"backoffs": Shape(number, trie.num_histories)}
    return shapes | {name: Shape(array.dtype, len(array)) for name, array in strings.items()}


def _copy(file: StreamFile, counts: Counts, strings: Mapping[str, NDArray[Any]]) -> None:
    """What the table has in common with the counts: the trie and the words."""
    for name, array in strings.items():
        file.append(name, array)
    file.file.flush()
    arrays: dict[str, Ints] = {name: getattr(counts.trie, name) for name in TRIE}
    parts = [(name, part) for name in TRIE for part in chunks(slice(0, len(arrays[name])), COPIED_NODES)]

    def write(part: tuple[str, slice]) -> Part:
        name, chunk = part
        return file.target(name).write(chunk.start, arrays[name][chunk])

    with ThreadPoolExecutor(cores()) as pool:
        for (name, _), written in zip(parts, pool.map(write, parts), strict=True):
            file.take(name, written)


def _fill(
    file: StreamFile, counts: Counts, files: CountFiles, plan: Plan, nodes: int, engine: Engine, advance: Advance
) -> None:
    trie, derived = counts.trie, counts.derived
    arrays = CountArrays(trie, counts.counts, {name: getattr(derived, name) for name in DERIVED})
    file.append("base", plan.base)
    file.append("rows", np.zeros(int(trie.levels[1])))
    file.file.flush()
    task = functools.partial(fill_block, plan.fill, file.target("rows"), file.target("backoffs"))
    size = chunk_size(trie.size, nodes, engine.workers)
    blocks = ((order, *block) for order in range(2, trie.order + 1) for block in history_blocks(trie, order, size))
    for rows, backoffs, filled in engine.run(task, files, arrays, blocks):
        file.take("rows", rows)
        file.take("backoffs", backoffs)
        advance(filled)


def fill_block(
    fill: Fill, rows: Target, backoffs: Target, arrays: CountArrays, order: int, start: int, stop: int
) -> tuple[Part, Part, int]:
    """Write rows and backoffs of the histories start..stop, of order - 1 words each; says how many rows."""
    found = fill(arrays.block(order, start, stop))
    return rows.write(int(arrays.trie.first[start]), found[0]), backoffs.write(start, found[1]), len(found[0])
