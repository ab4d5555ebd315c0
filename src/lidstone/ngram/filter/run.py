"""The filter as a whole: chunks go to threads, come back in order, and are written with a record of how far it is.

Limits on the perplexity need one pass. Shares of the corpus need two: the first leaves every score in a file, the
second reads the corpus again and writes. Memory is a few chunks, whatever the size of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.filter.checkpoint import FINISHED, FilterFiles, changed_text, unread
from lidstone.ngram.filter.documents import Bad, Documents, Form, TextForm, compressor
from lidstone.ngram.filter.selection import BUCKETS, Cut, DocumentScores, Limits, cut_at, difference, score_documents
from lidstone.ngram.scorer.scorer import Scorer
from lidstone.parallel import bounded_lookahead
from lidstone.text.raw import RawText
from lidstone.text.reader import CHUNK_BYTES, Chunk
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


def run(
    job: FilterJob,
    sources: Sequence[Source],
    names: Sequence[str],
    files: FilterFiles,
    *,
    jobs: int,
    report: Callable[[Bad], None],
    advance: Callable[[int], None],
    chunk_bytes: int = CHUNK_BYTES,
    prompt: bool = False,
) -> dict[str, float]:
    """Do the job from the position of `files` to the end; returns the totals. `prompt`: as the text arrives."""
    ahead = 0 if prompt else 2 * jobs - 1

    def go(work: Callable[[Chunk], Done]) -> None:
        chunks = job.form.chunks(sources, names, chunk_bytes, prompt)
        for chunk, text, done in in_order(work, unread(chunks, files.state, advance), ahead):
            for name, block in done.blocks.items():
                files.write(name, block)
            files.write("bad", b"".join(bad.line for bad in done.bad))
            totals = dict(files.state.totals)
            for name, value in done.totals.items():
                totals[name] = totals.get(name, 0) + value
            files.done(chunk.end, text, totals)
            if prompt:
                files.flush()
            for bad in done.bad:
                report(bad)
            advance(len(chunk.data))

    compress = compressor(files.output)
    if files.state.phase == FINISHED:
        go(_refuse)
    elif not job.two_passes:
        go(lambda chunk: score_and_write(job, chunk, compress))
    else:
        if files.state.phase == 1:
            go(lambda chunk: score_only(job, chunk))
            files.next_phase()
        choice = Choice.find(job, files)
        go(lambda chunk: write_chosen(job, chunk, choice, compress))
        if files.state.text != files.state.whole:
            raise changed_text()
    return files.state.totals


def _refuse(chunk: Chunk) -> Done:
    """There was no more text when the run was finished."""
    raise changed_text()


def in_order(
    work: Callable[[Chunk], Done], chunks: Iterator[tuple[Chunk, int]], ahead: int
) -> Iterator[tuple[Chunk, int, Done]]:
    """Work on a chunk and up to `ahead` more at a time, and give the results in the order of the corpus.

    An error in reading comes after the results of all that was read before it.
    """
    with ThreadPoolExecutor(ahead // 2 + 1) as pool:
        started = ((chunk, text, pool.submit(work, chunk)) for chunk, text in chunks)
        for chunk, text, result in bounded_lookahead(started, ahead):
            yield chunk, text, result.result()


def score_and_write(job: FilterJob, chunk: Chunk, compress: Callable[[bytes], bytes]) -> Done:
    """One pass: score, choose by limits, write."""
    documents = job.documents(chunk)
    scores, gap = _scores(job, documents)
    perplexity = scores.perplexity
    keep = job.limits.accept(perplexity, gap)
    block = _render(job, chunk, np.array(documents.numbers, np.int64), perplexity, gap, None, keep)
    totals = {**_totals(documents, scores), "kept": int(keep.sum())}
    return Done({"output": compress(block) if block else b""}, totals, documents.bad)


def score_only(job: FilterJob, chunk: Chunk) -> Done:
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

    files: FilterFiles
    keep: Cut | None
    cuts: tuple[Cut, ...]

    @classmethod
    def find(cls, job: FilterJob, files: FilterFiles) -> Choice:
        """Find the cuts in the file of scores."""
        file = files.path("scores")
        keep = None if job.keep is None else cut_at(file, job.keep)
        return cls(files, keep, tuple(cut_at(file, share) for share in job.cuts))

    def column(self, name: str, chunk: Chunk) -> Floats:
        """The scores of a chunk's lines."""
        lines = chunk.end.line - chunk.begin.line
        return np.fromfile(self.files.path(name), np.float64, lines, offset=8 * chunk.begin.document)


def write_chosen(job: FilterJob, chunk: Chunk, choice: Choice, compress: Callable[[bytes], bytes]) -> Done:
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
    return Done({"output": compress(block) if block else b""}, {"kept": int(keep.sum())})


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
    return job.form.rows(chunk, numbers[keep].tolist(), names, columns)
