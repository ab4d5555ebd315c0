"""`lidstone score`: perplexity of a text, whole or by the sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.console import print_json, table_signature
from lidstone.cli.inputs import JSON, MODEL, TEXTS, read_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lidstone.ngram.table import BackoffTable


def score(
    table: MODEL,
    texts: TEXTS,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="One line per sentence: log10 probability, tokens, OOV.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Perplexity of a text under a model; ends of sentences count as tokens."""
    import hashlib

    from lidstone.text.words import read_words

    model = read_table(table)
    digest = hashlib.blake2b(digest_size=8)
    ids, _ = read_words(texts, model.vocab, show=True, seen=lambda text: digest.update(_words_alone(text)))
    facts = summary(model, ids, digest.hexdigest())
    rows = by_sentence(model, ids) if sentences else []
    if as_json:
        print_json({**facts, **({"sentences": rows} if sentences else {})})
    else:
        _print(facts, rows)


def _words_alone(text: bytes) -> bytes:
    """Lines without what makes no difference: empty ones, and more than one space between words."""
    return b"".join(b" ".join(words) + b"\n" for line in text.split(b"\n") if (words := line.split()))


def summary(table: BackoffTable, ids: NDArray[np.int32], text: str) -> dict[str, Any]:
    """Perplexity, its denominator, and what it was measured on and with; `text` is a hash of the text's words."""
    found = table.perplexity(ids)
    return {
        "perplexity": found.value,
        "tokens": found.tokens,
        "oov": found.oov,
        "vocabulary": found.vocabulary,
        "signature": f"{table_signature(table)}|text:{text}",
    }


def by_sentence(table: BackoffTable, ids: NDArray[np.int32]) -> list[dict[str, Any]]:
    """For each sentence the log10 of its probability, its tokens with the end, and how many are unknown."""
    import numpy as np

    starts = np.concatenate([[0], np.flatnonzero(ids == table.vocab.eos)[:-1] + 1])
    logs = np.add.reduceat(table.token_logprobs(ids), starts) / np.log(10)
    tokens = np.diff(starts, append=len(ids))
    unknown = ids == (-1 if table.vocab.unk is None else table.vocab.unk)
    oov = np.add.reduceat(unknown.astype(np.int64), starts)
    return [
        {"log10": float(log), "tokens": int(size), "oov": int(missing)}
        for log, size, missing in zip(logs, tokens, oov, strict=True)
    ]


def _print(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(f"{row['log10']:.6f}\t{row['tokens']}\t{row['oov']}")
    counted = f"{facts['tokens']:,} tokens, {facts['oov']:,} OOV, vocabulary {facts['vocabulary']:,}"
    print(f"perplexity {facts['perplexity']:.4f}  ({counted})")
    print(facts["signature"])
