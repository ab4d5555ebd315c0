"""`lidstone merge`: add count files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lidstone.cli.count import print_summary, summary_of_file
from lidstone.cli.inputs import JSON, OUTPUT, TEMPORARY, check_counts_input, check_counts_output


def merge(
    counts: Annotated[list[Path], typer.Argument(metavar="COUNTS", help="Two or more files made by count.")],
    output: OUTPUT,
    memory: Annotated[
        str | None, typer.Option(help="At most this much memory, such as 4G; by default half of the machine's.")
    ] = None,
    temporary: TEMPORARY = None,
    as_json: JSON = False,
) -> None:
    """Add count files: the counts of their texts together. Orders and vocabularies must be the same."""
    from lidstone.ngram.cluster.parts import gathered
    from lidstone.ngram.disk.add import add_files
    from lidstone.ngram.disk.memory import half_of_memory, parse_size

    check_counts_input(*counts)
    check_counts_output(output)
    limit = half_of_memory() if memory is None else parse_size(memory)
    add_files([gathered(path) for path in counts], output, memory=limit, temporary=temporary, show=True)
    print_summary(summary_of_file(output), as_json)
