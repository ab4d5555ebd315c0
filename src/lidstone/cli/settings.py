"""Values given on the command line as `--set name=value`."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from typing import Any

import typer


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Read `name=value` pairs; a value is a Python or JSON literal, or else a string.

    >>> parse_settings(["k=5", "weights=[0.2, 0.6]", "base=uniform", "closed-form=true"])
    {'k': 5, 'weights': [0.2, 0.6], 'base': 'uniform', 'closed_form': True}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(f"'{pair}' is not of the form name=value", param_hint="--set")
        if name in settings:
            raise typer.BadParameter(f"'{name}' is given twice", param_hint="--set")
        settings[name] = parse_literal(value)
    return settings


def parse_literal(text: str) -> Any:
    """The value of a Python or JSON literal; other text is a string.

    >>> [parse_literal(text) for text in ("0.5", "(1, 2)", "null", "None", "uniform")]
    [0.5, (1, 2), None, None, 'uniform']
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # all that literal_eval may raise
            continue
    return text.strip()
