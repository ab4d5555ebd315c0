"""The cells of a sweep: one method, one setting of the axes, one seed. What they are, not how they are computed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lidstone.errors import RecipeError
from lidstone.experiment.config import Recipe, make_recipe
from lidstone.experiment.explain import nearest

_STRENGTHS = {"regularizer.gamma_plus", "regularizer.gamma_minus"}


@dataclass(frozen=True)
class Cell:
    """One training of a sweep."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """values by dotted key, laid over the method's own"""
    seed: int = 1

    def __str__(self) -> str:
        shown = " ".join(f"{key.split('.')[-1]}={value}" for key, value in self.settings.items())
        return f"{self.method} {shown} seed={self.seed}".replace("  ", " ")

    def recipe(self, base: Recipe) -> Recipe:
        """The whole recipe of this training; an unknown axis is an error that names the nearest key."""
        values = base.method(self.method).to_dict()
        values["sweep"] = {}
        for key, value in {**self.settings, "training.seed": self.seed}.items():
            _place(values, key.split("."), value)
        if set(self.settings) & _STRENGTHS:
            values["regularizer"]["gamma"] = None
        elif "regularizer.gamma" in self.settings:
            values["regularizer"] |= {"gamma_plus": None, "gamma_minus": None}
        return make_recipe(values, origin=f"the sweep of {base.name}")


def axes_of(recipe: Recipe, method: str) -> dict[str, list[Any]]:
    """The axes along which one method varies.

    The common axes of the strengths leave alone what has none of them: no regularizer, or a baseline with one strength.
    """
    for name in recipe.sweep.by_method:
        if name not in recipe.method_names:
            hint = nearest(name, recipe.method_names)
            raise RecipeError(f"sweep.by_method names {name!r}, which is no method of {recipe.name}", hint=hint)
    kind = recipe.method(method).regularizer.kind
    own = recipe.sweep.by_method.get(method, {})
    common = {
        key: values
        for key, values in recipe.sweep.axes.items()
        if kind == "smoother" or not key.startswith("regularizer.")
    }
    axes = {**common, **own}
    empty = next((key for key, values in axes.items() if not values), None)
    if empty is not None:
        raise RecipeError(f"the axis {empty} has no values", hint="give a list, such as [0.05, 0.1]")
    return axes


def search_cells(recipe: Recipe, method: str) -> list[Cell]:
    """Every combination of a method's axes, with the first seed.

    >>> from lidstone.experiment.config import load_recipe
    >>> recipe = load_recipe("demo", ["sweep.axes={regularizer.gamma_plus: [0.1, 0.5]}"])
    >>> [str(cell) for cell in search_cells(recipe, "katz")]
    ['katz gamma_plus=0.1 seed=1', 'katz gamma_plus=0.5 seed=1']
    """
    axes = axes_of(recipe, method)
    first = recipe.sweep.seeds[0] if recipe.sweep.seeds else recipe.training.seed
    return [Cell(method, dict(zip(axes, values, strict=True)), first) for values in itertools.product(*axes.values())]


def seed_cells(recipe: Recipe, best: Cell) -> Iterator[Cell]:
    """The best setting of a method, once per seed."""
    for seed in recipe.sweep.seeds or (recipe.training.seed,):
        yield Cell(best.method, best.settings, seed)


def _place(tree: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            raise RecipeError(f"the axis {'.'.join(keys)} lies below a plain value", hint="see docs/recipes.md")
        tree = below
    tree[keys[-1]] = value
