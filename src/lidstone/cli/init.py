"""`lidstone init`: a commented recipe for a user's own text."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer
from typer import Argument, Option

from lidstone.cli.console import print_json, say
from lidstone.cli.inputs import JSON
from lidstone.errors import InputError


def init(
    files: Annotated[list[str], Argument(metavar="FILE", help="Text files; for translation SOURCE TARGET.")],
    task: Annotated[str, Option(help="lm: language model; mt: translation.")] = "lm",
    output: Annotated[str, Option("--output", "-o", help="The recipe to write; - is stdout.")] = "recipe.yaml",
    name: Annotated[
        str | None, Option(help="The name of the study in reports. [default: the name of the text]")
    ] = None,
    force: Annotated[bool, Option(help="Replace an existing recipe.")] = False,
    as_json: JSON = False,
) -> None:
    """Write a recipe to start from: sizes and tokenization chosen for your text, every value commented."""
    from lidstone.lab.recipe.template import choose, recipe_text, write_recipe

    if task not in ("lm", "mt"):
        raise typer.BadParameter(f"'{task}' is neither lm nor mt", param_hint="--task")
    if "-" in files:
        raise InputError("a recipe names text files, not standard input", hint="write the text into a file first")
    if output == "-":
        print(recipe_text(choose(task, files, name=name)), end="")
        return
    chosen = write_recipe(task, files, output, name=name, force=force)
    if as_json:
        print_json({"recipe": output, "task": task, "name": chosen.name, "tokenization": chosen.tokenization})
        return
    print(output)
    for line in chosen.lines():
        say(line)
    quoted = shlex.quote(output)
    say(f"next: lidstone train {quoted}, or lidstone sweep {quoted} to choose the strength")
