"""`lidstone init`: a commented recipe for a user's own text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lidstone.cli.console import print_json, say
from lidstone.cli.inputs import JSON


def init(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Text files; for translation SOURCE TARGET.")],
    task: Annotated[str, typer.Option(help="lm: language model; mt: translation.")] = "lm",
    output: Annotated[str, typer.Option("--output", "-o", help="The recipe to write; - is stdout.")] = "recipe.yaml",
    name: Annotated[str | None, typer.Option(help="What results are filed under.")] = None,
    force: Annotated[bool, typer.Option(help="Replace an existing recipe.")] = False,
    as_json: JSON = False,
) -> None:
    """Write a recipe to start from: sizes chosen for your text, every value commented."""
    from lidstone.recipe.template import recipe_text, write_recipe

    if task not in ("lm", "mt"):
        raise typer.BadParameter(f"'{task}' is neither lm nor mt", param_hint="--task")
    if output == "-":
        print(recipe_text(task, files, folder=Path(), name=name or "mine"), end="")
        return
    path = write_recipe(task, files, output, name=name, force=force)
    if as_json:
        print_json({"recipe": str(path), "task": task})
    else:
        print(path)
        say(f"next: lidstone train {path}")
