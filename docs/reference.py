"""The generated tables of docs/recipes.md and docs/cli.md: recipe keys and command-line options, from the code.

A table stands between `<!-- keys: corpus -->` or `<!-- options: count -->` and `<!-- end -->`.
`python docs/reference.py` writes all of them; a test compares. The sentences around them are written by people.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from lidstone.cli.main import VERBS, app
from lidstone.lab.methods.base import Regularizer, ScheduleSection, TeacherSettings
from lidstone.lab.recipe.sections import Corpus, Evaluation, ModelSpec, SweepSettings, Tokenizer, Training

DOCS = Path(__file__).resolve().parent
SECTIONS = {
    "corpus": Corpus,
    "tokenizer": Tokenizer,
    "model": ModelSpec,
    "regularizer": Regularizer,
    "regularizer.teacher": TeacherSettings,
    "regularizer.schedule": ScheduleSection,
    "training": Training,
    "evaluation": Evaluation,
    "sweep": SweepSettings,
}
TABLE = re.compile(r"(<!-- (keys|options): ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write the tables of both pages."""
    for name in ("recipes.md", "cli.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        (DOCS / name).write_text(filled(text), encoding="utf-8")


def filled(text: str) -> str:
    """The page with its tables as the code has them now."""
    makers = {"keys": keys, "options": options}
    return TABLE.sub(lambda found: f"{found[1]}\n{makers[found[2]](found[3])}\n\n{found[4]}", text)


def keys(section: str) -> str:
    """The table of a section of recipes."""
    kind = SECTIONS[section]
    said, fields = _sentences(kind), kind.model_fields
    rows = [(f"`{name}`", _default(field), said[name]) for name, field in fields.items()]
    return _table(("key", "default", "meaning"), rows)


def options(verb: str) -> str:
    """The table of the options of a verb, or of a verb below it: `data-get`."""
    rows = [_option(option) for option in _command(verb).params if option.param_type_name == "option"]
    return _table(("option", "default", "meaning"), [row for row in rows if row[0] != "`--help`"])


def verbs() -> Iterator[str]:
    """Every verb, or verb below it, that has options other than `--json`."""
    for verb in VERBS:
        below = getattr(_command(verb), "commands", {})
        names = [f"{verb}-{name}" for name in below] or [verb]
        yield from (name for name in names if options(name).count("\n") > 1 + ("`--json`" in options(name)))


def _command(verb: str) -> Any:
    group: Any = typer.main.get_command(app)
    command = group.get_command(None, verb)
    if command is None:
        first, _, second = verb.partition("-")
        command = group.get_command(None, first).commands[second]
    return command


def _option(option: Any) -> tuple[str, str, str]:
    names = sorted([*option.opts, *option.secondary_opts], key=lambda name: name.lstrip("-") != option.name)
    default = option.default() if callable(option.default) else option.default
    default = getattr(default, "value", default)
    shown = "" if default in (None, False, "", [], ()) or option.is_flag else f"`{default}`"
    shown = "required" if option.required else shown
    return ", ".join(f"`{name}`" for name in names), shown, option.help or ""


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if hasattr(value, "model_dump"):
        return f"`{{kind: {value.kind}}}`"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`".replace('"', "") if value != "" else ""


def _sentences(kind: type) -> dict[str, str]:
    """The sentence under each field of a class, inherited ones too."""
    parents = [parent for parent in reversed(kind.__mro__) if parent.__module__.startswith("lidstone.")]
    bodies = [ast.parse(inspect.getsource(parent)).body[0].body for parent in parents]  # type: ignore[attr-defined]
    pairs = [pair for body in bodies for pair in pairwise(body)]
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }  # fmt: skip


def _table(head: tuple[str, ...], rows: list[tuple[str, str, str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)])


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", r"\|").replace("*", r"\*")
    return re.sub(r"(?<!`)<(\w+)>(?!`)", r"`<\1>`", text)


if __name__ == "__main__":
    main()
