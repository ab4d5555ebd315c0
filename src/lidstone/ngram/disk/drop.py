"""Thresholds on disk: a count file without its rare n-grams, with the bytes that `Counts.drop` and `save` write.

Limits never fall with the order, so the prefix and the suffix of an n-gram that stays, stay. What smoothers derive from
the whole text is computed first; then each array is copied without the n-grams that go; last, suffixes are linked anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lidstone.files import atomic_write
from lidstone.ngram.counts import Counts
from lidstone.ngram.disk.derive import CountFiles, chunks, history_blocks, with_derived
from lidstone.ngram.disk.executors import ThreadExecutor
from lidstone.ngram.disk.fit import block_nodes
from lidstone.ngram.disk.memory import PAGE_SHARE, limit_pages, plan
from lidstone.ngram.disk.stream_file import Shape, StreamFile
from lidstone.ngram.disk.write_counts import write_links
from lidstone.ngram.formats.safetensors import make_metadata, vocabulary_parts
from lidstone.ngram.trie import sum_children


def drop_to_file(
    path: Path, output: Path, thresholds: Sequence[int], folder: Path, *, memory: int, workers: int
) -> None:
    """Write the counts of a file without the n-grams of order k that occur thresholds[k-1] times or less.

    `folder` is for temporary files.
    """
    (files, whole), nodes = CountFiles.load(path), block_nodes(plan(memory), workers)
    with limit_pages(int(memory * PAGE_SHARE), whole.counts):
        executor = ThreadExecutor(workers)
        _, counts = with_derived(whole, files, folder, nodes=nodes, executor=executor)
        with limit_pages(int(memory * PAGE_SHARE), counts.derived.adjusted):
            Dropping(counts, tuple(thresholds), nodes).write(output, workers, memory)


class Dropping:
    """Counts, and which of their n-grams stay."""

    def __init__(self, counts: Counts, limits: tuple[int, ...], nodes: int) -> None:
        self.counts, self.limits, self.nodes = counts, limits, nodes
        sizes = [sum(int(keep.sum()) for _, keep in self._kept(order)) for order in range(1, counts.order + 1)]
        self.levels = np.concatenate([[0], np.cumsum(sizes)])

    def write(self, output: Path, workers: int, memory: int) -> None:
        """Write the file; it appears when it is complete."""
        strings, vocabulary = vocabulary_parts(self.counts.vocab)
        metadata = make_metadata("counts", {"vocabulary": vocabulary, "thresholds": self.limits})
        shapes = {**self._shapes(), **{name: Shape(array.dtype, len(array)) for name, array in strings.items()}}
        with atomic_write(output) as temporary:
            file = StreamFile(temporary, shapes, metadata)
            try:
                for name, array in strings.items():
                    file.append(name, array)
                self._write(file)
                write_links(file, self.levels, workers, memory)
                file.finish()
            finally:
                file.close()

    def _shapes(self) -> dict[str, Shape]:
        trie, derived, values = self.counts.trie, self.counts.derived, self.counts.counts.dtype
        size, inner = int(self.levels[-1]), int(self.levels[-2])
        shapes = {
            "levels": Shape(np.dtype(np.int64), len(self.levels)),
            "words": Shape(trie.words.dtype, size),
            "suffixes": Shape(trie.suffixes.dtype, size),
            "first": Shape(trie.first.dtype, inner + 1),
            "counts": Shape(values, size),
            "totals": Shape(values, inner),
            "adjusted": Shape(values, size),
            "adjusted_totals": Shape(values, inner),
        }
        for name in ("histograms", "adjusted_histograms"):
            for order, array in enumerate(getattr(derived, name), start=1):
                shapes[f"{name}.{order}"] = Shape(array.dtype, len(array))
        return shapes

    def _write(self, file: StreamFile) -> None:
        trie, derived = self.counts.trie, self.counts.derived
        file.append("levels", self.levels)
        for name in ("histograms", "adjusted_histograms"):
            for order, array in enumerate(getattr(derived, name), start=1):
                file.append(f"{name}.{order}", array)
        arrays = {"words": trie.words, "counts": self.counts.counts, "adjusted": derived.adjusted}
        for order in range(1, trie.order + 1):
            inner = {"totals": derived.totals, "adjusted_totals": derived.adjusted_totals}
            own = {**arrays, **inner} if order < trie.order else arrays
            for part, keep in self._kept(order):
                for name, array in own.items():
                    file.append(name, array[part][keep])
        self._write_first(file)

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
                file.append("first", (ends - kept)[stays])
                end = int(ends[-1])
        file.append("first", self.levels[-1:])

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
