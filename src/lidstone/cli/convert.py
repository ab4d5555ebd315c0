"""`lidstone convert`: a table as ARPA, or ARPA as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lidstone.cli.console import print_json, say, table_signature
from lidstone.cli.inputs import JSON, MODEL, check_folder, is_arpa, read_table


def convert(
    source: MODEL,
    target: Annotated[
        str,
        typer.Argument(metavar="OUTPUT", help="*.arpa, *.arpa.gz (bz2, xz, zst) or - write ARPA; else a table."),
    ],
    as_json: JSON = False,
) -> None:
    """Turn a table into an ARPA file, for KenLM, SRILM and others, or an ARPA file into a table."""
    from lidstone.ngram.arpa import write_arpa

    if target != "-":
        check_folder(Path(target))
    table = read_table(source)
    write_arpa(table, target) if is_arpa(target) else table.save(target)
    if as_json and target != "-":
        print_json({"output": target, "signature": table_signature(table)})
    else:
        say(table_signature(table))
