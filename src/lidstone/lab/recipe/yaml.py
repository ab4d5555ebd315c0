"""Reading recipe files: YAML with numbers such as 5e-4, without repeated keys; explaining mistakes.

Pydantic's errors are put in the terms of a recipe: the key, the value, what is allowed, the nearest known name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from lidstone.errors import RecipeError
from lidstone.lab.recipe.sections import is_model

_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
MOST_VALUES = 100_000
"""Limit on the number of values; a few lines of aliases could otherwise expand to gigabytes."""


class _Loader(yaml.SafeLoader):
    """YAML where `5e-4` is a number (PyYAML needs `5.0e-4`) and a key given twice is an error."""

    merged = 0

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for given in (key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"):
            key = self.construct_object(given)
            if key in seen:
                raise yaml.YAMLError(f"the key {key} is given twice, again in line {given.start_mark.line + 1}")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        self.merged += len(node.value)
        if self.merged > MOST_VALUES:
            raise yaml.YAMLError(f"its merge keys make more than {MOST_VALUES:,} values")


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def parse_yaml(text: str, origin: str = "the recipe") -> Any:
    """Read YAML; errors name `origin` and the line. The result has only values that JSON can represent.

    >>> parse_yaml("{rate: 5e-4}")
    {'rate': 0.0005}
    """
    try:
        value = yaml.load(text, Loader=_Loader)
        _check(value, {})
    except RecursionError:
        raise RecipeError(f"{origin} is nested too deeply", hint="a recipe has sections, keys and lists") from None
    except _BAD_YAML as error:
        reason = " ".join(str(error).split())[:300]
        raise RecipeError(f"{origin} is not valid YAML: {reason}", hint="check colons and indentation") from error
    return value


# What PyYAML raises for values that do not fit their tag (`!!timestamp x`, `0x_`), besides its own errors.
_BAD_YAML = (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError)


def _check(value: Any, sizes: dict[int, int]) -> int:
    """The number of values, aliases counted at each use; values that JSON cannot represent are an error."""
    if isinstance(value, str):
        value.encode()  # a lone surrogate is a ValueError
    elif isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"the number {str(value)[:20]}... is too large")
    elif not isinstance(value, (list, dict, int, float, type(None))):
        raise ValueError(f"{value!r} is a {type(value).__name__}, not text or a number; put it into quotes")
    if not isinstance(value, (list, dict)):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = MOST_VALUES + 1  # until it is known: a list that contains itself has no end
        sizes[id(value)] = 1 + sum(_check(item, sizes) for item in _items(value))
    if sizes[id(value)] > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values")
    return sizes[id(value)]


def _items(value: list[Any] | dict[Any, Any]) -> list[Any]:
    if isinstance(value, dict):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None or None in value:
            raise ValueError(f"the key {wrong!r} is not text; put it into quotes")
        return [*value, *value.values()]
    return value


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a file that consists of one mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read the recipe {path}: {error}", hint="check the path") from error
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a recipe: no keys in it", hint="see lidstone init")
    return values


def with_defaults(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values`, with `defaults` for keys that they do not have, section by section.

    >>> with_defaults({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    merged: dict[str, Any] = {**deepcopy(dict(defaults)), **values}
    for key in defaults.keys() & values.keys():
        if isinstance(defaults[key], Mapping) and isinstance(values[key], Mapping):
            merged[key] = with_defaults(defaults[key], values[key])
    return merged


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
    if is_model(annotation):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)
