"""`read_words` with all cores, for large plain files.

Each thread reads a range of lines with its own table of words. Then the words of the second range are looked up in
the table of the first, in the order in which they appeared, and so on: this gives the same ids as a single reader.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from lidstone.errors import LidstoneError
from lidstone.parallel import cores, over_ranges
from lidstone.progress import progress_bar
from lidstone.text.corpora import read_chunks
from lidstone.text.reading.ranges import FileRange, byte_ranges, is_plain
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, Ids, Sources, WordReader, read_words

PARALLEL_BYTES = 1 << 22
CHUNK_BYTES = 1 << 18


def read_words_in_parallel(
    sources: Sources, vocab: Vocabulary | None = None, *, blank: Blank = "skip", show: bool = False
) -> tuple[Ids, Vocabulary]:
    """The result of `read_words`, by several threads if there is one large plain file."""
    path, threads = _single_file(sources), cores()
    if path is None or threads == 1:
        return read_words(sources, vocab, blank=blank, show=show)
    try:
        return _read(path, vocab, blank, threads, show)
    except LidstoneError:  # the sequential reader raises it with the right line number
        return read_words(sources, vocab, blank=blank, show=show)


def _single_file(sources: Sources) -> Path | None:
    """The file, if there is only one, and it is large and plain."""
    if isinstance(sources, (list, tuple)) and len(sources) == 1:
        sources = sources[0]
    if not isinstance(sources, (str, Path)) or str(sources) == "-" or not Path(sources).is_file():
        return None
    path = Path(sources)
    return path if path.stat().st_size >= PARALLEL_BYTES and is_plain(path) else None


def _read(path: Path, vocab: Vocabulary | None, blank: Blank, threads: int, show: bool) -> tuple[Ids, Vocabulary]:
    size = path.stat().st_size
    ranges = byte_ranges(size, -(-size // threads))
    with progress_bar(size, f"reading {path}", show=show, unit="bytes") as advance, ThreadPoolExecutor(threads) as pool:

        def read(bounds: tuple[int, int]) -> WordReader:
            reader = WordReader(vocab, blank)
            reader.expect(bounds[1] - bounds[0])
            with FileRange(path, *bounds) as source:
                for chunk in read_chunks(source, CHUNK_BYTES):  # type: ignore[arg-type]
                    reader.read(chunk, str(path), 0)
                    advance(len(chunk))
            return reader

        readers = list(pool.map(read, ranges))
    return _joined(readers, fixed=vocab is not None), vocab or readers[0].vocabulary()


def _joined(readers: list[WordReader], *, fixed: bool) -> Ids:
    """The ids of all readers, numbered by the first one, which adds the words of the others to its table."""
    first, *others = readers
    sizes = [len(reader.ids) for reader in readers]
    ids = np.empty(sum(sizes), np.int32)
    end = sizes[0]
    for reader, size in zip(others, sizes[1:], strict=True):
        if fixed:
            ids[end : end + size] = reader.ids
        else:
            _renumber(reader.ids, first.learn(reader.new_words), ids[end : end + size])
        end += size
    ids[: sizes[0]] = first.ids
    return ids


def _renumber(ids: Ids, numbers: Ids, found: Ids) -> None:
    """Let found = numbers[ids], with all cores and without a copy of the ids."""
    from lidstone.text.interning import renumber

    over_ranges(lambda start, stop: renumber(ids[start:stop], numbers, found[start:stop]), len(ids))
