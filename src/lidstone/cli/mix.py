"""`lidstone mix`: several models as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.console import print_json, print_pairs, say, table_signature
from lidstone.cli.inputs import JSON, MODEL_OUTPUT, check_model_output, read_table, write_table
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable


def mix(
    tables: Annotated[
        list[str], typer.Argument(metavar="TABLE", help="Two models or more: tables, ARPA files or KenLM tries.")
    ],
    output: MODEL_OUTPUT,
    weights: Annotated[
        str | None,
        typer.Option("--weights", "-w", help="One per model, such as 0.7,0.3, or em to learn them; equal if left out."),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", metavar="TEXT", help="The text that em learns the weights from.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Mix models linearly into one: exact for every n-gram that any of them lists."""
    from lidstone.ngram.mixing import mix as mix_tables

    check_model_output(output)
    shares = parse_weights(weights)
    mixed = mix_tables([read_table(path) for path in tables], shares, text=text or None)
    write_table(mixed, output)
    if str(output) == "-":
        say(table_signature(mixed))
    else:
        _print(mixed, tables, as_json)


def parse_weights(text: str | None) -> Any:
    """Numbers separated by commas, or `em`.

    >>> parse_weights("0.7,0.3"), parse_weights("em"), parse_weights(None)
    ([0.7, 0.3], 'em', None)
    """
    if text is None or text == "em":
        return text
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--weights {text} are not numbers", hint="use numbers such as 0.7,0.3, or em") from error


def _print(table: BackoffTable, names: list[str], as_json: bool) -> None:
    weights = table.signature["parameters"]["weights"]
    signature = table_signature(table)
    if as_json:
        print_json({"weights": weights, "models": names, "ngrams": table.trie.size, "signature": signature})
        return
    shares = {name: f"{weight:.6f}" for name, weight in zip(names, weights, strict=True)}
    print_pairs({**shares, "n-grams": f"{table.trie.size:,}"})
    print(signature)
