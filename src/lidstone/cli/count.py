"""`lidstone count`: from text to a file of n-gram counts, in memory, on disk or on a cluster; `merge` adds files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from lidstone.cli.console import print_json, print_table, say, signature_line
from lidstone.cli.inputs import (
    ADDRESS,
    BLANK,
    COLUMN,
    JSON,
    NORMALIZE,
    OUTPUT,
    SENTENCEPIECE,
    TEMPORARY,
    TEXTS,
    TOKENIZER,
    check_blank,
    check_counts_input,
    check_counts_output,
    check_engine,
    ray_cluster,
    read_vocabulary,
)
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.disk.executors import Executor
    from lidstone.text.inputs import Input

Facts = dict[str, Any]


def count(
    texts: TEXTS,
    order: Annotated[int, Option("--order", "-n", help="Length of the longest n-grams, 1 to 8.")],
    output: OUTPUT,
    threshold: Annotated[
        list[int] | None,
        Option(
            "--threshold",
            "--prune",
            help="Drop n-grams that occur this often or less: repeated, one per order, lowest first.",
        ),
    ] = None,
    vocab: Annotated[
        Path | None,
        Option(help="One word per line, a file made by count or fit, or a run, whose tokenization is used."),
    ] = None,
    memory: Annotated[str | None, Option(help="Count on disk, in at most this much memory, such as 4G.")] = None,
    temporary: TEMPORARY = None,
    column: COLUMN = None,
    normalize: NORMALIZE = None,
    sentencepiece: SENTENCEPIECE = None,
    tokenizer: TOKENIZER = None,
    engine: Annotated[
        str | None, Option(help="ray: count on a Ray cluster, whose machines share the folder of the output.")
    ] = None,
    address: ADDRESS = None,
    skip_bad: Annotated[bool, Option("--skip-bad", help="Leave out files that cannot be read to the end.")] = False,
    blank: BLANK = "skip",
    as_json: JSON = False,
) -> None:
    """Count the n-grams of a text: one sentence per line, words separated by spaces."""
    from lidstone.ngram.trie import check_order
    from lidstone.text.inputs import expand
    from lidstone.text.raw import raw_text

    check_order(order)
    check_engine(engine, address)
    check_counts_output(output)
    run = vocab if vocab is not None and vocab.is_dir() else None
    words = None if vocab is None or run else read_vocabulary(vocab)
    raw = raw_text(normalize, sentencepiece, tokenizer)
    if raw is not None and (engine is not None or run is not None):
        raise InputError("raw text is counted on this machine, and not as a run reads it", hint="leave out --engine")
    inputs = expand(texts, column, raw)
    options = {"vocab": words, "thresholds": threshold, "blank": check_blank(blank)}
    if run is not None:
        if engine or memory or skip_bad or blank != "skip":
            hint = "leave out --memory, --engine, --skip-bad and --blank"
            raise InputError("text is counted as a run reads it in memory only", hint=hint)
        facts = count_as_run(inputs, order, output, run, threshold)
    elif engine is not None:
        with ray_cluster(engine, address):
            facts = count_on_ray(inputs, order, output, memory, temporary, skip_bad, options)
    else:
        facts = count_here(inputs, order, output, memory, temporary, skip_bad, options)
    print_summary(facts, as_json)


def merge(
    counts: Annotated[list[Path], Argument(metavar="COUNTS", help="Two or more files made by count.")],
    output: OUTPUT,
    memory: Annotated[
        str | None, Option(help="At most this much memory, such as 4G; by default half of the machine's.")
    ] = None,
    temporary: TEMPORARY = None,
    as_json: JSON = False,
) -> None:
    """Add count files: the counts of their texts together. Orders and vocabularies must be the same."""
    from lidstone.ngram.disk.add import add_files
    from lidstone.ngram.disk.memory import half_of_memory, parse_size

    check_counts_input(*counts)
    check_counts_output(output)
    limit = half_of_memory() if memory is None else parse_size(memory)
    add_files(counts, output, memory=limit, temporary=temporary, show=True)
    print_summary(summary_of_file(output, limit), as_json)


def count_here(
    inputs: list[Input],
    order: int,
    output: Path,
    memory: str | None,
    temporary: Path | None,
    skip_bad: bool,
    options: dict[str, Any],
) -> Facts:
    """Count on this machine: in memory, or on disk if the memory is limited."""
    from lidstone.ngram.counts import count_text
    from lidstone.ngram.disk.count_file import count_to_file
    from lidstone.ngram.disk.memory import parse_size
    from lidstone.ngram.formats.safetensors import save
    from lidstone.text.inputs import readable

    kept = inputs
    if skip_bad:
        kept = readable(inputs, options["vocab"], lambda error: say(f"skipped: {error.message}"))
    sources = [item.open() for item in kept]
    if memory is None:
        counts = count_text(sources, order, show=True, **options)
        save(counts, output)
        facts = summary(counts)
    else:
        limits: dict[str, Any] = {"memory": parse_size(memory), "temporary": temporary}
        count_to_file(sources, order, output, show=True, **limits, **options)
        facts = summary_of_file(output, limits["memory"])
    return {**facts, "skipped": len(inputs) - len(kept)} if skip_bad else facts


def count_as_run(inputs: list[Input], order: int, output: Path, run: Path, thresholds: list[int] | None) -> Facts:
    """Count text as the network of a run reads it: its tokenization, its merges, its ids."""
    from lidstone.lab.run.saved import load_pipeline
    from lidstone.ngram.counts import count
    from lidstone.ngram.formats.safetensors import save
    from lidstone.text.reader import read_lines

    pipeline = load_pipeline(run)
    lines = [line for item in inputs for line in read_lines(item.open())]
    ids = [found for found in pipeline.encode(lines) if len(found)]
    if not ids:
        raise InputError("there is nothing to count: no line has a word", hint="pass a text that is not empty")
    counts = count(ids, pipeline.vocabulary, order, thresholds=thresholds, append_eos=True)
    save(counts, output)
    return summary(counts)


def count_on_ray(
    inputs: list[Input],
    order: int,
    output: Path,
    memory: str | None,
    temporary: Path | None,
    skip_bad: bool,
    options: dict[str, Any],
) -> Facts:
    """Count on a Ray cluster."""
    from lidstone.ngram.disk.count_on_cluster import count_on_cluster
    from lidstone.ngram.disk.executors import TASK_MEMORY, RayExecutor
    from lidstone.ngram.disk.memory import parse_size

    limits: dict[str, Any] = {"memory": TASK_MEMORY if memory is None else parse_size(memory), "temporary": temporary}
    options = {**options, **limits, "skip_bad": skip_bad, "report": say}
    executor = RayExecutor()
    counted = count_on_cluster(inputs, order, output, executor, show=True, **options)
    facts = summary_of_file(output, limits["memory"], executor)
    return {**facts, "skipped": len(inputs) - counted} if skip_bad else facts


def summary(counts: Counts) -> Facts:
    """Sizes and signature of counts."""
    from lidstone import __version__

    levels, values = counts.trie.levels, counts.counts
    sizes = [int(levels[k] - levels[k - 1]) for k in range(2, counts.order + 1)]
    made_from = {"order": counts.order, "vocab": counts.vocab.event_count, "tokens": counts.tokens}
    identity = {"thresholds": counts.thresholds or None, "counts": counts.fingerprint}
    return {
        "tokens": counts.tokens,
        "sentences": int(values[counts.vocab.bos]),
        "vocabulary": counts.vocab.event_count,
        "ngrams": [int((values[: counts.vocab.size] > 0).sum()), *sizes],
        "signature": signature_line({**made_from, **identity, "lidstone": __version__}),
    }


def summary_of_file(path: Path, memory: int, executor: Executor | None = None) -> Facts:
    """Sizes and signature of a count file, without reading it into memory."""
    from lidstone.ngram.disk.derive import CountFiles, identify
    from lidstone.ngram.disk.executors import ThreadExecutor, page_limit
    from lidstone.ngram.disk.memory import limit_pages
    from lidstone.parallel import cores

    files, counts = CountFiles.load(path)
    executor = executor or ThreadExecutor(cores())
    with limit_pages(page_limit(executor, memory), counts.counts):
        identify(counts, files, executor)
        return summary(counts)


def print_summary(facts: Facts, as_json: bool) -> None:
    """Print sizes and signature."""
    if as_json:
        print_json(facts)
        return
    print(f"{facts['tokens']:,} tokens in {facts['sentences']:,} sentences, vocabulary {facts['vocabulary']:,}")
    print_table(
        ["order", "distinct n-grams"],
        [[str(order), f"{types:,}"] for order, types in enumerate(facts["ngrams"], start=1)],
    )
    print(facts["signature"])
