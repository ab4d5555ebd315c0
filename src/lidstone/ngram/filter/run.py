"""The filter as a whole: chunks go to threads, come back in order, and are written with a record of how far it is.

Limits on the perplexity need one pass. Shares of the corpus need two: the first leaves every score in a file, the
second reads the corpus again and writes. Memory is a few chunks, whatever the size of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.filter.checkpoint import FINISHED, FilterFiles, FilterState, Seen, changed_text, unread
from lidstone.ngram.filter.documents import Bad, Documents, Form, TextForm, compressor
from lidstone.ngram.filter.selection import BUCKETS, Cut, DocumentScores, Limits, cut_at, difference, score_documents
from lidstone.ngram.scorer.scorer import Scorer
from lidstone.parallel import bounded_lookahead
from lidstone.text.raw import RawText
from lidstone.text.reader import Chunk
from lidstone.text.source import Source

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FilterJob:
    """What is to be done with every chunk."""

    scorer: Scorer
    against: Scorer | None = None
    form: Form = field(default_factory=TextForm)
    """how documents stand in files"""
    raw: RawText | None = None
    """how raw text becomes words; None: it is words"""
    limits: Limits = field(default_factory=Limits)
    keep: float | None = None
    """the share of all documents that stays: those with the lowest scores"""
    cuts: tuple[float, ...] = ()
    """the shares at which head, middle and tail are cut"""
    bucket: str | None = None
    """the only bucket that is written"""
    bare: bool = False
    """whether scores are left out of the output"""
    output: str = "-"
    """where documents are written: its suffix says how they are compressed"""

    @property
    def two_passes(self) -> bool:
        """Whether the choice depends on the whole corpus."""
        return self.keep is not None or bool(self.cuts)

    def documents(self, chunk: Chunk) -> Documents:
        """The documents of a chunk, as words."""
        return self.form.documents(chunk).prepared(self.raw)


@dataclass(frozen=True)
class Done:
    """The result of a chunk."""

    blocks: dict[str, bytes]
    """what goes to which file"""
    totals: dict[str, float]
    bad: list[Bad] = field(default_factory=list)


Work = Callable[[FilterJob, Chunk, Any], Done]
"""What is done with a chunk, given the choice of the whole corpus, or None"""


class Reading(Protocol):
    """A text that is worked on chunk by chunk."""

    def work(
        self, job: FilterJob, work: Work, choice: Choice | None, state: FilterState, skipped: Callable[[int], None]
    ) -> Iterator[tuple[Seen, int, Done]]:
        """Work on what comes after the place of the state: each chunk, the checksum of the text so far, the result.

        They come in the order of the corpus.
        """


@dataclass(frozen=True)
class LocalReading:
    """Sources that this process reads; threads work on them."""

    sources: Sequence[Source]
    names: Sequence[str]
    jobs: int
    chunk_bytes: int
    prompt: bool
    """whether each line is answered as it arrives"""

    def work(
        self, job: FilterJob, work: Work, choice: Choice | None, state: FilterState, skipped: Callable[[int], None]
    ) -> Iterator[tuple[Seen, int, Done]]:
        """An error in reading comes after the results of all that was read before it."""
        chunks = job.form.chunks(self.sources, self.names, self.chunk_bytes, self.prompt)
        ahead = 0 if self.prompt else 2 * self.jobs - 1
        with ThreadPoolExecutor(ahead // 2 + 1) as pool:
            read = unread(((Seen.of(chunk), chunk) for chunk in chunks), state, skipped)
            started = ((seen, text, pool.submit(work, job, chunk, choice)) for seen, text, chunk in read)
            for seen, text, result in bounded_lookahead(started, ahead):
                yield seen, text, result.result()


def run(
    job: FilterJob,
    reading: Reading,
    files: FilterFiles,
    *,
    report: Callable[[Bad], None],
    advance: Callable[[int], None],
    prompt: bool = False,
) -> dict[str, float]:
    """Do the job from the position of `files` to the end; returns the totals. `prompt`: write each result at once."""

    def go(work: Work, choice: Choice | None = None) -> None:
        for seen, text, done in reading.work(job, work, choice, files.state, advance):
            for name, block in done.blocks.items():
                files.write(name, block)
            files.write("bad", b"".join(bad.line for bad in done.bad))
            totals = dict(files.state.totals)
            for name, value in done.totals.items():
                totals[name] = totals.get(name, 0) + value
            files.done(seen.end, text, totals)
            if prompt:
                files.flush()
            for bad in done.bad:
                report(bad)
            advance(seen.size)

    if files.state.phase == FINISHED:
        go(_refuse)
    elif not job.two_passes:
        go(score_and_write)
    else:
        if files.state.phase == 1:
            go(score_only)
            files.next_phase()
        go(write_chosen, Choice.find(job, files))
        if files.state.text != files.state.whole:
            raise changed_text()
    return files.state.totals


def _refuse(job: FilterJob, chunk: Chunk, _: None) -> Done:
    """There was no more text when the run was finished."""
    raise changed_text()


def score_and_write(job: FilterJob, chunk: Chunk, _: None) -> Done:
    """One pass: score, choose by limits, write."""
    documents = job.documents(chunk)
    scores, gap = _scores(job, documents)
    perplexity = scores.perplexity
    keep = job.limits.accept(perplexity, gap)
    block = _render(job, chunk, np.array(documents.numbers, np.int64), perplexity, gap, None, keep)
    return Done({"output": block}, {**_totals(documents, scores), "kept": int(keep.sum())}, documents.bad)


def score_only(job: FilterJob, chunk: Chunk, _: None) -> Done:
    """The first of two passes: scores to files, one per line."""
    documents = job.documents(chunk)
    scores, gap = _scores(job, documents)
    lines = chunk.end.line - chunk.begin.line
    blocks = {"scores": _spread(scores.perplexity if gap is None else gap, documents, lines)}
    if gap is not None:
        blocks["perplexities"] = _spread(scores.perplexity, documents, lines)
    return Done(blocks, _totals(documents, scores), documents.bad)


@dataclass(frozen=True)
class Choice:
    """What the scores of the whole corpus decide."""

    keep: Cut | None
    cuts: tuple[Cut, ...]
    columns: dict[str, Floats]
    """the scores, and with a second model the perplexities, one per line of the corpus"""
    first: int = 0
    """the number of the line that they begin with"""

    @classmethod
    def find(cls, job: FilterJob, files: FilterFiles) -> Choice:
        """Find the cuts in the file of scores."""
        file, names = files.path("scores"), ("scores", "perplexities")
        keep = None if job.keep is None else cut_at(file, job.keep)
        columns = {name: _mapped(files.path(name)) for name in names}
        return cls(keep, tuple(cut_at(file, share) for share in job.cuts), columns)

    def of_lines(self, start: int, stop: int) -> Choice:
        """The same, with the scores of some lines alone."""
        part = slice(start - self.first, stop - self.first)
        return replace(self, columns={name: column[part] for name, column in self.columns.items()}, first=start)

    def column(self, name: str, chunk: Chunk) -> Floats:
        """The scores of a chunk's lines."""
        return self.columns[name][chunk.begin.document - self.first : chunk.end.document - self.first]


def _mapped(path: Path) -> Floats:
    return np.asarray(np.memmap(path, np.float64, "r")) if path.stat().st_size else np.empty(0)


def write_chosen(job: FilterJob, chunk: Chunk, choice: Choice) -> Done:
    """The second of two passes: choose by what the whole corpus decided, and write."""
    ranked = choice.column("scores", chunk)
    real = np.flatnonzero(~np.isnan(ranked))
    numbers, ranked = real + chunk.begin.document, ranked[real]
    gap = None if job.against is None else ranked
    perplexity = ranked if gap is None else choice.column("perplexities", chunk)[real]
    keep = job.limits.accept(perplexity, gap)
    if choice.keep is not None:
        keep &= choice.keep.inside(ranked, numbers)
    place = np.zeros(len(ranked), np.int64)
    for cut in choice.cuts:
        place += ~cut.inside(ranked, numbers)
    if job.bucket is not None:
        keep &= place == BUCKETS.index(job.bucket)
    block = _render(job, chunk, real, perplexity, gap, place if job.cuts else None, keep)
    return Done({"output": block}, {"kept": int(keep.sum())})


def _scores(job: FilterJob, documents: Documents) -> tuple[DocumentScores, Floats | None]:
    scores = score_documents(job.scorer, documents)
    if job.against is None:
        return scores, None
    return scores, difference(scores, score_documents(job.against, documents))


def _totals(documents: Documents, scores: DocumentScores) -> dict[str, float]:
    return {
        "documents": len(documents.raw),
        "bad": len(documents.bad),
        "tokens": int(scores.tokens.sum()),
        "unknown": int(scores.unknown.sum()),
        "log10": float(scores.log10.sum()),
    }


def _spread(values: Floats, documents: Documents, lines: int) -> bytes:
    """One value per line, NaN for lines that are no documents."""
    spread = np.full(lines, np.nan)
    spread[documents.numbers] = values
    return spread.tobytes()


def _render(
    job: FilterJob,
    chunk: Chunk,
    numbers: NDArray[np.int64],
    perplexity: Floats,
    gap: Floats | None,
    place: NDArray[np.int64] | None,
    keep: NDArray[np.bool_],
) -> bytes:
    names: list[str] = []
    columns: list[list[Any]] = []
    if not job.bare:
        names, columns = ["perplexity"], [perplexity[keep].tolist()]
        if gap is not None:
            names.append("difference")
            columns.append(gap[keep].tolist())
        if place is not None:
            names.append("bucket")
            columns.append([BUCKETS[i] for i in place[keep]])
    block = job.form.rows(chunk, numbers[keep].tolist(), names, columns)
    return compressor(job.output)(block) if block else b""
