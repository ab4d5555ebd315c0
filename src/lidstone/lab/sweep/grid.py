"""The cells of a sweep: one method, one setting of the axes, one seed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from lidstone.errors import RecipeError
from lidstone.lab.methods.base import Regularizer
from lidstone.lab.recipe.recipe import Recipe, make_recipe, set_key
from lidstone.lab.recipe.sections import is_model
from lidstone.lab.recipe.yaml import nearest

Axes = dict[str, list[Any]]

_STRENGTHS = ("regularizer.gamma_plus", "regularizer.gamma_minus")
_FIXED = {
    "task": "it is the same for all cells",
    "name": "it does not change what is trained",
    "methods": "every method of the recipe is swept; choose some with --method",
    "sweep": "a sweep cannot vary itself",
    "regularizer.name": "it does not change what is trained",
    "training.seed": "the seeds are those of sweep.seeds",
    "training.threads": "it does not change what is trained; see --threads",
    "evaluation.metric": "cells are compared by it",
}


@dataclass(frozen=True)
class Cell:
    """One training of a sweep."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """values by dotted key, which replace the method's own"""
    seed: int = 1

    @property
    def key(self) -> str:
        """Identifies the cell in a sweep."""
        return json.dumps([self.method, dict(self.settings), self.seed])

    @property
    def shown(self) -> str:
        """The settings in short form, for tables."""
        return " ".join(f"{key.split('.')[-1]}={value}" for key, value in self.settings.items())

    def __str__(self) -> str:
        return " ".join(filter(None, [self.method, self.shown, f"seed={self.seed}"]))

    def recipe(self, base: Recipe) -> Recipe:
        """The recipe of this training; an invalid one is a `RecipeError` that names the cell."""
        values = base.method(self.method).to_dict()
        values["sweep"] = {}
        _split_strengths(values["regularizer"], self.settings)
        for key, value in {**self.settings, "training.seed": self.seed}.items():
            set_key(values, key.split("."), value, f"{key}={value}")
        return make_recipe(values, origin=f"{base.name}, cell {self}")


def axes_of(recipe: Recipe, method: str) -> Axes:
    """The axes along which one method varies: the common ones that apply to it, and its own.

    Axes of the regularizer do not apply to a method without one; of them only gamma applies to a baseline.
    """
    regularizer = recipe.method(method).regularizer
    own = recipe.sweep.by_method.get(method, {})
    common = {key: values for key, values in recipe.sweep.axes.items() if _applies(key, regularizer)}
    return {**common, **own}


def check_axes(recipe: Recipe) -> None:
    """Raise an error for axes that are unknown, empty or without effect, and for unknown methods."""
    for name in recipe.sweep.by_method:
        if name not in recipe.method_names:
            hint = nearest(name, recipe.method_names)
            raise RecipeError(f"sweep.by_method has {name!r}, which is not a method of {recipe.name}", hint=hint)
    for axes in (recipe.sweep.axes, *recipe.sweep.by_method.values(), recipe.sweep.refine):
        for key, values in axes.items():
            _check_axis(key, values)


def search_cells(recipe: Recipe, method: str) -> list[Cell]:
    """Every combination of a method's axes, with the first seed.

    >>> from lidstone.lab.recipe.recipe import load_recipe
    >>> recipe = load_recipe("demo", ["sweep.axes={regularizer.gamma_plus: [0.1, 0.5]}"])
    >>> [str(cell) for cell in search_cells(recipe, "jelinek-mercer")]
    ['jelinek-mercer gamma_plus=0.1 seed=1', 'jelinek-mercer gamma_plus=0.5 seed=1']
    """
    axes = axes_of(recipe, method)
    first = seeds_of(recipe)[0]
    return [Cell(method, dict(zip(axes, values, strict=True)), first) for values in itertools.product(*axes.values())]


def refine_cells(recipe: Recipe, best: Cell) -> list[Cell]:
    """The best setting of a search with one value replaced, for each value of `sweep.refine` that applies.

    >>> from lidstone.lab.recipe.recipe import load_recipe
    >>> recipe = load_recipe("demo", ["sweep.refine={training.epochs: [5], model.dropout: [0.1, 0.3]}"])
    >>> [cell.shown for cell in refine_cells(recipe, Cell("none", {"model.dropout": 0.2}))]
    ['dropout=0.2 epochs=5', 'dropout=0.1', 'dropout=0.3']
    """
    regularizer, refine = recipe.method(best.method).regularizer, recipe.sweep.refine
    changes = [(key, value) for key, values in refine.items() if _applies(key, regularizer) for value in values]
    return [Cell(best.method, {**best.settings, key: value}, best.seed) for key, value in changes]


def sample_cells(recipe: Recipe, method: str) -> list[Cell]:
    """A few cells that together have every value of every axis, for when there are too many combinations.

    >>> from lidstone.lab.recipe.recipe import load_recipe
    >>> recipe = load_recipe("demo", ["sweep.axes={training.epochs: [1, 2, 3], model.layers: [4, 5]}"])
    >>> [cell.shown for cell in sample_cells(recipe, "none")]
    ['epochs=1 layers=4', 'epochs=2 layers=5', 'epochs=3 layers=5']
    """
    axes = axes_of(recipe, method)
    longest = max(map(len, axes.values()), default=1)
    settings = [{key: values[min(n, len(values) - 1)] for key, values in axes.items()} for n in range(longest)]
    return [Cell(method, setting, seeds_of(recipe)[0]) for setting in settings]


def seed_cells(recipe: Recipe, best: Cell) -> list[Cell]:
    """The best setting of a method, once per seed."""
    return [Cell(best.method, best.settings, seed) for seed in seeds_of(recipe)]


def seeds_of(recipe: Recipe) -> list[int]:
    """The seeds of a sweep, each once; the search uses the first."""
    return list(dict.fromkeys(recipe.sweep.seeds)) or [recipe.training.seed]


def _applies(key: str, regularizer: Regularizer) -> bool:
    section, _, rest = key.partition(".")
    axes = regularizer.method.axes
    return section != "regularizer" or axes is None or rest.partition(".")[0] in axes


def _check_axis(key: str, values: list[Any]) -> None:
    parts = key.split(".")
    for fixed, reason in _FIXED.items():
        if parts[: fixed.count(".") + 1] == fixed.split("."):
            raise RecipeError(f"{key} cannot be an axis: {reason}", hint="see docs/sweeps.md")
    _check_key(key, parts)
    if not values:
        raise RecipeError(f"the axis {key} has no values", hint="write a list, such as [0.05, 0.1]")
    if len({json.dumps(value, sort_keys=True) for value in values}) < len(values):
        raise RecipeError(f"the axis {key} has a value twice: {values}", hint="list each value once")


def _check_key(key: str, parts: list[str]) -> None:
    """Follow a dotted key down the sections of a recipe."""
    section: type[BaseModel] = Recipe
    for depth, part in enumerate(parts):
        if part not in section.model_fields:
            raise RecipeError(f"unknown axis {key}", hint=nearest(part, section.model_fields))
        below = section.model_fields[part].annotation
        if not is_model(below):
            return
        if depth == len(parts) - 1:
            raise RecipeError(
                f"the axis {key} is a section, not a value", hint=f"known: {', '.join(below.model_fields)}"
            )
        section = below


def _split_strengths(regularizer: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Convert the strengths of a method between gamma and gamma_plus, gamma_minus, as the axes need."""
    both = regularizer["gamma"]
    if both is not None and any(key in settings for key in _STRENGTHS):
        regularizer |= {"gamma": None, "gamma_plus": both, "gamma_minus": both}
    elif "regularizer.gamma" in settings:
        regularizer |= {"gamma_plus": None, "gamma_minus": None}
