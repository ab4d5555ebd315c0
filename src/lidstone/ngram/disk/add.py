"""Adding count files exactly, without having them in memory: `add_files`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lidstone import __version__
from lidstone.errors import InputError, VocabularyMismatch, format_error
from lidstone.ngram.counts import Counts
from lidstone.ngram.disk.executors import ThreadExecutor
from lidstone.ngram.disk.pieces import PieceSlice, piece_of, whole
from lidstone.ngram.disk.workspace import workspace
from lidstone.ngram.disk.write_counts import write_counts
from lidstone.ngram.formats.checked_tensors import read_arrays, write_arrays
from lidstone.ngram.formats.safetensors import load_counts
from lidstone.parallel import cores
from lidstone.progress import progress
from lidstone.text.source import stamp


def add_files(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    memory: int,
    temporary: str | Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> None:
    """Write the sum of count files: the counts of their texts read one after the other.

    All must have one order and one vocabulary, and no thresholds: what these dropped cannot be added.
    """
    target, workers = Path(output), workers or cores()
    _check_names(paths, target)
    for path in progress(paths, "checking", show=show):
        read_arrays(path, verify=True)
    files = [load_counts(path, verify=False) for path in paths]
    for path, counts in zip(paths, files, strict=True):
        _check_shape(path, counts)
        _check_same(path, counts, paths[0], files[0])
    identity = {"files": [stamp(Path(path)) for path in paths], "lidstone": __version__}
    with workspace(target, identity, Path(temporary) if temporary else None) as folder:
        runs = [_as_run(counts, folder / f"heads-{n}.safetensors") for n, counts in enumerate(files)]
        order, vocab = files[0].order, files[0].vocab
        unigrams = np.sum([counts.counts[: vocab.size + 1].astype(np.int64) for counts in files], axis=0)
        del files, counts
        write_counts(runs, folder, vocab, order, unigrams, target, ThreadExecutor(workers), memory=memory, show=show)


def _check_names(paths: Sequence[str | Path], output: Path) -> None:
    """Refuse to add a file twice, or to replace one: done again after a stop, that would add it again."""
    resolved = [Path(os.path.realpath(path)) for path in paths]
    twice = next((path for n, path in enumerate(resolved) if path in resolved[:n]), None)
    if twice is not None:
        raise InputError(f"{twice} is named twice", hint="name each count file once")
    if Path(os.path.realpath(output)) in resolved:
        raise InputError(f"{output} is one of the files to add", hint="write the sum to a new file")
    if len(paths) < 2:
        raise InputError("there is nothing to add: one file is given", hint="name two count files or more")


def _check_shape(path: str | Path, counts: Counts) -> None:
    trie = counts.trie
    fits = trie.levels[0] == 0 and trie.levels[1] == counts.vocab.size + 1 and (np.diff(trie.levels) >= 0).all()
    sizes = {trie.size: (trie.words, counts.counts), trie.num_histories + 1: (trie.first,)}
    if not fits or any(len(array) != size for size, arrays in sizes.items() for array in arrays):
        raise format_error(path, "its parts do not fit together")


def _check_same(path: str | Path, counts: Counts, other: str | Path, first: Counts) -> None:
    if counts.order != first.order:
        raise InputError(
            f"{path} has order {counts.order} and {other} has order {first.order}",
            hint="count one of them again with the order of the other",
        )
    if counts.vocab.fingerprint != first.vocab.fingerprint:
        raise VocabularyMismatch(
            f"{path} and {other} have different vocabularies, of {counts.vocab.size} and {first.vocab.size} ids",
            hint=f"count the text of {path} again with --vocab {other}",
        )
    if any(counts.thresholds):
        thresholds = " ".join(map(str, counts.thresholds))
        raise InputError(f"{path} was counted with thresholds {thresholds}", hint="count it again without thresholds")


def _as_run(counts: Counts, heads: Path) -> PieceSlice:
    """Counts in a file as a run; the first word of each 2-gram goes to a second file, which is mapped, too."""
    write_arrays(heads, {"heads": piece_of(counts.trie, counts.counts).heads}, {})
    mapped, _ = read_arrays(heads, verify=False)
    return whole(piece_of(counts.trie, counts.counts, mapped["heads"]), counts.vocab.bos)
