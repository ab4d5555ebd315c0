"""A text that the workers of a cluster read and filter: `ClusterReading`.

The text is cut into parts with the chunks of the whole; a task does with each chunk of a part what a thread does on one
machine. It does not know how many lines come before its part: the places that it gives are moved here, by the lines of
the parts before. In the second of two passes they are known, and a task gets the scores of its lines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lidstone.errors import InputError
from lidstone.ngram.disk.executors import Executor, portable
from lidstone.ngram.filter.checkpoint import FilterState, Seen, unread
from lidstone.ngram.filter.parquet import ParquetForm
from lidstone.ngram.filter.run import Choice, Done, FilterJob, Work
from lidstone.text.inputs import Input
from lidstone.text.reader import Chunk, Place
from lidstone.text.source import Source
from lidstone.text.splits import TextSplit, cut

Found = list[tuple[Seen, Done]]


@dataclass
class ClusterReading:
    """Files that workers read."""

    splits: Sequence[TextSplit]
    executor: Executor
    shared: Any
    """the job, where workers open it"""
    chunk_bytes: int
    begins: list[Place] = field(default_factory=list)
    """where each part begins, and the end of the last one; known after the first pass"""

    @classmethod
    def of(
        cls, job: FilterJob, sources: Sequence[Source], names: Sequence[str], executor: Executor, chunk_bytes: int
    ) -> ClusterReading:
        """Cut the files into parts, and put the job where workers find it."""
        if not all(isinstance(source, (str, Path)) for source in sources):
            raise InputError("workers cannot read open files", hint="name files, or leave out the executor")
        inputs = [Input(name if str(source) != "-" else "-") for source, name in zip(sources, names, strict=True)]
        lines = not isinstance(job.form, ParquetForm)
        splits = cut(inputs, workers=executor.workers, chunk_bytes=chunk_bytes, lines=lines)
        job.form.check(sources, names)
        general = job.against and portable(job.against, executor)
        shared = executor.put(replace(job, scorer=portable(job.scorer, executor), against=general))
        return cls(splits, executor, shared, chunk_bytes)

    def work(
        self, job: FilterJob, work: Work, choice: Choice | None, state: FilterState, skipped: Callable[[int], None]
    ) -> Iterator[tuple[Seen, int, Done]]:
        """The results of all parts, in order."""
        if choice is not None and not self.begins:  # a run that is continued in its second pass
            for _ in self._work(job, only_read, None, Place()):
                pass
        return unread(self._work(job, work, choice, state.place), state, skipped)

    def _work(self, job: FilterJob, work: Work, choice: Choice | None, after: Place) -> Iterator[tuple[Seen, Done]]:
        task = functools.partial(work_on_part, work, self.chunk_bytes, (after.source, after.offset))
        given = [Place()] * len(self.splits) if choice is None else self.begins
        arguments = (
            (split, given[k], choice and choice.of_lines(given[k].document, given[k + 1].document))
            for k, split in enumerate(self.splits)
        )
        begins, place = [], Place()
        for k, found in enumerate(self.executor.run(task, self.shared, job, arguments)):
            if self.splits[k].start == 0:
                place = replace(place, line=0)
            begins.append(place)
            lines, documents = place.line - given[k].line, place.document - given[k].document
            for seen, done in found:
                place = _moved(seen.end, lines, documents)
                bad = [replace(bad, number=bad.number + lines) for bad in done.bad]
                yield seen._replace(begin=_moved(seen.begin, lines, documents), end=place), replace(done, bad=bad)
        self.begins = [*begins, place]


def _moved(place: Place, lines: int, documents: int) -> Place:
    return replace(place, line=place.line + lines, document=place.document + documents)


def only_read(job: FilterJob, chunk: Chunk, _: None) -> Done:
    """Nothing but the places of the chunks is needed."""
    return Done({}, {})


def work_on_part(
    work: Work,
    chunk_bytes: int,
    after: tuple[int, int],
    job: FilterJob,
    split: TextSplit,
    given: Place,
    choice: Choice | None,
) -> Found:
    """The results of the chunks of a part; of those up to `after`, file and byte, nothing but the places."""
    split.check()
    found: Found = []
    for chunk in job.form.chunks([split.name], [split.name], chunk_bytes, False, (split.begin, split.stop)):
        begin, end = (_moved(place, given.line, given.document) for place in (chunk.begin, chunk.end))
        begin, end = (replace(place, source=split.number) for place in (begin, end))
        chunk = replace(chunk, begin=begin, end=end)
        is_done = (end.source, end.offset) <= after
        found.append((Seen.of(chunk), Done({}, {}) if is_done else work(job, chunk, choice)))
    split.check()
    return found
