"""`lidstone translate`: lines in, translations out."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from lidstone.cli.console import print_json
from lidstone.cli.evaluate import RUN
from lidstone.cli.inputs import JSON

CHUNK = 1024  # lines searched before the first of them is written


def translate(
    run: RUN,
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="Lines to translate; - is standard input.")] = "-",
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Scores are divided by length to this power.")] = None,
    as_json: JSON = False,
) -> None:
    """Translate text line by line with the model of a run."""
    from lidstone.lab.run.run import quiet_transformers
    from lidstone.lab.run.saved import load_saved
    from lidstone.lab.run.use import translate_lines
    from lidstone.text.reader import read_lines

    quiet_transformers()
    saved = load_saved(run, task="mt")
    changes: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty}
    given = {name: value for name, value in changes.items() if value is not None}
    search = saved.beam.model_validate({**saved.beam.model_dump(), **given})
    lines, first = iter(read_lines(text)), 1
    while chunk := list(islice(lines, CHUNK)):
        for source, target in zip(chunk, translate_lines(saved, chunk, search, first), strict=True):
            print_json({"source": source, "translation": target}) if as_json else print(target, flush=True)
        first += len(chunk)
