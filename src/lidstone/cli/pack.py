"""`lidstone pack`: finished runs in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lidstone.cli.console import print_json, say
from lidstone.cli.inputs import JSON


def pack(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or packed studies.", metavar="RUNS")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The packed study, a name that ends in .runs.")],
    as_json: JSON = False,
) -> None:
    """Pack finished runs, without their models, into one file that report and compare read.

    Runs are added to a study that is there; one with the same id is replaced.
    """
    from lidstone.lab.report.runs import pack_runs

    number, new = pack_runs(runs, output)
    if as_json:
        print_json({"study": str(output), "runs": number, "new": new, "bytes": output.stat().st_size})
    else:
        say(f"{output} has {number} runs, {new} of them new")
