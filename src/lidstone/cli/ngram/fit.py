"""`lidstone fit`: from counts to a smoothed model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.completion import smoothers
from lidstone.cli.console import brief, print_json, print_pairs, say, table_signature
from lidstone.cli.inputs import JSON, MODEL_FILE, check_address, check_model_output, write_table
from lidstone.cli.ngram.fitting import Where, fit_on_disk
from lidstone.cli.settings import parse_settings
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable

IN_SIGNATURE = ("parameters", "order", "thresholds", "vocabulary", "counts")
"""Keys that are in the signature line; the others are results of fitting, printed above it."""


def fit(
    counts: Annotated[str, typer.Argument(metavar="COUNTS", help="A file or folder made by count.")],
    output: Annotated[Path, typer.Option("--output", "-o", help=MODEL_FILE)],
    smoother: Annotated[
        str,
        typer.Option(
            "--smoother", "-s", autocompletion=smoothers, help="Its name, such as katz; an unknown name lists all."
        ),
    ] = "modified-kneser-ney",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter, such as k=5; may be repeated.")
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Text that was not counted, to learn Jelinek-Mercer weights from."),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Fit on disk, in at most this much memory, such as 4G.")] = None,
    temporary: Annotated[
        Path | None, typer.Option(help="The folder for temporary files; by default that of the output.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="ray: fit blocks of histories on a Ray cluster.")] = None,
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster; by default a new one.")] = None,
    as_json: JSON = False,
) -> None:
    """Fit a smoother to counts: a table of probabilities and back-off weights."""
    from lidstone.ngram.cluster.parted import gathered
    from lidstone.ngram.formats.safetensors import load_counts
    from lidstone.ngram.smoothers.registry import get_smoother

    check_model_output(output)
    check_address(engine, address)
    parameters = parse_settings(settings or [])
    chosen = get_smoother(smoother, **parameters)
    if memory is not None or engine is not None:
        where = Where(memory, temporary, engine, address)
        table = fit_on_disk(counts, output, smoother, chosen, where, held_out)
    else:
        loaded = load_counts(gathered(counts))
        if held_out:
            chosen = learn(smoother, parameters, loaded, held_out)
        table = chosen.fit(loaded)
        write_table(table, output)
    if str(output) == "-":
        say(table_signature(table))
    else:
        _print(table, as_json)


def learn(name: str, parameters: dict[str, Any], counts: Counts, texts: list[str]) -> Any:
    """The smoother with the weights that make held-out text most likely."""
    from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer
    from lidstone.ngram.smoothers.registry import smoother_class
    from lidstone.text.words import read_words

    if smoother_class(name) is not JelinekMercer:
        raise InputError(f"{name} does not use held-out text", hint="leave out --held-out; only jelinek-mercer uses it")
    if "weights" in parameters:
        raise InputError("weights are given and to be learnt", hint="leave out --set weights or --held-out")
    ids, _ = read_words(texts, counts.vocab, show=True)
    return JelinekMercer.learn(counts, ids, **parameters)


def _print(table: BackoffTable, as_json: bool) -> None:
    signature = table_signature(table)
    if as_json:
        print_json({"table": table.signature, "ngrams": table.trie.size, "signature": signature})
        return
    found = {name: brief(fact) for name, fact in table.signature.items() if fact and name not in IN_SIGNATURE}
    parameters = {name: brief(value) for name, value in table.signature["parameters"].items() if value is not None}
    print_pairs({**found, **parameters, "n-grams": f"{table.trie.size:,}"})
    print(signature)
