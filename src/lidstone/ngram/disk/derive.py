"""A count file that does not fit in memory: its arrays in blocks, what is derived from them, and thresholds.

The followers of neighbouring histories stand side by side, so a block of histories is a slice of every array. Nothing
is read before it is used; `memory.limit_pages` gives pages back to the system when there are too many.

The continuation count of an n-gram is the number of n-grams whose suffix it is. These are anywhere in the order above,
so counters of a window of n-grams are held in memory while the suffix links of the order above are read once, from
start to end; with several windows, several times. Totals are local to a block of histories.

`drop_to_file` applies thresholds: it writes the bytes that `Counts.drop` and `save` write. Limits never fall with the
order, so the prefix and the suffix of an n-gram that stays, stay. What smoothers derive from the whole text is computed
first; then each array is copied without the n-grams that go; last, suffixes are linked anew.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lidstone.errors import InputError
from lidstone.files import atomic_write, write_errors
from lidstone.ngram.adjusted import Derived, adjusted_window, histograms, without_start
from lidstone.ngram.counts import Counts
from lidstone.ngram.disk.executors import Executor
from lidstone.ngram.disk.links import write_links
from lidstone.ngram.disk.memory import PAGE_SHARE, block_nodes, chunk_size, limit_pages
from lidstone.ngram.disk.pieces import Ints
from lidstone.ngram.disk.workspace import check_space
from lidstone.ngram.formats.checked_tensors import Part, Shape, StreamFile, Target, read_arrays, release
from lidstone.ngram.formats.safetensors import histogram_parts, load_counts, stream
from lidstone.ngram.formats.validate import array_sizes
from lidstone.ngram.trie import Trie, chunks, sum_children
from lidstone.parallel import bounded_lookahead, cores
from lidstone.text.source import stamp
from lidstone.text.vocabulary import Vocabulary

Floats = NDArray[np.float64]
DERIVED = ("totals", "adjusted", "adjusted_totals")
WINDOW = 8
"""Counters of a window for each node of a block: a counter takes 4 or 8 bytes, a node of a block `fit.NODE_BYTES`."""


class OpenedCounts(NamedTuple):
    """Counts mapped into memory, and the probabilities of the orders that are fitted already, where they are needed."""

    counts: Counts
    probs: Floats = np.empty(0)


@dataclass(frozen=True)
class CountFiles:
    """Where counts stand: in a count file, and what was derived from it in a second one."""

    counts: str
    changed: tuple[str, int, int] | None
    """the path, size and time of change of the count file"""
    vocab: Vocabulary
    """without strings"""
    derived: str | None = None
    probs: Target | None = None
    """where p(w|h) of the n-grams below the top order is being written, in a third file"""

    @classmethod
    def load(cls, path: str | Path) -> tuple[CountFiles, Counts]:
        """A count file as it is now, and the counts in it, mapped into memory without being verified."""
        changed, counts = stamp(path), load_counts(path, verify=False)
        return cls(str(path), changed, replace(counts.vocab, tokens=None)), counts

    def open(self) -> OpenedCounts:
        """Map the arrays into memory; an error if the count file has changed."""
        self.check()
        arrays, _ = read_arrays(self.counts, verify=False)
        more = read_arrays(self.derived, verify=False)[0] if self.derived else arrays
        stored = Derived(more["totals"], more["adjusted"], more["adjusted_totals"]) if "totals" in more else None
        trie = Trie(*(arrays[name] for name in ("levels", "words", "suffixes", "first")))
        probs = np.empty(0) if self.probs is None else self.probs.read(trie.num_histories)
        return OpenedCounts(Counts(self.vocab, trie, arrays["counts"], stored=stored), probs)

    def check(self) -> None:
        """Refuse a count file that changed."""
        if stamp(self.counts) != self.changed:
            hint = "wait until it is written, then try again; all nodes must see the same file"
            raise InputError(f"{self.counts} changed while it was read", hint=hint)


def history_blocks(trie: Trie, order: int, limit: int) -> Iterator[tuple[int, int]]:
    """The histories of order - 1 words in stretches that have, with their followers, at most `limit` nodes.

    A history is never cut, so one with more followers is a stretch of its own.
    """
    first, level = trie.first, trie.level(order - 1)
    start = level.start
    while start < level.stop:
        most = start + int(first[start]) + limit
        nodes = range(start + 1, level.stop + 1)
        found = bisect.bisect_right(nodes, most, key=lambda node: node + int(first[node]))
        stop = nodes[max(found - 1, 0)]
        yield start, stop
        start = stop


def with_derived(
    counts: Counts, files: CountFiles, folder: Path, *, nodes: int, executor: Executor
) -> tuple[CountFiles, Counts]:
    """The counts with totals and adjusted counts, which are in the count file or are written to `folder`."""
    if counts.stored is not None:
        return files, counts
    check_space(folder, derived_bytes(counts), work="fitting")
    files = derive_to_file(counts, files, folder / "derived.safetensors", nodes=nodes, executor=executor)
    return files, replace(counts, stored=read_derived(counts, files, nodes))


def derived_bytes(counts: Counts) -> int:
    """How large the file of what is derived from counts will be."""
    return counts.counts.itemsize * (counts.trie.size + 2 * counts.trie.num_histories)


def derive_to_file(counts: Counts, files: CountFiles, path: Path, *, nodes: int, executor: Executor) -> CountFiles:
    """Write totals and adjusted counts; `nodes` are held in memory at once by each worker."""
    sizes = array_sizes(counts.trie.levels)
    shapes = {name: Shape(counts.counts.dtype, sizes[name]) for name in DERIVED}
    with write_errors(path), StreamFile(path, shapes, {"kind": "derived"}) as file:
        _write_adjusted(file, files, counts, nodes, executor)
        _write_totals(file, counts, nodes)
        file.finish()
    return replace(files, derived=str(path))


def read_derived(counts: Counts, files: CountFiles, nodes: int) -> Derived:
    """What was written, mapped into memory, and the counts of counts."""
    arrays, _ = read_arrays(str(files.derived), verify=False)
    totals, adjusted, adjusted_totals = (arrays[name] for name in DERIVED)
    return Derived(totals, adjusted, adjusted_totals, *histograms(counts.trie, counts.counts, adjusted, nodes))


def _write_adjusted(file: StreamFile, files: CountFiles, counts: Counts, nodes: int, executor: Executor) -> None:
    trie = counts.trie
    parts = ((order, part) for order in range(1, trie.order) for part in chunks(trie.level(order), WINDOW * nodes))
    windows = ((order, part.start, part.stop) for order, part in parts)
    write = functools.partial(write_window, file.target("adjusted"))
    for found in executor.run(write, files, OpenedCounts(counts), windows):
        file.take({"adjusted": found})
    for part in chunks(trie.level(trie.order), nodes):
        file.append({"adjusted": without_start(counts.counts[part], trie, part.start)})


def write_window(target: Target, opened: OpenedCounts, order: int, start: int, stop: int) -> Part:
    """Write the adjusted counts of the nodes start..stop, all of one order below the top."""
    return target.write(start, adjusted_window(opened.counts.trie, opened.counts.counts, order, start, stop))


def _write_totals(file: StreamFile, counts: Counts, nodes: int) -> None:
    """Totals of blocks of histories, by threads that write them: with a block in memory for each."""
    trie, values = counts.trie, {"totals": counts.counts, "adjusted_totals": file.read("adjusted")}
    write = functools.partial(_write_sums, trie, {name: (file.target(name), values[name]) for name in values})
    size = chunk_size(trie.num_histories, nodes, cores())
    blocks = (block for order in range(2, trie.order + 1) for block in history_blocks(trie, order, size))
    with ThreadPoolExecutor(cores()) as pool:
        for written in bounded_lookahead((pool.submit(write, *block) for block in blocks), cores()):
            file.take(written.result())
            release(values["adjusted_totals"])


def _write_sums(trie: Trie, arrays: Mapping[str, tuple[Target, Ints]], start: int, stop: int) -> dict[str, Part]:
    """Write the sums over the followers of the histories start..stop."""
    first = trie.first[start : stop + 1]
    return {name: target.write(start, sum_children(first, array)) for name, (target, array) in arrays.items()}


def drop_to_file(
    path: Path, output: Path, thresholds: Sequence[int], folder: Path, *, memory: int, executor: Executor
) -> None:
    """Write the counts of a file without the n-grams of order k that occur thresholds[k-1] times or less.

    `folder` is for temporary files.
    """
    (files, whole), nodes, pages = CountFiles.load(path), block_nodes(executor.share(memory)), int(memory * PAGE_SHARE)
    with limit_pages(pages, whole.counts):
        _, counts = with_derived(whole, files, folder, nodes=nodes, executor=executor)
        with limit_pages(pages, counts.derived.adjusted), atomic_write(output) as temporary:
            _Dropping(counts, tuple(thresholds), nodes).write(temporary, executor, memory)


class _Dropping:
    """Counts, and which of their n-grams stay."""

    def __init__(self, counts: Counts, limits: tuple[int, ...], nodes: int) -> None:
        self.counts, self.limits, self.nodes = counts, limits, nodes
        sizes = [sum(int(keep.sum()) for _, keep in self._kept(order)) for order in range(1, counts.order + 1)]
        self.levels = np.concatenate([[0], np.cumsum(sizes)])

    def write(self, path: Path, executor: Executor, memory: int) -> None:
        """Write the file."""
        trie, derived = self.counts.trie, self.counts.derived
        by_node = {"words": trie.words, "counts": self.counts.counts, "adjusted": derived.adjusted}
        by_history = {"totals": derived.totals, "adjusted_totals": derived.adjusted_totals}
        links = dict.fromkeys(("suffixes", "first"), trie.first.dtype)
        types: dict[str, DTypeLike] = {"words": np.int32, **links}
        types |= dict.fromkeys(("counts", *DERIVED), self.counts.counts.dtype)
        facts, more = {"thresholds": self.limits}, histogram_parts(derived)
        with stream(path, "counts", self.counts.vocab, self.levels, types, facts, more) as file:
            for order in range(1, trie.order + 1):
                arrays = {**by_node, **by_history} if order < trie.order else by_node
                for part, keep in self._kept(order):
                    file.append({name: array[part][keep] for name, array in arrays.items()})
            self._write_first(file)
            write_links(file, self.levels, executor, memory)

    def _write_first(self, file: StreamFile) -> None:
        """Where the followers of each history that stays begin; a history that goes has none that stay."""
        trie, counts, end = self.counts.trie, self.counts.counts, int(self.levels[1])
        for order in range(2, trie.order + 1):
            for start, stop in history_blocks(trie, order, self.nodes):
                offsets = trie.first[start : stop + 1]
                followers = counts[int(offsets[0]) : int(offsets[-1])] > self.limits[order - 1]
                kept = sum_children(offsets - offsets[0], followers.astype(np.int64))
                ends = end + np.cumsum(kept)
                stays = self._stays(order - 1, slice(start, stop))
                file.append({"first": (ends - kept)[stays]})
                end = int(ends[-1])
        file.append({"first": self.levels[-1:]})

    def _kept(self, order: int) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
        """The n-grams of an order in parts, and which of each part stay."""
        for part in chunks(self.counts.trie.level(order), self.nodes):
            yield part, self._stays(order, part)

    def _stays(self, order: int, part: slice) -> NDArray[np.bool_]:
        """All words stay."""
        if order == 1:
            return np.ones(part.stop - part.start, bool)
        stays: NDArray[np.bool_] = self.counts.counts[part] > self.limits[order - 1]
        return stays
