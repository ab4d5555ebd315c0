"""`lidstone count`: from text to a file of n-gram counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.console import print_json, print_table, signature_line
from lidstone.cli.inputs import JSON, OUTPUT, TEXTS, check_folder, read_vocabulary

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts


def count(
    texts: TEXTS,
    order: Annotated[int, typer.Option("--order", "-n", help="Length of the longest n-grams, 1 to 8.")],
    output: OUTPUT,
    threshold: Annotated[
        list[int] | None,
        typer.Option(help="Drop n-grams that occur this often or less: one per order, lowest first."),
    ] = None,
    vocab: Annotated[Path | None, typer.Option(help="A file with one word per line; all others become <unk>.")] = None,
    as_json: JSON = False,
) -> None:
    """Count the n-grams of a text: one sentence a line, words between spaces."""
    from lidstone.ngram.counts import count_text
    from lidstone.ngram.storage import save
    from lidstone.ngram.trie import check_order

    check_order(order)
    check_folder(output)
    words = None if vocab is None else read_vocabulary(vocab)
    counts = count_text(texts, order, vocab=words, thresholds=threshold, show=True)
    save(counts, output)
    _print(summary(counts), as_json)


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


def _print(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    print(f"{facts['tokens']:,} tokens in {facts['sentences']:,} sentences, vocabulary {facts['vocabulary']:,}")
    print_table(
        ["order", "distinct n-grams"],
        [[str(order), f"{types:,}"] for order, types in enumerate(facts["ngrams"], start=1)],
    )
    print(facts["signature"])
