"""Continuation counts, totals and counts of counts of a count file, written to a second file instead of memory.

The continuation count of an n-gram is the number of n-grams whose suffix it is. These are anywhere in the order above,
so counters of a window of n-grams are held in memory while the suffix links of the order above are read once, from
start to end; with several windows, several times. Everything else is local to a block of histories.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.files import write_errors
from lidstone.ngram.counts import Counts
from lidstone.ngram.derived import LARGEST, Derived, count_values
from lidstone.ngram.disk.fitting.arrays import DERIVED, CountArrays, CountFiles, chunks, history_blocks
from lidstone.ngram.disk.fitting.engine import Engine
from lidstone.ngram.disk.memory import chunk_size
from lidstone.ngram.disk.output.stream_file import Part, Shape, StreamFile, Target
from lidstone.ngram.disk.pieces import Ints
from lidstone.ngram.formats.checked_tensors import read_arrays
from lidstone.ngram.trie import Trie, sum_children
from lidstone.parallel import bounded_lookahead, cores

Histogram = NDArray[np.int64]
WINDOW = 8
"""Counters of a window for each node of a block: a counter takes 4 or 8 bytes, a node of a block `NODE_BYTES`."""


def derive_to_file(counts: Counts, files: CountFiles, path: Path, *, nodes: int, engine: Engine) -> CountFiles:
    """Write totals and adjusted counts; `nodes` are held in memory at once by each worker."""
    trie, dtype = counts.trie, counts.counts.dtype
    shapes = {"adjusted": trie.size, "totals": trie.num_histories, "adjusted_totals": trie.num_histories}
    with write_errors(path):
        file = StreamFile(path, {name: Shape(dtype, size) for name, size in shapes.items()}, {"kind": "derived"})
        try:
            arrays = CountArrays(trie, counts.counts, {})
            _write_adjusted(file, files, arrays, nodes, engine)
            _write_totals(file, arrays, nodes)
            file.finish()
        finally:
            file.close()
    return replace(files, derived=str(path))


def read_derived(counts: Counts, files: CountFiles, nodes: int) -> Derived:
    """What was written, mapped into memory, and the counts of counts."""
    arrays, _ = read_arrays(str(files.derived), verify=False)
    totals, adjusted, adjusted_totals = (arrays[name] for name in DERIVED)
    trie = counts.trie
    with ThreadPoolExecutor(cores()) as pool:
        plain = list(pool.map(lambda order: _histogram(counts.counts, trie, order, nodes), range(1, trie.order + 1)))
        changed = list(pool.map(lambda order: _histogram(adjusted, trie, order, nodes), range(1, trie.order)))
    return Derived(totals, adjusted, adjusted_totals, tuple(plain), (*changed, plain[-1]))


def _write_adjusted(file: StreamFile, files: CountFiles, arrays: CountArrays, nodes: int, engine: Engine) -> None:
    trie = arrays.trie
    parts = ((order, part) for order in range(1, trie.order) for part in chunks(trie.level(order), WINDOW * nodes))
    windows = ((order, part.start, part.stop) for order, part in parts)
    for found in engine.run(functools.partial(write_window, file.target("adjusted")), files, arrays, windows):
        file.take("adjusted", found)
    for part in chunks(trie.level(trie.order), nodes):
        file.append("adjusted", _without_start(arrays.counts[part], trie, part.start))


def write_window(target: Target, arrays: CountArrays, order: int, start: int, stop: int) -> Part:
    """Write the adjusted counts of the nodes start..stop, all of one order below the top."""
    return target.write(start, adjusted_window(arrays, order, start, stop))


def adjusted_window(arrays: CountArrays, order: int, start: int, stop: int) -> Ints:
    """Adjusted counts of the nodes start..stop, all of one order below the top."""
    trie, window = arrays.trie, np.zeros(stop - start, arrays.counts.dtype)
    _count_between(trie.suffixes[trie.level(order + 1)], start, window)
    plain = max(trie.sentence_starts(order).start, start)
    if plain < stop:
        window[plain - start :] = arrays.counts[plain:stop]
    return _without_start(window, trie, start)


def _without_start(values: Ints, trie: Trie, start: int) -> Ints:
    """With zero for `<s>`, which is never predicted."""
    at = trie.vocab_size - start
    if not 0 <= at < len(values):
        return values
    values = values.copy()
    values[at] = 0
    return values


def _write_totals(file: StreamFile, arrays: CountArrays, nodes: int) -> None:
    """Totals of blocks of histories, by threads that write them: with a block in memory for each."""
    adjusted, trie = file.read("adjusted"), arrays.trie
    values = {"totals": arrays.counts, "adjusted_totals": adjusted.array}
    write = functools.partial(_write_sums, trie, {name: (file.target(name), values[name]) for name in values})
    size = chunk_size(trie.num_histories, nodes, cores())
    blocks = (block for order in range(2, trie.order + 1) for block in history_blocks(trie, order, size))
    with ThreadPoolExecutor(cores()) as pool:
        for written in bounded_lookahead((pool.submit(write, *block) for block in blocks), cores()):
            for name, part in written.result().items():
                file.take(name, part)
            adjusted.drop()


def _write_sums(trie: Trie, arrays: Mapping[str, tuple[Target, Ints]], start: int, stop: int) -> dict[str, Part]:
    """Write the sums over the followers of the histories start..stop."""
    offsets = trie.first[start : stop + 1]
    followers, first = slice(int(offsets[0]), int(offsets[-1])), offsets - offsets[0]
    return {
        name: target.write(start, sum_children(first, array[followers])) for name, (target, array) in arrays.items()
    }


def _histogram(values: Ints, trie: Trie, order: int, nodes: int) -> Histogram:
    """How many values of an order are 0, 1, .. `LARGEST` or more."""
    parts = chunks(trie.level(order), nodes)
    return histogram_of(_without_start(values[part], trie, part.start) for part in parts)


def histogram_of(parts: Iterable[Ints]) -> Histogram:
    """How many values are 0, 1, .. `LARGEST` or more, up to the largest there is.

    >>> histogram_of([np.array([1, 3]), np.array([1])]).tolist()
    [0, 2, 0, 1]
    """
    found = np.zeros(LARGEST + 1, np.int64)
    for part in parts:
        count_values(part, found)
    return found[: int(np.max(np.flatnonzero(found), initial=0)) + 1].copy()


@njit(cache=True, nogil=True)
def _count_between(suffixes, start, window):  # type: ignore[no-untyped-def]
    for suffix in suffixes:
        at = suffix - start
        if 0 <= at < len(window):
            window[at] += 1
