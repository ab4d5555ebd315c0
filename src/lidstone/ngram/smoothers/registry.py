"""Smoothers by name: the package's own, and those that other packages offer through an entry point.

A package that declares, in its pyproject.toml,

    [project.entry-points."lidstone.smoothers"]
    my-smoother = "my_package.module:MySmoother"

makes `get_smoother("my-smoother")` and `--smoother my-smoother` work. Modules are imported when asked for.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import typing
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from lidstone.errors import InputError

if typing.TYPE_CHECKING:
    from lidstone.ngram.smoothers.base import Smoother

GROUP = "lidstone.smoothers"

OWN = {
    "absolute-discounting": "AbsoluteDiscounting",
    "add-lambda": "AddLambda",
    "good-turing": "GoodTuring",
    "jelinek-mercer": "JelinekMercer",
    "katz": "Katz",
    "kneser-essen-ney": "KneserEssenNey",
    "label-smoothing": "LabelSmoothing",
    "modified-kneser-ney": "ModifiedKneserNey",
    "witten-bell": "WittenBell",
}


def smoother_names() -> list[str]:
    """All names that `get_smoother` knows.

    >>> smoother_names()[:3]
    ['absolute-discounting', 'add-lambda', 'good-turing']
    """
    return sorted({*OWN, *_foreign()})


def get_smoother(name: str, **fields: Any) -> Smoother:
    """The smoother of this name with these settings.

    >>> get_smoother("katz", k=7)
    Katz(k=7, unigrams='discounted', fallback=None)
    >>> get_smoother("kats")
    Traceback (most recent call last):
    lidstone.errors.InputError: there is no smoother 'kats'. hint: did you mean katz? ...
    >>> get_smoother("katz", K=7)
    Traceback (most recent call last):
    lidstone.errors.InputError: katz has no setting 'K'. hint: did you mean k? ...
    >>> get_smoother("katz", k="seven")
    Traceback (most recent call last):
    lidstone.errors.InputError: k of katz must be int, not 'seven'. hint: ...
    """
    kind = smoother_class(name)
    if dataclasses.is_dataclass(kind):
        _check_fields(name, kind, fields)
    try:
        smoother: Smoother = kind(**fields)
    except TypeError as error:
        raise InputError(f"{name} cannot be made with {fields}: {error}", hint="see its documentation") from error
    return smoother


def smoother_class(name: str) -> Any:
    """The class behind a name; underscores and capitals are accepted, too.

    >>> smoother_class("add_lambda").__name__
    'AddLambda'
    """
    name = _normal(name)
    if name in OWN:
        return getattr(importlib.import_module(f"lidstone.ngram.smoothers.{name.replace('-', '_')}"), OWN[name])
    foreign = _foreign()
    if name not in foreign:
        raise InputError(f"there is no smoother '{name}'", hint=_nearest(name, smoother_names()))
    try:
        return foreign[name].load()
    except Exception as error:  # whatever a foreign package does wrong, say whose fault it is
        raise InputError(
            f"the smoother '{name}' of {foreign[name].value} cannot be loaded: {error}",
            hint="repair or uninstall the package that offers it",
        ) from error


def _foreign() -> dict[str, EntryPoint]:
    found = {_normal(point.name): point for point in entry_points(group=GROUP)}
    return {name: point for name, point in found.items() if name not in OWN}


def _normal(name: str) -> str:
    return str(name).strip().lower().replace("_", "-")


def _nearest(wrong: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(wrong.lower(), names, n=1, cutoff=0.4)
    return (f"did you mean {close[0]}? " if close else "") + "there is " + (", ".join(names) or "none")


def _check_fields(name: str, kind: Any, fields: dict[str, Any]) -> None:
    """Refuse settings that the dataclass lacks, and values of another type than it declares."""
    types = typing.get_type_hints(kind)
    known = {field.name: types[field.name] for field in dataclasses.fields(kind) if field.init}
    for key, value in fields.items():
        if key not in known:
            raise InputError(f"{name} has no setting '{key}'", hint=_nearest(key, known))
        if not _fits(value, known[key]):
            wanted = " or ".join(_spell(part) for part in _parts(known[key]))
            raise InputError(f"{key} of {name} must be {wanted}, not {value!r}", hint=f"give {key} another value")


def _parts(kind: Any) -> tuple[Any, ...]:
    is_union = type(kind).__name__ in ("UnionType", "_UnionGenericAlias", "Union")
    return typing.get_args(kind) if is_union else (kind,)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type; an int is a float, a list is a tuple."""
    parts, origin, inside = _parts(kind), typing.get_origin(kind), typing.get_args(kind)
    if len(parts) > 1:
        return any(_fits(value, part) for part in parts)
    if origin is typing.Literal:
        return value in inside
    if origin is tuple:
        kinds = [inside[0]] * len(value) if isinstance(value, list | tuple) and inside[-1] is ... else inside
        return isinstance(value, list | tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if kind in (int, float):
        return isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    return not isinstance(kind, type) or isinstance(value, kind)


def _spell(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    return "nothing" if kind is type(None) else getattr(kind, "__name__", str(kind))
