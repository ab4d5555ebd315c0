"""`lidstone count`: from text to a file of n-gram counts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lidstone.cli.inputs import (
    BLANK,
    JSON,
    OUTPUT,
    TEXTS,
    check_address,
    check_blank,
    check_counts_output,
    read_vocabulary,
)
from lidstone.errors import InputError


def count(
    texts: TEXTS,
    order: Annotated[int, typer.Option("--order", "-n", help="Length of the longest n-grams, 1 to 8.")],
    output: OUTPUT,
    threshold: Annotated[
        list[int] | None,
        typer.Option(help="Drop n-grams that occur this often or less: one per order, lowest first."),
    ] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(help="One word per line, a file made by count or fit, or a run, whose tokenization is used."),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Count on disk, in at most this much memory, such as 4G.")] = None,
    temporary: Annotated[
        Path | None, typer.Option(help="The folder for temporary files; by default that of the output.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="The column of Parquet or JSON lines files to read.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="ray: count on a Ray cluster, into a folder of parts that fit reads.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster; by default a new one.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out files that cannot be read to the end.")
    ] = False,
    blank: BLANK = "skip",
    as_json: JSON = False,
) -> None:
    """Count the n-grams of a text: one sentence per line, words separated by spaces."""
    from lidstone.cli.ngram.counting import (
        Settings,
        count_as_run,
        count_in_memory,
        count_on_cluster,
        count_on_disk,
        print_summary,
    )
    from lidstone.ngram.trie import check_order
    from lidstone.text.reading.inputs import expand

    check_order(order)
    check_address(engine, address)
    check_counts_output(output, folder=engine is not None)
    run = vocab if vocab is not None and vocab.is_dir() else None
    words = None if vocab is None or run else read_vocabulary(vocab)
    inputs, treatment = expand(texts, column), check_blank(blank)
    settings = Settings(inputs, order, output, words, threshold, memory, temporary, skip_bad, treatment)
    if run is not None:
        if engine or memory or skip_bad or blank != "skip":
            hint = "leave out --memory, --engine, --skip-bad and --blank"
            raise InputError("text is counted as a run reads it in memory only", hint=hint)
        facts = count_as_run(settings, run)
    elif engine is not None:
        facts = count_on_cluster(settings, engine, address)
    elif memory is not None:
        facts = count_on_disk(settings)
    else:
        facts = count_in_memory(settings)
    print_summary(facts, as_json)
