"""Pydantic's errors in the terms of a recipe: the key, the value, what is allowed, the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def explain_mistakes(error: ValidationError, recipe: type[BaseModel]) -> tuple[str, str]:
    """All mistakes in one line, and a hint about the first."""
    mistakes = error.errors(include_url=False)
    sentences = [_sentence(mistake, recipe) for mistake in mistakes]
    return "; ".join(dict.fromkeys(text for text, _ in sentences)), sentences[0][1]


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the nearest known name, or all of them.

    >>> nearest("jelinek-mercr", ["katz", "jelinek-mercer"])
    'did you mean jelinek-mercer?'
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"


def _sentence(mistake: Any, recipe: type[BaseModel]) -> tuple[str, str]:
    where = tuple(part for part in mistake["loc"] if isinstance(part, (str, int)))
    key = ".".join(map(str, where))
    kind, context = mistake["type"], mistake.get("ctx", {})
    model, annotation = _walk(recipe, where)
    if kind == "extra_forbidden":
        return f"unknown key {key}", nearest(str(where[-1]), model.model_fields if model else ())
    if kind == "missing":
        return f"the key {key} is missing", f"add {key}"
    if kind == "value_error":
        cause = context.get("error", mistake["msg"])
        reason, hint = getattr(cause, "message", str(cause)), getattr(cause, "hint", "")
        return (f"{key}: {reason}" if key else reason), hint or "see docs/recipes.md"
    allowed = _allowed(kind, context, annotation) or mistake["msg"].removeprefix("Input ")
    return f"{key} {allowed}{_given(mistake['input'])}", "see docs/recipes.md"


def _given(value: Any) -> str:
    return f", not {value!r}" if isinstance(value, (str, int, float)) or value is None else ""


def _allowed(kind: str, context: dict[str, Any], annotation: Any) -> str:
    if kind == "literal_error":
        return f"must be one of {context['expected']}"
    if not kind.startswith(("greater_than", "less_than")):
        return ""
    bounds = [
        f"{sign} {value:g}"
        for part in _metadata(annotation)
        for name, sign in _BOUNDS.items()
        if (value := getattr(part, name, None)) is not None
    ]
    return f"must be {' and '.join(bounds)}" if bounds else ""


def _metadata(annotation: Any) -> list[Any]:
    """The bounds in an annotation, at any depth: Annotated[...], unions, FieldInfo."""
    if get_origin(annotation) is Literal:
        return []
    found = list(getattr(annotation, "metadata", ()) or getattr(annotation, "__metadata__", ()))
    inner = getattr(annotation, "annotation", None)
    parts = [inner] if inner is not None else list(get_args(annotation))
    return found + [item for part in parts for item in _metadata(part)]


def _walk(model: type[BaseModel] | None, where: tuple[str | int, ...]) -> tuple[type[BaseModel] | None, Any]:
    """The model that the last key of `where` belongs to, and that key's field."""
    field: Any = None
    for part in where:
        if isinstance(part, int) or model is None:
            continue
        owner, field = model, model.model_fields.get(part)
        model = _model_in(field.annotation) if field is not None else None
        if part == where[-1]:
            return owner, field
    return model, field


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)
