"""`lidstone prune`: a smaller model that is nearly as good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lidstone.cli.console import print_json, print_table, say, table_signature
from lidstone.cli.inputs import JSON, MODEL, MODEL_OUTPUT, check_model_output, read_table, write_table

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable


def prune(
    table: MODEL,
    output: MODEL_OUTPUT,
    entropy: Annotated[
        float | None,
        typer.Option(help="Drop n-grams that change the perplexity by less than this fraction: 1e-8 is usual."),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Or keep this many n-grams at most, all orders together.")] = None,
    as_json: JSON = False,
) -> None:
    """Drop the least important n-grams by relative entropy (Stolcke 1998); the result still sums to one."""
    from lidstone.ngram.prune import prune as prune_table

    check_model_output(output)
    whole = read_table(table)
    pruned = prune_table(whole, entropy=entropy, size=size)
    write_table(pruned, output)
    if str(output) == "-":
        say(table_signature(pruned))
    else:
        _print(whole, pruned, as_json)


def _print(whole: BackoffTable, pruned: BackoffTable, as_json: bool) -> None:
    before, after = (
        [int(table.trie.levels[k] - table.trie.levels[k - 1]) for k in range(1, table.order + 1)]
        for table in (whole, pruned)
    )
    if as_json:
        print_json({"before": before, "after": after, "signature": table_signature(pruned)})
        return
    orders = range(1, whole.order + 1)
    rows = [[str(order), f"{b:,}", f"{a:,}"] for order, b, a in zip(orders, before, after, strict=True)]
    print_table(["order", "before", "after"], rows)
    print(table_signature(pruned))
