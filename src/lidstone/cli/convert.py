"""`lidstone convert`: a table as ARPA, or ARPA as a table."""

from __future__ import annotations

from typing import Annotated

import typer

from lidstone.cli.console import print_json, say, table_signature
from lidstone.cli.inputs import JSON, MODEL, MODEL_FILES, check_model_output, read_table, write_table
from lidstone.errors import LidstoneError


def convert(
    source: MODEL,
    target: Annotated[str, typer.Argument(metavar="OUTPUT", help=MODEL_FILES)],
    single: Annotated[
        bool, typer.Option("--float32", help="Write a table in single precision, with 4 bytes per value.")
    ] = False,
    bits: Annotated[
        int, typer.Option(metavar="8|16|32|64", help="Bits per value of a table; 8 and 16 are rounded codes.")
    ] = 64,
    pack: Annotated[
        bool, typer.Option("--pack", help="Write words and pointers of a table in as few bits as they need.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Turn a table into an ARPA file, for KenLM and others, or into a compact table; or an ARPA file into a table."""
    check_model_output(target)
    if single and bits not in (32, 64):
        raise LidstoneError(f"--float32 and --bits {bits} contradict each other", hint="give one of them")
    table = read_table(source).compact(32 if single else bits, pack=pack)
    write_table(table, target)
    if as_json and target != "-":
        print_json({"output": target, "signature": table_signature(table)})
    else:
        say(table_signature(table))
