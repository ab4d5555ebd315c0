"""Recipes: one YAML file that describes what is trained on which text, how, and what is compared.

    recipe = load_recipe("wikitext2_small", ["training.seed=2", "regularizer.order=3"])
    for name in recipe.method_names: train(recipe.method(name))

A recipe is read from a file, by the name of one that comes with lidstone, or from the folder of a run. Unknown keys
and impossible values are `RecipeError`s that name the key, the nearest known name and the allowed range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from glob import glob
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from lidstone.errors import FileFormatError, RecipeError
from lidstone.files import from_home, read_json
from lidstone.lab.methods.base import Name, Regularizer, Section
from lidstone.lab.recipe.sections import (
    Corpus,
    Evaluation,
    ModelSpec,
    SplitFiles,
    SweepSettings,
    Tokenizer,
    Training,
)
from lidstone.lab.recipe.yaml import explain_mistakes, load_yaml, nearest, parse_yaml, with_defaults

RECIPES = Path(__file__).parent / "recipes"

# fairseq's transformer_iwslt_de_en and its README example, as far as they differ from the language model
_TRANSLATION: dict[str, Any] = {
    "tokenizer": {"merges": 10_000},
    "model": {"kind": "transformer-mt", "heads": 4, "ffn": 1024, "dropout": 0.3},
    "training": {"batch_tokens": 4096, "accumulation": 1, "weight_decay": 1e-4, "block_length": None},
    "evaluation": {"metric": "bleu"},
}
_HINT = "see docs/recipes.md for the keys"
SHARED = ("order", "form", "empirical", "schedule")
"""Keys of the section `regularizer` that hold for all methods."""


class Recipe(Section):
    """A whole experiment. See docs/recipes.md for every key.

    >>> make_recipe({"task": "lm", "name": "a", "corpus": {"name": "embedded"}}).training.seed
    1
    """

    task: Literal["lm", "mt"]
    """lm: language modelling; mt: translation."""
    name: Name = "recipe"
    """The name of the study in reports."""
    corpus: Corpus
    tokenizer: Tokenizer = Tokenizer()
    model: ModelSpec = ModelSpec()
    regularizer: Regularizer = Regularizer()
    """The regularizer of a single training; its order, form, empirical and schedule hold for all methods."""
    methods: tuple[Regularizer, ...] = ()
    """What the recipe compares."""
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    sweep: SweepSettings = SweepSettings()

    @property
    def method_names(self) -> tuple[str, ...]:
        """The names of the methods; of the one regularizer if there is no list."""
        return tuple(method.name for method in self.methods) or (self.regularizer.name,)

    def method(self, name: str) -> Recipe:
        """The recipe that trains one of the methods: with this regularizer, without the list of methods.

        >>> make_recipe({"task": "lm", "corpus": {"name": "embedded"}}).method("none").regularizer.kind
        'none'
        """
        for method in self.methods or (self.regularizer,):
            if method.name == name:
                return self.model_copy(update={"regularizer": method, "methods": ()})
        hint = nearest(name, self.method_names)
        raise RecipeError(f"the recipe {self.name} has no method {name!r}", hint=hint)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user may not expect of these settings: the network could read longer rows than it is trained on.

        >>> load_recipe("demo", ["model.max_positions=512"]).notes[0]
        'model.max_positions is 512, but rows of 64 tokens are trained: text is scored in windows of 64'
        """
        block, longest = self.training.block_length, self.model.max_positions
        if self.task == "mt" or self.model.kind == "auto" or block is None or block >= longest:
            return ()
        rows = f"rows of {block} tokens are trained: text is scored in windows of {block}"
        return (f"model.max_positions is {longest}, but {rows}",)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the inverse is `make_recipe`."""
        return self.model_dump(mode="json")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        filled = with_defaults(_TRANSLATION, values) if values.get("task") == "mt" else dict(values)
        shared = filled.get("regularizer")
        shared = {key: shared[key] for key in SHARED if key in shared} if isinstance(shared, Mapping) else {}
        if isinstance(filled.get("methods"), (list, tuple)):
            filled["methods"] = [
                with_defaults(shared, item) if isinstance(item, Mapping) else item for item in filled["methods"]
            ]
        return filled

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        for problem in _contradictions(self):
            raise ValueError(problem)
        return self


def load_recipe(source: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file, one of lidstone's own by name, or a run's, with `key.sub=value` overrides (values are YAML).

    >>> load_recipe("demo", ["training.seed=7"]).training.seed
    7
    """
    path = _find(source)
    values = _recorded(path) if path.name == "run.json" else _relative_to(path.parent, load_yaml(path))
    return make_recipe(apply_overrides(values, overrides), origin=str(source))


def apply_overrides(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Set dotted keys; items of a list are addressed by number or by name.

    >>> apply_overrides({"methods": [{"name": "katz", "gamma": 1}]}, ["methods.katz.gamma=0.5", "training.seed=3"])
    {'methods': [{'name': 'katz', 'gamma': 0.5}], 'training': {'seed': 3}}
    """
    changed = deepcopy(dict(values))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise RecipeError(f"cannot understand {override!r}", hint="write key.sub=value")
        set_key(changed, key.strip().split("."), parse_yaml(text, override), override)
    return changed


def set_key(tree: Any, keys: list[str], value: Any, override: str) -> None:
    """Set the value of a key, given by its parts, in a tree of mappings and lists; errors quote `override`."""
    for key in keys[:-1]:
        tree = _step(tree, key, override)
    if isinstance(tree, list):
        tree[_position(tree, keys[-1], override)] = value
    elif isinstance(tree, dict):
        tree[keys[-1]] = value
    else:
        raise RecipeError(f"cannot set {override!r}: {keys[-1]} is below a value that has no keys", hint=_HINT)


def _step(tree: Any, key: str, override: str) -> Any:
    if isinstance(tree, list):
        return tree[_position(tree, key, override)]
    if not isinstance(tree, dict):
        raise RecipeError(f"cannot set {override!r}: {key} is below a value that has no keys", hint=_HINT)
    if tree.get(key) is None:
        tree[key] = {}
    return tree[key]


def _names(item: dict[str, Any]) -> tuple[Any, ...]:
    """The names that address a method: its name, its smoother or its kind."""
    return item.get("name"), item.get("smoother"), str(item.get("kind")).replace("_", "-")


def _position(items: list[Any], key: str, override: str) -> int:
    for number, item in enumerate(items):
        if key == str(number) or (isinstance(item, dict) and key in _names(item)):
            return number
    raise RecipeError(f"cannot set {override!r}: the list has no item {key}", hint="use its number or name")


def make_recipe(values: Mapping[str, Any], *, origin: str = "the recipe") -> Recipe:
    """Check plain values; all mistakes are in one `RecipeError`.

    >>> make_recipe({"task": "lm", "corpus": {"nam": "wikitext2"}})
    Traceback (most recent call last):
    lidstone.errors.RecipeError: the recipe: unknown key corpus.nam. hint: did you mean name?
    """
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        message, hint = explain_mistakes(error, Recipe)
        raise RecipeError(f"{origin}: {message}", hint=hint) from None


def recipe_names() -> list[str]:
    """The recipes that come with lidstone.

    >>> "demo" in recipe_names()
    True
    """
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def _find(source: str | Path) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    if (path / "run.json").is_file():
        return path / "run.json"
    packaged = RECIPES / f"{path.name.removesuffix('.yaml').replace('-', '_')}.yaml"
    if path.name == str(source) and packaged.is_file():
        return packaged
    hint = nearest(path.stem, recipe_names())
    raise RecipeError(f"there is no recipe {source}: neither a file nor one of lidstone's own", hint=hint)


def _recorded(path: Path) -> dict[str, Any]:
    """The recipe that a run was trained with; paths are those of that training."""
    try:
        return dict(read_json(path)["config"])
    except FileFormatError as error:
        hint = "pass a folder made by lidstone train"
        raise RecipeError(f"{path} is not the record of a run: {error.message}", hint=hint) from error
    except (ValueError, LookupError, TypeError) as error:
        raise RecipeError(f"{path} is not the record of a run", hint="pass a folder made by lidstone train") from error


def _relative_to(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Paths in a recipe file are relative to that file."""
    corpus = values.get("corpus")
    if isinstance(corpus, dict):
        for split in ("train", "valid", "test"):
            if corpus.get(split):
                corpus[split] = _join(folder, corpus[split])
    for section, key in (("tokenizer", "codes"), ("model", "checkpoint")):
        part = values.get(section)
        if isinstance(part, dict) and isinstance(part.get(key), str) and Path(_join(folder, part[key])).exists():
            part[key] = _join(folder, part[key])
    methods = values.get("methods")
    for method in (values.get("regularizer"), *(methods if isinstance(methods, list) else ())):
        if isinstance(method, dict):
            method |= {key: _join_found(folder, method[key]) for key in ("text", "table") if key in method}
            teacher = method.get("teacher")
            if isinstance(teacher, dict) and "runs" in teacher:
                method["teacher"] = {**teacher, "runs": _join_found(folder, teacher["runs"])}
    return values


def _join_found(folder: Path, value: Any) -> Any:
    """Like `_join`, but only for what exists there: the text of a table may be the name of a corpus."""
    if isinstance(value, list):
        return [_join_found(folder, item) for item in value]
    joined = _join(folder, value)
    return joined if isinstance(value, str) and glob(joined, recursive=True) else value  # noqa: PTH207


def _join(folder: Path, value: Any) -> Any:
    if isinstance(value, str):
        return str(folder / from_home(value))
    if isinstance(value, list):
        return [_join(folder, item) for item in value]
    return {key: _join(folder, item) for key, item in value.items()} if isinstance(value, dict) else value


def _contradictions(recipe: Recipe) -> list[str]:
    """Errors in combinations of values from several sections."""
    corpus, model, block = recipe.corpus, recipe.model, recipe.training.block_length
    names = recipe.method_names
    checks = {
        "corpus: give either a name or train files": (corpus.name is None) == (corpus.train is None),
        "model.kind: translation needs transformer-mt": recipe.task == "mt" and model.kind != "transformer-mt",
        "evaluation.metric: bleu needs task mt": recipe.task == "lm" and recipe.evaluation.metric == "bleu",
        "model.kind: transformer-mt needs task mt": recipe.task == "lm" and model.kind == "transformer-mt",
        f"training.block_length: {block} is more than model.max_positions, {model.max_positions}": (
            recipe.task == "lm" and block is not None and model.kind != "auto" and block > model.max_positions
        ),
        "methods: two have the same name": len(set(names)) < len(names),
        **{
            f"regularizer.kind: the {settings.kind} is for language models": recipe.task not in settings.method.tasks
            for settings in (recipe.regularizer, *recipe.methods)
        },
        "regularizer.folds: they are for language models": (
            recipe.task == "mt" and any(settings.folds for settings in (recipe.regularizer, *recipe.methods))
        ),
        "tokenizer.kind: checkpoint needs model.kind auto": (
            recipe.tokenizer.kind == "checkpoint" and model.kind != "auto"
        ),
    }
    for split in ("train", "valid", "test"):
        files = getattr(corpus, split)
        if files is not None:
            checks |= _side_checks(split, files, recipe.task)
    return [problem for problem, present in checks.items() if present]


def _side_checks(split: str, files: SplitFiles, task: str) -> dict[str, bool]:
    return {
        f"corpus.{split}: needs a target file": not files.target,
        f"corpus.{split}: translation needs source and target": task == "mt" and not files.source,
        f"corpus.{split}: a language model has no source": task == "lm" and bool(files.source),
        f"corpus.{split}: as many source as target files": task == "mt" and len(files.source) != len(files.target),
    }
