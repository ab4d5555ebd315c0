"""`lidstone count`: from text to a file of n-gram counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.console import print_json, print_table, say, signature_line
from lidstone.cli.inputs import BLANK, JSON, OUTPUT, TEXTS, check_blank, check_folder, read_vocabulary
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.text.inputs import Input
    from lidstone.text.vocabulary import Vocabulary
    from lidstone.text.words import Blank


def count(
    texts: TEXTS,
    order: Annotated[int, typer.Option("--order", "-n", help="Length of the longest n-grams, 1 to 8.")],
    output: OUTPUT,
    threshold: Annotated[
        list[int] | None,
        typer.Option(help="Drop n-grams that occur this often or less: one per order, lowest first."),
    ] = None,
    vocab: Annotated[Path | None, typer.Option(help="One word per line, or counts: all others become <unk>.")] = None,
    memory: Annotated[str | None, typer.Option(help="Count on disk, in at most this much memory, such as 4G.")] = None,
    temporary: Annotated[
        Path | None, typer.Option(help="The folder for temporary files; beside the output unless given.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="The column of Parquet or JSON lines files to read.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out files that cannot be read to the end.")
    ] = False,
    blank: BLANK = "skip",
    as_json: JSON = False,
) -> None:
    """Count the n-grams of a text: one sentence a line, words between spaces."""
    from lidstone.ngram.trie import check_order
    from lidstone.text.inputs import expand, readable

    check_order(order)
    check_folder(output)
    words = None if vocab is None else read_vocabulary(vocab)
    given = expand(texts, column)
    inputs = readable(given, words, lambda error: say(f"skipped: {error.message}")) if skip_bad else given
    if memory is None:
        counts = _count_in_memory(inputs, order, words, threshold, check_blank(blank), output)
    elif check_blank(blank) == "count":
        raise InputError("--memory skips blank lines", hint="leave out --blank count, or --memory")
    else:
        counts = _count_on_disk(inputs, order, words, threshold, output, memory, temporary)
    skipped = {"skipped": len(given) - len(inputs)} if skip_bad else {}
    print_summary({**summary(counts), **skipped}, as_json)


def _count_in_memory(
    inputs: list[Input],
    order: int,
    vocab: Vocabulary | None,
    threshold: list[int] | None,
    blank: Blank,
    output: Path,
) -> Counts:
    from lidstone.ngram.counts import count_text
    from lidstone.ngram.storage import save

    sources = [item.open() for item in inputs]
    counts = count_text(sources, order, vocab=vocab, thresholds=threshold, blank=blank, show=True)
    save(counts, output)
    return counts


def _count_on_disk(
    inputs: list[Input],
    order: int,
    vocab: Vocabulary | None,
    threshold: list[int] | None,
    output: Path,
    memory: str,
    temporary: Path | None,
) -> Counts:
    from lidstone.ngram.scale.external import count_to_file
    from lidstone.ngram.scale.memory import parse_size
    from lidstone.ngram.storage import load_counts

    limit = parse_size(memory)
    if threshold and any(threshold):
        raise InputError("--memory counts everything", hint="leave out --threshold, or --memory")
    sources = [item.open() for item in inputs]
    count_to_file(sources, order, output, memory=limit, vocab=vocab, temporary=temporary, show=True)
    return load_counts(output, verify=False)


def summary(counts: Counts) -> dict[str, Any]:
    """What was counted, with its signature."""
    from lidstone import __version__

    trie = counts.trie
    seen = int((counts.counts[: counts.vocab.size] > 0).sum())
    facts = {
        "tokens": counts.tokens,
        "sentences": int(counts.counts[counts.vocab.bos]),
        "vocabulary": counts.vocab.event_count,
        "ngrams": [seen, *(int(trie.levels[k] - trie.levels[k - 1]) for k in range(2, counts.order + 1))],
    }
    made_from = {"order": counts.order, "vocab": counts.vocab.event_count, "tokens": counts.tokens}
    thresholds = counts.thresholds or None
    identity = {"thresholds": thresholds, "counts": counts.fingerprint, "lidstone": __version__}
    return {**facts, "signature": signature_line({**made_from, **identity})}


def print_summary(facts: dict[str, Any], as_json: bool) -> None:
    """Say what was counted."""
    if as_json:
        print_json(facts)
        return
    print(f"{facts['tokens']:,} tokens in {facts['sentences']:,} sentences, vocabulary {facts['vocabulary']:,}")
    print_table(
        ["order", "distinct n-grams"],
        [[str(order), f"{types:,}"] for order, types in enumerate(facts["ngrams"], start=1)],
    )
    print(facts["signature"])
