"""`lidstone unpack`: the runs of a packed study as folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lidstone.cli.console import print_json, say
from lidstone.cli.inputs import JSON


def unpack(
    study: Annotated[Path, typer.Argument(help="A file made by pack.", metavar="STUDY")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of runs, which may have some already.")],
    as_json: JSON = False,
) -> None:
    """Write the runs of a packed study as folders, where a sweep can continue; runs that are there stay as they are."""
    from lidstone.lab.report.packed import unpack

    written, kept = unpack(study, output)
    if as_json:
        print_json({"output": str(output), "written": written, "kept": kept})
    else:
        say(f"wrote {written} runs into {output}" + (f"; {kept} were there already" if kept else ""))
