"""`lidstone generate`: sentences drawn from a trained language model."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lidstone.cli.console import print_json
from lidstone.cli.evaluate import FIT_WEIGHT, MIX, RUN, WEIGHT, WINDOW, read_mixture
from lidstone.cli.inputs import JSON


def generate(
    run: RUN,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="Prompts, one per line; - is standard input, the default in a pipe."),
    ] = None,
    number: Annotated[int, typer.Option("--number", "-N", min=1, help="Sentences per prompt.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same sentences.")] = 0,
    temperature: Annotated[
        float, typer.Option(min=0.01, help="Below 1: likelier tokens; above 1: more variety.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw among the k most probable tokens; 0: all.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="The largest number of new tokens.")] = 100,
    mix: MIX = None,
    weight: WEIGHT = None,
    fit_weight: FIT_WEIGHT = None,
    window: WINDOW = None,
    as_json: JSON = False,
) -> None:
    """Continue each prompt to the end of its sentence; without prompts, draw whole sentences."""
    from lidstone.lab.run.run import quiet_transformers
    from lidstone.lab.run.saved import load_saved
    from lidstone.lab.run.use import continue_prompt

    quiet_transformers()
    saved = load_saved(run, task="lm", window=window)
    mixture = read_mixture(saved, run, mix, weight, fit_weight)
    for prompt in _prompts(text):
        options = {"number": number, "seed": seed, "temperature": temperature, "top_k": top_k, "limit": limit}
        found = continue_prompt(saved, prompt, mixture=mixture, **options)  # type: ignore[arg-type]
        if as_json:
            mixed = {} if mixture is None else {"mix": mix, "weight": mixture.weight}
            print_json({"prompt": prompt, "sentences": found, **options, **mixed})
        else:
            print("\n".join(found))


def _prompts(text: str | None) -> list[str]:
    from lidstone.text.reader import read_lines

    if text is None and sys.stdin.isatty():
        return [""]
    return list(read_lines(text or "-")) or [""]
