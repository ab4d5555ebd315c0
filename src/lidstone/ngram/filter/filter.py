"""`filter_documents`: the function behind `lidstone filter`."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from lidstone.errors import InputError
from lidstone.ngram.disk.executors import Executor
from lidstone.ngram.filter.checkpoint import FilterFiles, FilterState
from lidstone.ngram.filter.documents import Bad, Form, JsonForm, TextForm
from lidstone.ngram.filter.on_cluster import ClusterReading
from lidstone.ngram.filter.parquet import ParquetForm, assemble
from lidstone.ngram.filter.run import FilterJob, LocalReading, Reading, run
from lidstone.ngram.filter.selection import BUCKETS, Limits, scorer_of
from lidstone.ngram.scorer.scorer import Scorer
from lidstone.ngram.table import BackoffTable
from lidstone.parallel import cores
from lidstone.progress import progress_bar
from lidstone.text.raw import RawText, foreign_pieces
from lidstone.text.reader import CHUNK_BYTES
from lidstone.text.source import COMPRESSED, Source, name_of, open_bytes, plain_size

Format = Literal["auto", "text", "jsonl", "parquet"]
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
"""The formats of names; others are text."""


@dataclass(frozen=True)
class Filtered:
    """What a run of the filter did."""

    documents: int
    kept: int
    bad: int
    """lines that are no documents; each was named"""
    tokens: int
    """words and one end per line"""
    unknown: int
    perplexity: float | None
    """of all documents together; None if there are none"""
    resumed: bool
    """whether an earlier run did part of it"""


def filter_documents(
    model: BackoffTable | Scorer,
    sources: Sequence[Source] | Source,
    output: str | Path = "-",
    *,
    against: BackoffTable | Scorer | None = None,
    format: Format = "auto",
    field: str = "text",
    raw: RawText | None = None,
    max_perplexity: float | None = None,
    min_perplexity: float | None = None,
    max_difference: float | None = None,
    keep: float | None = None,
    percentiles: tuple[float, float] | None = None,
    bucket: str | None = None,
    bare: bool = False,
    jobs: int | None = None,
    restart: bool = False,
    line_buffered: bool = False,
    show: bool = False,
    say: Callable[[str], None] = lambda message: None,
    report: Callable[[Bad], None] = lambda bad: None,
    chunk_bytes: int = CHUNK_BYTES,
    executor: Executor | None = None,
) -> Filtered:
    r"""Write every line, JSON object on a line, or row of Parquet, with its perplexity; or only those within bounds.

    The model is a table, or a scorer (`lidstone.ngram.scorer.models.load_scorer` reads any file, KenLM's binaries too).
    `keep` is a share of the documents, those with the lowest score; `percentiles` (30, 60) sort into head, middle and
    tail, of which `bucket` is the only one written. The score is the perplexity or, with a second model `against`, the
    Moore-Lewis difference. `raw` makes words of raw text first (`lidstone.text.raw.RawText`). Lines that
    are no documents go to `output`.bad and to `report`. `line_buffered` answers on standard output as the text arrives.
    With a Ray executor, workers read the files and do the same; this process writes.

    >>> import io, tempfile
    >>> from lidstone.ngram.counts import count_text
    >>> from lidstone.ngram.smoothers.witten_bell import WittenBell
    >>> table = WittenBell().fit(count_text(io.BytesIO(b"the cat sat\nthe dog sat\n"), 2))
    >>> file = Path(tempfile.mkdtemp()) / "out.txt"
    >>> filter_documents(table, io.BytesIO(b"cat the the\nthe cat sat\n"), file, keep=0.5).kept
    1
    >>> file.read_text()
    '1.7497\tthe cat sat\n'
    """
    texts = [sources] if isinstance(sources, (str, Path)) or not isinstance(sources, Sequence) else list(sources)
    named = [name_of(source) for source in texts]
    kind = _format(format, named)
    is_parquet = kind == "parquet"
    if is_parquet != (Path(output).suffix == ".parquet"):
        raise InputError(f"{output} cannot be written from {kind}", hint="Parquet is read with Parquet as output")
    job = FilterJob(
        scorer_of(model),
        None if against is None else scorer_of(against),
        _form(kind, field),
        raw,
        Limits(max_perplexity, min_perplexity, max_difference),
        _check_share(keep),
        _check_percentiles(percentiles, bucket),
        bucket,
        bare,
        str(output),
    )
    if max_difference is not None and against is None:
        raise InputError("max_difference needs a second model", hint="give against=, a model of general text")
    if line_buffered and (job.two_passes or str(output) != "-" or executor is not None):
        raise InputError(
            "line_buffered writes each document to standard output before it reads the next",
            hint="leave out keep, percentiles and bucket, which need the whole text, output, and a cluster",
        )
    identity = _identity(job, named, chunk_bytes)
    with ExitStack() as stack:
        files = FilterFiles(str(output), identity, restart=restart, assemble=assemble if is_parquet else None)
        stack.callback(files.close)
        resumed = files.state != FilterState()
        if resumed:
            say(f"continuing after line {files.state.place.document:,} of pass {min(files.state.phase, 2)}")
        if job.two_passes:
            texts = [stack.enter_context(_rereadable(source)) for source in texts]
        total = None if is_parquet else _size(texts, job)
        bar = stack.enter_context(progress_bar(total, "filtering", show=show, unit="bytes"))
        advance = bar if sys.stderr.isatty() else _spoken(total, say)
        if raw is not None:
            advance = _watching(advance, files, say)
        reading: Reading = LocalReading(texts, named, jobs or cores(), chunk_bytes, line_buffered)
        if executor is not None:
            reading = ClusterReading.of(job, texts, named, executor, chunk_bytes)
        totals = run(job, reading, files, report=report, advance=advance, prompt=line_buffered)
        files.finish()
    return _summary(totals, resumed)


def _spoken(total: int | None, say: Callable[[str], None], seconds: float = 60.0) -> Callable[[int], None]:
    """Progress where there is no terminal: a line now and then."""
    done, last = 0, time.monotonic()

    def advance(size: int) -> None:
        nonlocal done, last
        done += size
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            say(f"filtering: {done / 1e6:,.0f} MB" + (f" of {total / 1e6:,.0f} MB" if total else "") + " read")

    return advance


def _watching(advance: Callable[[int], None], files: FilterFiles, say: Callable[[str], None]) -> Callable[[int], None]:
    """Tell once if most pieces of the text are unknown to the model."""
    is_told = False

    def watching(size: int) -> None:
        nonlocal is_told
        advance(size)
        totals = files.state.totals
        told = None if is_told else foreign_pieces(totals.get("unknown", 0), totals.get("tokens", 0))
        if told:
            is_told = True
            say(f"warning: {told}")

    return watching


def _summary(totals: dict[str, float], resumed: bool) -> Filtered:
    whole = {name: int(totals.get(name, 0)) for name in ("documents", "kept", "bad", "tokens", "unknown")}
    tokens = whole["tokens"]
    exponent = -totals.get("log10", 0.0) / max(tokens, 1)
    perplexity = 10.0**exponent if exponent < 308 else math.inf
    return Filtered(**whole, perplexity=perplexity if tokens else None, resumed=resumed)


def _format(format: Format, names: list[str]) -> str:
    if format not in ("auto", *get_args(Format)):
        raise InputError(f"the format must be auto, text, jsonl or parquet, not {format!r}")
    if format != "auto":
        return format
    kinds = sorted({FORMATS.get(_plain_suffix(name), "text") for name in names})
    if len(kinds) > 1:
        raise InputError(f"some inputs are {' and some '.join(kinds)}, by their names", hint="give the format")
    return kinds[0] if kinds else "text"


def _form(kind: str, field: str) -> Form:
    return TextForm() if kind == "text" else JsonForm(field) if kind == "jsonl" else ParquetForm(field)


def _plain_suffix(name: str) -> str:
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix


def _check_share(keep: float | None) -> float | None:
    if keep is not None and not 0 < keep <= 1:
        raise InputError(f"keep must be a share between 0 and 1, not {keep}", hint="0.3 keeps 30 %")
    return keep


def _check_percentiles(percentiles: tuple[float, float] | None, bucket: str | None) -> tuple[float, ...]:
    if bucket is not None and bucket not in BUCKETS:
        raise InputError(f"there is no bucket {bucket!r}", hint=f"choose one of {', '.join(BUCKETS)}")
    if percentiles is None:
        return () if bucket is None else (0.3, 0.6)
    if len(percentiles) != 2 or not 0 < percentiles[0] < percentiles[1] < 100:
        raise InputError(f"percentiles must be two, rising, between 0 and 100, not {percentiles}", hint="30 and 60")
    return tuple(value / 100 for value in percentiles)


def _identity(job: FilterJob, names: list[str], chunk_bytes: int) -> dict[str, Any]:
    """What must be the same for an unfinished run to go on; the text itself is compared by `unread`."""
    from lidstone import __version__

    bounds = [job.limits.max_perplexity, job.limits.min_perplexity, job.limits.max_difference]
    return {
        "model": job.scorer.fingerprint,
        "second model": None if job.against is None else job.against.fingerprint,
        "inputs": names,
        "settings": [repr(job.form), bounds, job.keep, job.cuts, job.bucket, job.bare, chunk_bytes],
        "rules for raw text": None if job.raw is None else job.raw.identity,
        "version of lidstone": __version__,
    }


def _size(sources: list[Source], job: FilterJob) -> int | None:
    """How many bytes will be read, where the sizes of the files tell it."""
    sizes = [plain_size(source) for source in sources]
    return None if None in sizes else sum(size or 0 for size in sizes) * (1 + job.two_passes)


@contextmanager
def _rereadable(source: Source) -> Iterator[Source]:
    """A source that can be read twice: standard input and open files are copied to disk."""
    if isinstance(source, (str, Path)) and str(source) != "-":
        yield source
        return
    with tempfile.NamedTemporaryFile(prefix="lidstone-filter-") as copy:
        with open_bytes(source) as stream:
            shutil.copyfileobj(stream, copy)
        copy.flush()
        yield copy.name
