"""Counting by the workers of a cluster: `count_on_cluster`. The file is that of counting in memory, byte for byte.

    texts -> splits -> words and ids -> vocabulary -> runs -> count file

1. `read_split`: the words of a part of the text in the order of their appearance, how often each occurs, and the text
   as their numbers.
2. `join_words`: the words of neighbouring parts as one list in that order, and of these lists again, until there is
   one. Each list keeps the numbers that its words have in the next.
3. `count_block`: the kernel that counts in memory counts a block, into a run.
4. `write_counts`, as on one machine.

Each step is a task for every part, by any worker. All that is large stands in files in a folder that the machines
share; tasks give the same files whenever they run, so one that was lost is run again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, LidstoneError
from lidstone.ngram.counts import check_thresholds
from lidstone.ngram.disk.count_file import count_identity, write_run
from lidstone.ngram.disk.executors import Executor
from lidstone.ngram.disk.memory import block_tokens
from lidstone.ngram.disk.workspace import workspace
from lidstone.ngram.disk.write_counts import RunFiles, write_counts
from lidstone.ngram.formats.checked_tensors import read_arrays, write_arrays
from lidstone.ngram.trie import check_order
from lidstone.progress import progress_bar
from lidstone.text.inputs import Input
from lidstone.text.reader import Place
from lidstone.text.source import Source
from lidstone.text.splits import TextSplit, cut
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Blank, Ids, WordReader, read_blocks, words_of

LISTS = 16
"""How many lists of words a task joins."""


@dataclass(frozen=True)
class ReadJob:
    """What all tasks of one count share."""

    folder: Path
    order: int
    tokens: int
    """how many tokens a block may have"""
    vocab: Vocabulary | None
    blank: Blank
    skip_bad: bool

    def words(self, number: int) -> Path:
        """The words of a split, and how often each occurs."""
        return self.folder / f"words-{number}.safetensors"

    def ids(self, number: int, block: int) -> Path:
        """The words of a block by their numbers among those of its split."""
        return self.folder / f"ids-{number}-{block}.safetensors"

    def run(self, number: int, block: int) -> Path:
        """The n-grams of a block."""
        return self.folder / f"run-{number}-{block}.safetensors"


class ReadSplit(NamedTuple):
    """What is known of a split that was read."""

    blocks: int
    bad: str = ""
    """why it cannot be read to its end"""


def count_on_cluster(
    inputs: Sequence[Input],
    order: int,
    output: str | Path,
    executor: Executor,
    *,
    memory: int,
    vocab: Vocabulary | None = None,
    temporary: str | Path | None = None,
    thresholds: Sequence[int] | None = None,
    skip_bad: bool = False,
    blank: Blank = "skip",
    split_bytes: int | None = None,
    report: Callable[[str], None] = lambda text: None,
    show: bool = False,
) -> int:
    """Count texts with the workers of an executor, in about `memory` bytes each; how many of the inputs were counted.

    `report` is called with messages on files that are left out.
    """
    check_order(order)
    limits = check_thresholds(thresholds or [0], order)
    target, splits = Path(output), cut(inputs, split_bytes, executor.workers)
    identity = count_identity([item.name for item in inputs], order, vocab)
    with workspace(target, {**identity, "blank": blank}, Path(temporary) if temporary else None) as folder:
        for place in (folder, target.resolve().parent):
            executor.check_shared(place)
        job = ReadJob(folder, order, block_tokens(executor.share(memory), order, 1), vocab, blank, skip_bad)
        with progress_bar(len(splits), "reading parts", show=show) as advance:
            read = list(_counted(executor.run(partial(read_split, job), None, None, enumerate(splits)), advance))
        kept = _kept(splits, read, report)
        lists = _join_all([job.words(number) for number in kept], partial(join_words, vocab), executor)
        found, unigrams = _words_of_all(lists[-1][0], vocab)
        blocks = [
            (number, block, _longer_lists(lists, position))
            for position, number in enumerate(kept)
            for block in range(read[number].blocks)
        ]
        if vocab is None:
            count = partial(count_block, job, replace(found, tokens=None))
            with progress_bar(len(blocks), "counting blocks", show=show) as advance:
                list(_counted(executor.run(count, None, None, blocks), advance))
        runs = RunFiles([job.run(number, block) for number, block, _ in blocks])
        options: dict[str, Any] = {"memory": memory, "thresholds": limits, "show": show}
        write_counts(runs, folder, found, order, unigrams, target, executor, **options)
    names = {splits[number].name for number in kept}
    return sum(item.name in names for item in inputs)


def _counted(results: Iterator[Any], advance: Callable[[float], None]) -> Iterator[Any]:
    for result in results:
        advance(1)
        yield result


def read_split(job: ReadJob, _: None, number: int, split: TextSplit) -> ReadSplit:
    """Write the words of a split, how often each occurs, and its blocks as ids: as runs if the vocabulary is given."""
    words: list[bytes] = []
    counts = np.zeros(0, np.int64)

    def read(source: Source, begin: Place, stop: int | None) -> None:
        nonlocal counts
        options: dict[str, Any] = {"blank": job.blank, "start": begin, "stop": stop}
        for block in read_blocks([source], job.tokens, job.vocab, **options):
            words.append(block.new_words)
            counts = _sum(counts, np.bincount(block.ids))
            if job.vocab is None:
                write_arrays(job.ids(number, len(words) - 1), {"ids": block.ids}, {})
            else:
                write_run(block.ids, job.vocab, job.order, job.run(number, len(words) - 1), {})

    try:
        split.read(read)
    except LidstoneError as error:
        if not job.skip_bad:
            raise
        return ReadSplit(len(words), error.message)
    _write_words(job.words(number), b"".join(words), counts)
    return ReadSplit(len(words))


def _kept(splits: Sequence[TextSplit], read: Sequence[ReadSplit], report: Callable[[str], None]) -> list[int]:
    """The splits that are counted: those of files that could be read to their end."""
    bad = {split.name: found.bad for split, found in zip(splits, read, strict=True) if found.bad}
    for message in bad.values():
        report(f"skipped: {message}")
    kept = [number for number, split in enumerate(splits) if split.name not in bad]
    if not any(read[number].blocks for number in kept):
        raise InputError("there is nothing to count: no sentence has a token", hint="give some text")
    return kept


def _join_all(paths: list[Path], join: Callable[..., None], executor: Executor) -> list[list[Path]]:
    """Join lists of words until there is one: the lists that were joined in each round, and last that one."""
    rounds = [paths]
    while len(rounds[-1]) > 1:
        groups = [rounds[-1][start : start + LISTS] for start in range(0, len(rounds[-1]), LISTS)]
        joined = [paths[0].with_name(f"words-{len(rounds)}-{number}.joined") for number in range(len(groups))]
        list(executor.run(join, None, None, zip(groups, joined, strict=True)))
        rounds.append(joined)
    return rounds


def join_words(vocab: Vocabulary | None, _: None, paths: Sequence[Path], joined: Path) -> None:
    """Write the words of several lists in order, how often each occurs, and for each list the numbers of its words."""
    reader, total = WordReader(None), np.zeros(0, np.int64)
    for path in paths:
        words, counts = _read_words(path)
        numbers = reader.learn(words) if vocab is None else np.arange(len(counts), dtype=np.int32)
        total = _sum(total, np.bincount(numbers[: len(counts)], counts).astype(np.int64))
        if vocab is None:
            write_arrays(_numbers(path), {"numbers": numbers}, {})
    _write_words(joined, reader.new_words, total)


def _sum(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of counts of which one may know more words."""
    size = max(len(one), len(other))
    return np.pad(one, (0, size - len(one))) + np.pad(other, (0, size - len(other)))


def _numbers(path: Path) -> Path:
    """Where the numbers stand that the words of a list have in the longer list."""
    return path.with_name(f"{path.name}.numbers")


def _write_words(path: Path, words: bytes, counts: NDArray[np.int64]) -> None:
    write_arrays(path, {"words": np.frombuffer(words, np.uint8), "counts": counts}, {})


def _read_words(path: Path) -> tuple[bytes, NDArray[np.int64]]:
    arrays, _ = read_arrays(path)
    return arrays["words"].tobytes(), arrays["counts"]


def _words_of_all(path: Path, vocab: Vocabulary | None) -> tuple[Vocabulary, NDArray[np.int64]]:
    """The vocabulary, and how often each word occurs; last, how many sentences there are."""
    words, counts = _read_words(path)
    found = vocab or words_of(words)
    total = _sum(counts, np.zeros(found.size + 1, np.int64))
    total[-1] = total[found.eos]
    return found, total


def _longer_lists(lists: Sequence[Sequence[Path]], position: int) -> list[Path]:
    """The list of a split, and the longer ones that its words went to, but for the last."""
    return [joined[position // LISTS**round] for round, joined in enumerate(lists[:-1])]


def count_block(job: ReadJob, vocab: Vocabulary, _: None, number: int, block: int, lists: Sequence[Path]) -> None:
    """Count a block of text into a run."""
    ids: Ids = read_arrays(job.ids(number, block))[0]["ids"]
    numbers = [read_arrays(_numbers(path), verify=False)[0]["numbers"] for path in lists]
    if numbers:
        ids = functools.reduce(lambda shorter, longer: longer[shorter], numbers)[ids]
    write_run(ids, vocab, job.order, job.run(number, block), {})
