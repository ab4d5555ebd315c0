"""`lidstone fit`: from counts to a smoothed model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from lidstone.cli.console import brief, print_model, print_pairs
from lidstone.cli.inputs import (
    ADDRESS,
    JSON,
    MODEL_OUTPUT,
    TEMPORARY,
    check_counts_input,
    check_engine,
    check_model_output,
    complete_smoothers,
    is_arpa,
    parse_settings,
    ray_cluster,
    write_table,
)
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable

IN_SIGNATURE = ("parameters", "order", "thresholds", "vocabulary", "counts")
"""Keys that are in the signature line; the others are results of fitting, printed above it."""


def fit(
    counts: Annotated[str, Argument(metavar="COUNTS", help="A file made by count.")],
    output: MODEL_OUTPUT,
    smoother: Annotated[
        str,
        Option(
            "--smoother",
            "-s",
            autocompletion=complete_smoothers,
            help="Its name, such as katz; an unknown name lists all.",
        ),
    ] = "modified-kneser-ney",
    settings: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="A parameter, such as k=5; may be repeated.")
    ] = None,
    held_out: Annotated[
        list[str] | None,
        Option(metavar="TEXT", help="Text that was not counted, to learn Jelinek-Mercer weights from."),
    ] = None,
    memory: Annotated[str | None, Option(help="Fit on disk, in at most this much memory, such as 4G.")] = None,
    temporary: TEMPORARY = None,
    engine: Annotated[str | None, Option(help="ray: fit blocks of histories on a Ray cluster.")] = None,
    address: ADDRESS = None,
    as_json: JSON = False,
) -> None:
    """Fit a smoother to counts: a table of probabilities and back-off weights."""
    from lidstone.ngram.formats.safetensors import load_counts
    from lidstone.ngram.smoothers.registry import get_smoother

    check_counts_input(counts)
    check_model_output(output)
    check_engine(engine, address)
    parameters = parse_settings(settings or [])
    chosen = get_smoother(smoother, **parameters)
    if memory is None and engine is None:
        loaded = load_counts(counts)
        if held_out:
            chosen = learn(smoother, parameters, loaded, held_out)
        table = chosen.fit(loaded)
        write_table(table, output)
    else:
        if held_out:
            hint = "learn the weights from a part of the counts, then give them with --set weights="
            raise InputError(f"--held-out cannot be combined with {'--memory' if memory else '--engine'}", hint=hint)
        with ray_cluster(engine, address):
            table = fit_on_disk(counts, output, smoother, chosen, memory, temporary, on_ray=engine is not None)
    facts = {"table": table.signature, "ngrams": table.trie.size}
    print_model(table, output, facts, as_json, lambda: print_pairs(_shown(table)))


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


def fit_on_disk(
    counts: str,
    output: Path,
    name: str,
    smoother: Any,
    limit: str | None,
    temporary: Path | None,
    *,
    on_ray: bool,
) -> BackoffTable:
    """Fit in limited memory, here or on a Ray cluster, and map the table into memory."""
    from lidstone.ngram.disk.executors import TASK_MEMORY, RayExecutor, ThreadExecutor
    from lidstone.ngram.disk.fit import fit_to_file, write_arpa_by_tasks
    from lidstone.ngram.disk.memory import parse_size
    from lidstone.ngram.formats.safetensors import load_table
    from lidstone.ngram.smoothers.base import require_blocks
    from lidstone.parallel import cores

    require_blocks(smoother, name)
    options: dict[str, Any] = {"memory": TASK_MEMORY if limit is None else parse_size(limit)}
    executor = RayExecutor() if on_ray else ThreadExecutor(cores())

    def fit_table(target: Path) -> None:
        fit_to_file(counts, target, smoother, temporary=temporary, executor=executor, show=True, **options)

    if not is_arpa(output):
        fit_table(output)
        return load_table(output, verify=False)
    place = temporary or (Path() if str(output) == "-" else output.parent)
    with tempfile.TemporaryDirectory(prefix=".fitting-", dir=place) as folder:  # ARPA is written from a table
        fit_table(Path(folder) / "model.table")
        return write_arpa_by_tasks(Path(folder) / "model.table", output, executor, **options)


def _shown(table: BackoffTable) -> dict[str, str]:
    found = {name: brief(fact) for name, fact in table.signature.items() if fact and name not in IN_SIGNATURE}
    parameters = {name: brief(value) for name, value in table.signature["parameters"].items() if value is not None}
    return {**found, **parameters, "n-grams": f"{table.trie.size:,}"}
