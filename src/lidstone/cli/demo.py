"""`lidstone demo`: every smoother on text that comes with Python, judged by held-out perplexity."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.console import print_json, print_table, say
from lidstone.cli.inputs import JSON
from lidstone.errors import LidstoneError

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts

SMOKE_SENTENCES = 500
PARAMETERS: dict[str, dict[str, Any]] = {"add-lambda": {"lam": 0.01}}
"""Settings other than a smoother's own defaults: one added occurrence of every word is far too much."""


def demo(
    smoke: Annotated[bool, typer.Option("--smoke", help="A fraction of the text: does it run at all?")] = False,
    order: Annotated[int, typer.Option("--order", "-n", help="Length of the longest n-grams, 1 to 8.")] = 3,
    as_json: JSON = False,
) -> None:
    """Count Python's own reference text, fit every smoother, and compare their held-out perplexities."""
    from lidstone.text.corpora import embedded_corpus, split_sentences

    train, _, test = split_sentences(embedded_corpus()[: SMOKE_SENTENCES if smoke else None])
    counts = count_words(train, order)
    say(f"counted {counts.tokens:,} tokens, {counts.trie.size:,} n-grams of order 1 to {order}")
    held_out = [counts.vocab.encode(sentence) for sentence in test]
    results = sorted(compare(counts, held_out), key=lambda row: row["perplexity"])
    print_json({"results": results}) if as_json else _print(results)


def count_words(sentences: list[list[str]], order: int) -> Counts:
    """Counts of sentences of words, over the words that occur in them."""
    from lidstone.ngram.counts import count
    from lidstone.text.vocabulary import Vocabulary

    vocab = Vocabulary.from_words(dict.fromkeys(word for sentence in sentences for word in sentence))
    return count([vocab.encode(sentence) for sentence in sentences], vocab, order)


def compare(counts: Counts, held_out: list[Any]) -> list[dict[str, Any]]:
    """Fit every smoother that is defined for these counts, and score the held-out sentences with it."""
    from lidstone.ngram.smoothers.registry import get_smoother, smoother_names

    rows = []
    for name in smoother_names():
        begin = time.perf_counter()
        try:
            table = get_smoother(name, **PARAMETERS.get(name, {})).fit(counts)
        except LidstoneError as error:
            say(f"{name}: {error}")
            continue
        seconds = time.perf_counter() - begin
        found = table.perplexity(held_out)
        rows.append({"smoother": name, "perplexity": found.value, "seconds": seconds, **_denominator(found)})
    return rows


def _denominator(found: Any) -> dict[str, Any]:
    return {"tokens": found.tokens, "oov": found.oov, "vocabulary": found.vocabulary}


def _print(results: list[dict[str, Any]]) -> None:
    rows = [[row["smoother"], f"{row['perplexity']:.2f}", f"{row['seconds']:.3f}"] for row in results]
    print_table(["smoother", "perplexity", "seconds"], rows)
    print("held-out text: {tokens:,} tokens, {oov:,} OOV, vocabulary {vocabulary:,}".format(**results[0]))
