"""A count file that does not fit in memory: its arrays in blocks, what is derived from them, and thresholds.

The followers of neighbouring histories stand side by side, so a block of histories is a slice of every array. Nothing
is read before it is used; `memory.limit_pages` gives pages back to the system when there are too many.

The continuation count of an n-gram is the number of n-grams whose suffix it is. So counters of a window of n-grams are
held in memory while the suffix links are read that lead into it: after each first word, these stand side by side.
Totals are local to a block of histories.

`drop_to_file` applies thresholds: it writes the bytes that `Counts.drop` and `save` write. Limits never fall with the
order, so the prefix and the suffix of an n-gram that stays, stay. What smoothers derive from the whole text is computed
first; then each array is copied without the n-grams that go; last, suffixes are linked anew.

Every step is a task over a range of n-grams, for an executor.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lidstone.errors import InputError
from lidstone.files import atomic_write, write_errors
from lidstone.ngram.adjusted import LARGEST, Derived, adjusted_window, tally, trimmed, without_start
from lidstone.ngram.counts import (
    HASHED_BYTES,
    Counts,
    digest,
    hashed_parts,
    identifying_arrays,
    join_digests,
)
from lidstone.ngram.disk.executors import Executor, page_limit
from lidstone.ngram.disk.links import write_links
from lidstone.ngram.disk.memory import block_nodes, limit_pages
from lidstone.ngram.disk.pieces import Ints
from lidstone.ngram.disk.workspace import check_space
from lidstone.ngram.formats.checked_tensors import Part, Shape, StreamFile, Target, read_arrays, release
from lidstone.ngram.formats.safetensors import histogram_parts, load_counts, stream
from lidstone.ngram.formats.validate import array_sizes
from lidstone.ngram.trie import Trie, chunks, sum_children
from lidstone.parallel import chunk_size
from lidstone.text.source import stamp
from lidstone.text.vocabulary import Vocabulary

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
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
    thresholds: tuple[int, ...] = ()
    histograms: tuple[Any, ...] = ()
    """counts of counts that stand in the count file"""
    derived: str | None = None
    probs: Target | None = None
    """where p(w|h) of the n-grams below the top order is being written, in a third file"""

    @classmethod
    def load(cls, path: str | Path) -> tuple[CountFiles, Counts]:
        """A count file as it is now, and the counts in it, mapped into memory without being verified."""
        changed, counts = stamp(path), load_counts(path, verify=False)
        histograms = (counts.stored.histograms, counts.stored.adjusted_histograms) if counts.stored else ()
        return cls(str(path), changed, replace(counts.vocab, tokens=None), counts.thresholds, histograms), counts

    def open(self) -> OpenedCounts:
        """Map the arrays into memory; an error if the count file has changed."""
        self.check()
        arrays, _ = read_arrays(self.counts, verify=False)
        more = read_arrays(self.derived, verify=False)[0] if self.derived else arrays
        stored = _derived(more, *self.histograms) if "totals" in more else None
        trie = Trie(*(arrays[name] for name in ("levels", "words", "suffixes", "first")))
        probs = np.empty(0) if self.probs is None else self.probs.read(trie.num_histories)
        return OpenedCounts(Counts(self.vocab, trie, arrays["counts"], self.thresholds, stored), probs)

    def check(self) -> None:
        """Refuse a count file that changed."""
        if stamp(self.counts) != self.changed:
            hint = "wait until it is written, then try again; all nodes must see the same file"
            raise InputError(f"{self.counts} changed while it was read", hint=hint)


def identify(counts: Counts, files: CountFiles, executor: Executor) -> None:
    """Compute the fingerprint of counts by tasks; they keep it."""
    opened, arrays = OpenedCounts(counts), identifying_arrays(counts)
    longer = chunks(slice(counts.vocab.size + 1, counts.trie.size), HASHED_BYTES // counts.counts.itemsize)
    if all(executor.run(all_occur, files, opened, ((part,) for part in longer))):
        digests = executor.run(digest_part, files, opened, hashed_parts(arrays))
        vars(counts)["fingerprint"] = join_digests(counts.vocab, arrays, digests)


def all_occur(opened: OpenedCounts, part: slice) -> bool:
    """Whether no count of a part is zero."""
    return bool(opened.counts.counts[part].all())


def digest_part(opened: OpenedCounts, number: int, part: slice) -> bytes:
    """The digest of a part of the arrays that identify counts."""
    return digest(identifying_arrays(opened.counts)[number][part])


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
    path = folder / "derived.safetensors"
    found = derive_to_file(counts, files, path, nodes=nodes, executor=executor)
    return replace(files, derived=str(path)), replace(counts, stored=found)


def derived_bytes(counts: Counts) -> int:
    """How large the file of what is derived from counts will be."""
    return counts.counts.itemsize * (counts.trie.size + 2 * counts.trie.num_histories)


def derive_to_file(counts: Counts, files: CountFiles, path: Path, *, nodes: int, executor: Executor) -> Derived:
    """Write totals and adjusted counts, and map them into memory; `nodes` are held at once by each worker."""
    sizes, trie = array_sizes(counts.trie.levels), counts.trie
    shapes = {name: Shape(counts.counts.dtype, sizes[name]) for name in DERIVED}
    plain, adjusted = np.zeros((2, trie.order, LARGEST + 1), np.int64)
    with write_errors(path), StreamFile(path, shapes, {"kind": "derived"}) as file:
        levels = [(order, chunks(trie.level(order), WINDOW * nodes)) for order in range(1, trie.order + 1)]
        windows = ((order, part.start, part.stop) for order, parts in levels for part in parts)
        write = functools.partial(write_window, file.target("adjusted"))
        for order, part, *tallies in executor.run(write, files, OpenedCounts(counts), windows):
            file.take({"adjusted": part})
            for histogram, (values, numbers) in zip((plain, adjusted), tallies, strict=True):
                histogram[order - 1, values] += numbers
        add = functools.partial(write_sums, {name: file.target(name) for name in DERIVED}, trie.size)
        size = chunk_size(trie.num_histories, nodes, executor.workers)
        blocks = (block for order in range(2, trie.order + 1) for block in history_blocks(trie, order, size))
        for parts in executor.run(add, files, OpenedCounts(counts), blocks):
            file.take(parts)
        file.finish()
    arrays, _ = read_arrays(path, verify=False)
    return _derived(arrays, tuple(map(trimmed, plain)), tuple(map(trimmed, adjusted)))


def _derived(arrays: Mapping[str, NDArray[Any]], *histograms: Any) -> Derived:
    return Derived(arrays["totals"], arrays["adjusted"], arrays["adjusted_totals"], *histograms)


Tally = tuple[Ints, Ints]
"""Values, and how many there are of each."""


def write_window(
    target: Target, opened: OpenedCounts, order: int, start: int, stop: int
) -> tuple[int, Part, Tally, Tally]:
    """Write the adjusted counts of the nodes start..stop of one order; tallies of the plain and the adjusted ones."""
    trie, counts = opened.counts.trie, opened.counts.counts
    plain = without_start(counts[start:stop], trie, start)
    adjusted = plain if order == trie.order else adjusted_window(trie, counts, order, start, stop)
    return order, target.write(start, adjusted), _tally(plain), _tally(adjusted)


def _tally(values: Ints) -> Tally:
    found = tally([values], LARGEST)
    there = np.flatnonzero(found)
    return there, found[there]


def write_sums(
    targets: Mapping[str, Target], size: int, opened: OpenedCounts, start: int, stop: int
) -> dict[str, Part]:
    """Write the sums over the followers of the histories start..stop."""
    first, adjusted = opened.counts.trie.first[start : stop + 1], targets["adjusted"].read(size)
    sums = {"totals": opened.counts.counts, "adjusted_totals": adjusted}
    found = {name: targets[name].write(start, sum_children(first, array)) for name, array in sums.items()}
    release(adjusted)
    return found


def drop_to_file(
    path: Path, output: Path, thresholds: Sequence[int], folder: Path, *, memory: int, executor: Executor
) -> None:
    """Write the counts of a file without the n-grams of order k that occur thresholds[k-1] times or less.

    `folder` is for temporary files.
    """
    limits, nodes = tuple(thresholds), block_nodes(executor.share(memory))
    (files, whole), pages = CountFiles.load(path), page_limit(executor, memory)
    with limit_pages(pages, whole.counts):
        files, counts = with_derived(whole, files, folder, nodes=nodes, executor=executor)
        with limit_pages(pages, counts.derived.adjusted), atomic_write(output) as temporary:
            _drop(files, counts, limits, nodes, temporary, executor, memory)


def _drop(
    files: CountFiles,
    counts: Counts,
    limits: tuple[int, ...],
    nodes: int,
    path: Path,
    executor: Executor,
    memory: int,
) -> None:
    trie, derived, opened = counts.trie, counts.derived, OpenedCounts(counts)
    blocks = [(order, *block) for order in range(2, trie.order + 1) for block in history_blocks(trie, order, nodes)]
    kept = list(executor.run(functools.partial(count_kept, limits), files, opened, blocks))
    words = int(trie.levels[1])
    sizes = np.zeros(trie.order, np.int64)
    for (order, _, _), (_, followers) in zip(blocks, kept, strict=True):
        sizes[order - 1] += followers
    sizes[0] = words
    links = dict.fromkeys(("suffixes", "first"), trie.first.dtype)
    types: dict[str, DTypeLike] = {"words": np.int32, **links}
    types |= dict.fromkeys(("counts", *DERIVED), counts.counts.dtype)
    facts, more, levels = {"thresholds": limits}, histogram_parts(derived), np.concatenate([[0], np.cumsum(sizes)])
    with stream(path, "counts", counts.vocab, levels, types, facts, more) as file:
        arrays = {"words": trie.words, "counts": counts.counts, "adjusted": derived.adjusted}
        file.append({name: array[:words] for name, array in arrays.items()})
        targets = {name: file.target(name) for name in (*arrays, *DERIVED, "first")}
        ends = np.cumsum([(0, words), *kept], axis=0).tolist()  # of the histories and followers that stay, so far
        tasks = ((*block, *end) for block, end in zip(blocks, ends, strict=False))
        for parts in executor.run(functools.partial(write_kept, targets, limits), files, opened, tasks):
            file.take(parts)
        file.append({"first": levels[-1:]})
        write_links(file, levels, executor, memory)


def count_kept(limits: tuple[int, ...], opened: OpenedCounts, order: int, start: int, stop: int) -> tuple[int, int]:
    """How many of the histories start..stop of order - 1 words stay, and how many of their followers."""
    histories, followers = _stays(opened.counts, limits, order, start, stop)
    return int(histories.sum()), int(followers.sum())


def _stays(counts: Counts, limits: tuple[int, ...], order: int, start: int, stop: int) -> tuple[Bools, Bools]:
    """Which histories and which of their followers stay. All words stay."""
    first, values = counts.trie.first, counts.counts
    histories = np.ones(stop - start, bool) if order == 2 else values[start:stop] > limits[order - 2]
    return histories, values[int(first[start]) : int(first[stop])] > limits[order - 1]


def write_kept(
    targets: Mapping[str, Target],
    limits: tuple[int, ...],
    opened: OpenedCounts,
    order: int,
    start: int,
    stop: int,
    history: int,
    follower: int,
) -> dict[str, Part]:
    """Write what stays of a block, from the n-grams `history` and `follower` on; one that goes has no followers."""
    counts, derived = opened.counts, opened.counts.derived
    stays, kept = _stays(counts, limits, order, start, stop)
    offsets = counts.trie.first[start : stop + 1]
    part = slice(int(offsets[0]), int(offsets[-1]))
    numbers = sum_children(offsets - offsets[0], kept.astype(np.int64))
    by_node = {"words": counts.trie.words, "counts": counts.counts, "adjusted": derived.adjusted}
    values: dict[str, Ints] = {"first": (follower + np.cumsum(numbers) - numbers)[stays]}
    values |= {name: getattr(derived, name)[start:stop][stays] for name in ("totals", "adjusted_totals")}
    found = {name: targets[name].write(history, array) for name, array in values.items()}
    return found | {name: targets[name].write(follower, array[part][kept]) for name, array in by_node.items()}
