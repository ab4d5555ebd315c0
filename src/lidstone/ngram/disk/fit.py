"""Fitting counts that do not fit in memory: `fit_to_file`.

    count file -> derived counts (a temporary file) -> discounts -> blocks of histories -> table file

The smoother sees the whole text through its counts of counts and its words (`BlockSmoother.prepare`); then each block
of histories gives rows and backoffs that are written at once. An order begins when the one below it is complete. The
file has the very bytes of `smoother.fit(counts)` and `save`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lidstone import __version__
from lidstone.errors import InputError, format_error
from lidstone.files import as_url, atomic_write, place_of_output, write_errors
from lidstone.ngram.counts import Counts
from lidstone.ngram.disk.derive import CountFiles, OpenedCounts, history_blocks, identify, with_derived
from lidstone.ngram.disk.executors import Executor, ThreadExecutor, page_limit
from lidstone.ngram.disk.memory import block_nodes, limit_pages
from lidstone.ngram.disk.workspace import check_space, workspace
from lidstone.ngram.formats.arpa import StoredTable, block_lines, write_arpa
from lidstone.ngram.formats.checked_tensors import (
    Part,
    Shape,
    StreamFile,
    Target,
    checksum_of,
    join_checksums,
    read_arrays,
    release,
    verify_checksums,
)
from lidstone.ngram.formats.safetensors import stream
from lidstone.ngram.formats.validate import check_counts, check_trie
from lidstone.ngram.smoothers.base import (
    BlockFit,
    BlockSmoother,
    FilledBlock,
    HistoryBlock,
    make_signature,
    prepare_fit,
    require_blocks,
)
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import chunks
from lidstone.parallel import chunk_size, cores
from lidstone.progress import progress_bar

COMPUTED = ("base", "rows", "backoffs")
CHECKED_BYTES = 1 << 26
"""Of an array, checked at once."""
Advance = Callable[[float], None]


def fit_to_file(
    counts: str | Path,
    output: str | Path,
    smoother: Any,
    *,
    memory: int,
    temporary: str | Path | None = None,
    executor: Executor | None = None,
    verify: bool = True,
    show: bool = False,
) -> None:
    """Fit a smoother to a count file, in about `memory` bytes; the file is that of `smoother.fit` and `save`.

    Temporary files stand in `temporary`, or beside the output, and are removed at the end. With a Ray executor, workers
    need them, and the count file, at the same paths; `memory` is then that of each. They need not reach the output.
    """
    require_blocks(smoother, type(smoother).__name__)
    if url := as_url(counts):
        raise InputError(f"{url} cannot be mapped into memory", hint="copy it to a local file first")
    target, executor = Path(output), executor or ThreadExecutor(cores())
    nodes, pages = block_nodes(executor.share(memory)), page_limit(executor, memory)
    executor.check_shared(Path(counts).resolve().parent)
    files, loaded = CountFiles.load(counts)
    identity = {"counts": files.changed, "lidstone": __version__}
    with (
        workspace(target, identity, Path(temporary) if temporary else None, work="fitting") as folder,
        limit_pages(pages, loaded.counts),
    ):
        executor.check_shared(folder)
        if verify:
            verify_counts(counts, loaded, executor)
        identify(loaded, files, executor)
        fingerprint = loaded.fingerprint
        files, loaded = with_derived(loaded, files, folder, nodes=nodes, executor=executor)
        opened = OpenedCounts(loaded)
        vars(loaded)["fingerprint"] = fingerprint
        vars(loaded)["run"] = lambda work, parts: executor.run(
            functools.partial(work_on, work), files, opened, ((part,) for part in parts)
        )
        with limit_pages(pages, loaded.derived.adjusted):
            job = _FitJob(loaded, files, prepare_fit(smoother, loaded), nodes, pages, executor)
            job.write(target, smoother, folder, show=show)


def write_arpa_by_tasks(path: str | Path, output: str | Path, executor: Executor, *, memory: int) -> BackoffTable:
    """Write a table in a file as ARPA: workers compute the lines, which are written here in order."""
    stored = StoredTable.of(path)
    executor.check_shared(Path(path).resolve().parent)
    opened = stored.open()
    with limit_pages(page_limit(executor, memory), opened[0].rows):
        write_arpa(opened[0], output, run=lambda blocks: executor.run(block_lines, stored, opened, blocks))
    return opened[0]


def work_on(work: Callable[[Counts, Any], Any], opened: OpenedCounts, part: Any) -> Any:
    """What a smoother wants to know of a part of the counts."""
    return work(opened.counts, part)


@dataclass(frozen=True)
class ArrayFile:
    """A file of arrays."""

    path: str | Path

    def open(self) -> Mapping[str, NDArray[Any]]:
        """Map them into memory."""
        return read_arrays(self.path, verify=False)[0]


def verify_counts(path: str | Path, counts: Counts, executor: Executor) -> None:
    """All that `load_counts` checks, of counts that were loaded without it: of a cluster's, checksums and sums only."""
    arrays, metadata = read_arrays(path, verify=False)
    parts = [
        (name, part.start, part.stop)
        for name, array in arrays.items()
        for part in chunks(slice(0, len(array)), CHECKED_BYTES // array.itemsize)
    ]
    sums = dict.fromkeys(arrays, 0)
    for (name, start, stop), found in zip(
        parts, executor.run(checksum_part, ArrayFile(path), arrays, parts), strict=True
    ):
        sums[name] = join_checksums(sums[name], found, (stop - start) * arrays[name].itemsize)
    verify_checksums(path, {name: f"{value:08x}" for name, value in sums.items()}, metadata)
    if executor.remote:
        return
    release(arrays["counts"])
    try:
        check_trie(counts.trie, counts.vocab)
        check_counts(counts)
    except InputError as error:
        raise format_error(path, f"its parts do not fit together ({error})") from error


def checksum_part(arrays: Mapping[str, NDArray[Any]], name: str, start: int, stop: int) -> int:
    """The CRC-32 of a part of an array in a file."""
    found = checksum_of(arrays[name][start:stop])
    release(arrays[name])
    return found


@dataclass(frozen=True)
class _FitJob:
    """A fit that is ready to be written."""

    counts: Counts
    files: CountFiles
    fit: BlockFit
    nodes: int
    """how many a block may have"""
    pages: int
    """how many bytes this process may occupy before it gives pages back"""
    executor: Executor

    def write(self, target: Path, smoother: BlockSmoother, folder: Path, *, show: bool) -> None:
        """Write the table; it appears when it is complete. `folder` is for temporary files."""
        signature, trie = make_signature(smoother, smoother.name, self.counts, self.fit.notes), self.counts.trie
        copied: dict[str, NDArray[Any]] = {name: getattr(trie, name) for name in ("words", "suffixes", "first")}
        types: dict[str, DTypeLike] = {name: array.dtype for name, array in copied.items()}
        types |= dict.fromkeys(COMPUTED, np.float64)
        needed = sum(array.nbytes for array in copied.values()) + 8 * (trie.size + trie.num_histories)
        with write_errors(target):
            disk = place_of_output(target).parent
        check_space(disk, needed, work="fitting", temporary=False)
        with (
            self._probs(folder) as probs,
            atomic_write(target) as temporary,
            progress_bar(trie.size, "fitting", show=show) as advance,
            stream(temporary, "table", self.counts.vocab, trie.levels, types, {"signature": signature}) as file,
        ):
            words = slice(0, int(trie.levels[1]))
            file.append({"base": self.fit.base, "rows": np.zeros(words.stop)})
            file.append({"words": trie.words[words], "suffixes": trie.suffixes[words]})
            self._fill(file, probs, advance)
            file.append({"first": trie.first[-1:]})
            self.files.check()

    @contextlib.contextmanager
    def _probs(self, folder: Path) -> Iterator[StreamFile | None]:
        """A temporary file for p(w|h) of the n-grams below the top order, if the fit backs off to them."""
        trie = self.counts.trie
        if not self.fit.backs_off or trie.order == 1:
            yield None
            return
        shape, path = Shape(np.dtype(np.float64), trie.num_histories), folder / "probs"
        check_space(folder, shape.nbytes, work="fitting")
        with write_errors(path), StreamFile(path, {"probs": shape}, {}) as file:
            file.append({"probs": np.append(self.fit.base, 0.0)})
            yield file

    def _fill(self, file: StreamFile, probs: StreamFile | None, advance: Advance) -> None:
        """Write rows and backoffs, order by order."""
        trie, opened, files = self.counts.trie, OpenedCounts(self.counts), self.files
        targets = {name: file.target(name) for name in ("rows", "backoffs", "words", "suffixes", "first")}
        if probs is not None:
            targets["probs"] = probs.target("probs")
            opened, files = OpenedCounts(self.counts, probs.read("probs")), replace(files, probs=targets["probs"])
        task = functools.partial(fill_block, self.fit, targets)
        size = chunk_size(trie.size, self.nodes, self.executor.workers)
        with limit_pages(self.pages, opened.probs):
            for order in range(2, trie.order + 1):
                blocks = ((order, *block) for block in history_blocks(trie, order, size))
                for parts, filled in self.executor.run(task, files, opened, blocks):
                    if probs is not None and "probs" in parts:
                        probs.take({"probs": parts.pop("probs")})
                    file.take(parts)
                    advance(filled)


def fill_block(
    fit: BlockFit, targets: Mapping[str, Target], opened: OpenedCounts, order: int, start: int, stop: int
) -> tuple[dict[str, Part], int]:
    """Write what the histories start..stop, of order - 1 words each, become, and their followers; how many of these."""
    block = HistoryBlock(order, start, stop, opened.counts, opened.probs)
    out = FilledBlock.empty(block, keep=fit.backs_off and order < opened.counts.order)
    fit.fill(block, out)
    trie, followers = opened.counts.trie, block.followers
    by_node: dict[str, NDArray[Any]] = {
        "rows": out.rows,
        "words": trie.words[followers],
        "suffixes": trie.suffixes[followers],
    }
    by_history: dict[str, NDArray[Any]] = {"backoffs": out.backoffs, "first": block.first[:-1]}
    parts = {name: targets[name].write(followers.start, values) for name, values in by_node.items()}
    parts |= {name: targets[name].write(start, values) for name, values in by_history.items()}
    if len(out.probs):
        parts["probs"] = targets["probs"].write(followers.start, out.probs)
    return parts, len(out.rows)
