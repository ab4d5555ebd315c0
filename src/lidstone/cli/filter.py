"""`lidstone filter`: compute the perplexity of every line or document, and keep the best."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from lidstone.cli.console import print_json, say, signature_line, table_signature
from lidstone.cli.inputs import (
    ADDRESS,
    ENGINE,
    JSON,
    LINE_BUFFERED,
    MODEL,
    NORMALIZE,
    SENTENCEPIECE,
    TEXTS,
    TOKENIZER,
    check_engine,
    check_folder,
    ray_cluster,
    read_table,
)
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.filter.documents import Bad
    from lidstone.ngram.filter.filter import Filtered
    from lidstone.ngram.scorer.scorer import Scorer

NAMED = 5
"""How many bad lines are named on stderr; the others are counted."""


def filter(
    table: MODEL,
    texts: TEXTS,
    output: Annotated[
        str, Option("--output", "-o", help="The file to write, compressed by its suffix; - is stdout.")
    ] = "-",
    max_perplexity: Annotated[float | None, Option(help="Keep documents up to this perplexity.")] = None,
    min_perplexity: Annotated[float | None, Option(help="Keep documents from this perplexity on.")] = None,
    keep: Annotated[float | None, Option(help="Keep this share of the documents, the lowest scores.")] = None,
    percentiles: Annotated[
        str | None, Option(help="Sort into head, middle and tail at these percentiles, such as 30,60.")
    ] = None,
    bucket: Annotated[str | None, Option(help="Keep only head, middle or tail.")] = None,
    against: Annotated[
        str | None, Option(metavar="TABLE", help="A model of general text: score by the Moore-Lewis difference.")
    ] = None,
    max_difference: Annotated[float | None, Option(help="Keep documents up to this difference.")] = None,
    normalize: NORMALIZE = None,
    sentencepiece: SENTENCEPIECE = None,
    tokenizer: TOKENIZER = None,
    format: Annotated[str, Option(help="text, jsonl, parquet, or auto: by the name of the input.")] = "auto",
    field: Annotated[
        str, Option(help="The field of JSON objects, or the column of Parquet, that holds the text.")
    ] = "text",
    bare: Annotated[bool, Option("--bare", help="Write documents without their scores.")] = False,
    max_bad: Annotated[
        float, Option(min=0, max=1, help="Exit with 1 if more than this share of the lines are not documents.")
    ] = 0.1,
    jobs: Annotated[int | None, Option("--jobs", "-j", min=1, help="Threads; all cores by default.")] = None,
    line_buffered: LINE_BUFFERED = False,
    engine: ENGINE = None,
    address: ADDRESS = None,
    restart: Annotated[bool, Option("--restart", help="Start an unfinished run from the beginning.")] = False,
    as_json: JSON = False,
) -> None:
    """Compute the perplexity of every line, JSON object on a line, or row of Parquet, and keep the best."""
    from lidstone.ngram.disk.executors import RayExecutor
    from lidstone.ngram.filter.filter import filter_documents
    from lidstone.text.inputs import expand
    from lidstone.text.raw import raw_text

    check_engine(engine, address)
    raw = raw_text(normalize, sentencepiece, tokenizer)
    if output != "-":
        check_folder(Path(output))
    with ray_cluster(engine, address):
        (model, signature), general = read_scorer(table), None if against is None else read_scorer(against)[0]
        reporter = Reporter(output)
        done = filter_documents(
            model,
            [item.name for item in expand(texts)],
            output,
            against=general,
            format=format,  # type: ignore[arg-type]
            field=field,
            raw=raw,
            max_perplexity=max_perplexity,
            min_perplexity=min_perplexity,
            max_difference=max_difference,
            keep=keep,
            percentiles=parse_percentiles(percentiles),
            bucket=bucket,
            bare=bare,
            jobs=jobs,
            restart=restart,
            line_buffered=line_buffered,
            show=True,
            say=say,
            report=reporter,
            executor=None if engine is None else RayExecutor(),
        )
    _print(done, reporter, signature, as_json)
    reporter.check(done, max_bad)


def read_scorer(path: str) -> tuple[Scorer, str]:
    """Any model for scoring, with its signature: a table, ARPA, or a binary of KenLM."""
    from lidstone import __version__
    from lidstone.files import as_url
    from lidstone.ngram.formats.remote import read_remote
    from lidstone.ngram.scorer.models import load_scorer, scorer_of_table
    from lidstone.text.source import kind_of_file

    if url := as_url(path):
        return read_remote(url, lambda file: read_scorer(str(file)))
    if not Path(path).is_file() or kind_of_file(path)[0] not in ("arpa", "kenlm"):
        table = read_table(path)  # a table of lidstone, ARPA on standard input, or an error
        return scorer_of_table(table), table_signature(table)
    scorer = load_scorer(path)
    facts = {"order": scorer.order, "file": Path(path).name, "content": f"{scorer.fingerprint:08x}"}
    return scorer, signature_line({**facts, "lidstone": __version__})


class Reporter:
    """Names the first bad lines on stderr and counts all, by what is wrong with them."""

    def __init__(self, output: str) -> None:
        self.file = None if output == "-" else f"{output}.bad"
        self.kinds: Counter[str] = Counter()
        self.first = ""

    def __call__(self, bad: Bad) -> None:
        """Name a bad line if it is one of the first, and count it."""
        seen = self.kinds.total()
        self.first = self.first or f"{bad.where}: {bad.reason}"
        if seen < NAMED:
            say(f"warning: {bad.where}: {bad.reason}")
        elif seen == NAMED:
            say("warning: further bad lines are only counted" + (f"; all are in {self.file}" if self.file else ""))
        self.kinds[bad.kind] += 1

    def check(self, done: Filtered, limit: float) -> None:
        """Raise an error if too many lines are bad; a continued run has not seen those before."""
        lines = done.documents + done.bad
        if not done.bad or (done.documents and done.bad <= limit * lines):
            return
        count = f"{done.bad:,} of {lines:,} lines are not documents"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.most_common(3))
        what = f" ({kinds}); the first is {self.first}" if self.first else ""
        raise InputError(count + what, hint="check --field and --format; --max-bad sets the share that is accepted")


def parse_percentiles(text: str | None) -> tuple[float, float] | None:
    """Two numbers separated by a comma.

    >>> parse_percentiles("30,60"), parse_percentiles(None)
    ((30.0, 60.0), None)
    """
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise InputError(f"--percentiles {text} are not two numbers", hint="use two numbers such as 30,60") from error
    return low, high


def _print(done: Any, reporter: Reporter, signature: str, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json and reporter.file is not None:
        print_json({**asdict(done), "signature": signature})
        return
    bad = f", {done.bad:,} bad lines" + (f" in {reporter.file}" if reporter.file else "") if done.bad else ""
    perplexity = "-" if done.perplexity is None else f"{done.perplexity:.4f}"
    if done.bad > NAMED:
        say("bad lines: " + ", ".join(f"{count:,} {kind}" for kind, count in reporter.kinds.most_common(5)))
    say(f"kept {done.kept:,} of {done.documents:,} documents{bad}; perplexity of all {perplexity}")
    say(signature)
