"""`lidstone sample`: draw sentences from a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lidstone.cli.console import print_json, say, table_signature
from lidstone.cli.inputs import JSON, MODEL, read_table

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable


def sample(
    table: MODEL,
    number: Annotated[int, typer.Option("--number", "-N", min=1, help="How many sentences.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same sentences.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="The longest sentence, in words.")] = 100,
    as_json: JSON = False,
) -> None:
    """Draw sentences from a model, one per line; the signature goes to stderr."""
    model = read_table(table)
    sentences = draw(model, number, seed, limit)
    signature = f"{table_signature(model)}|seed:{seed}"
    if as_json:
        print_json({"sentences": list(sentences), "signature": signature})
        return
    for sentence in sentences:
        print(sentence)
    say(signature)


def draw(table: BackoffTable, number: int, seed: int, limit: int) -> Iterator[str]:
    """Sentences as text; each has its own seed, so the first ones do not depend on `number`."""
    import numpy as np

    tokens = table.vocab.tokens or [str(token) for token in range(table.vocab.size)]
    seeds = np.random.default_rng(seed)
    for _ in range(number):
        sentence = table.sample(seed=int(seeds.integers(2**63)), limit=limit)
        yield " ".join(tokens[word] for word in sentence)
