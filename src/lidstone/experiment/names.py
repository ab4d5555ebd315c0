"""The id of a recipe's run, with each corpus prepared and read only once per process."""

from __future__ import annotations

import json

from lidstone.experiment.config import Recipe
from lidstone.experiment.data import prepare_corpus
from lidstone.experiment.prepared import Prepared
from lidstone.experiment.record import run_id

_PREPARED: dict[str, Prepared] = {}


def run_name(recipe: Recipe) -> str:
    """The name of the folder that the run of a recipe is recorded in."""
    values = recipe.to_dict()
    key = json.dumps([values[section] for section in ("task", "corpus", "tokenizer", "model")], sort_keys=True)
    if key not in _PREPARED:
        _PREPARED[key] = prepare_corpus(recipe)
    return run_id(recipe, _PREPARED[key])
