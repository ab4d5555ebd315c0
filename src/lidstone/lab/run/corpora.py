"""Prepared corpora in the memory of this process: many runs on the same text read it once."""

from __future__ import annotations

from lidstone.errors import RunError
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.recipe.recipe import Recipe

KEPT = 4
"""How many corpora are kept in memory: a sweep may vary the text, for instance corpus.fraction."""
_HELD: dict[str, Prepared] = {}


def cached_corpus(recipe: Recipe, key: str | None = None) -> Prepared:
    """The prepared corpus of a recipe; with its key (`Prepared.key`), from memory if it is there.

    The key is a hash of the text and the settings, so a corpus in memory is never out of date. Without a key the text
    is read again.
    """
    if key is not None and key in _HELD:
        return _HELD[key]
    prepared = prepare_corpus(recipe)
    if key not in (None, prepared.key):
        raise RunError(
            f"the corpus of {recipe.name} is not the one that the sweep was started with",
            hint="was a text file changed, or does this machine have other files? Start the sweep again",
        )
    while len(_HELD) >= KEPT:
        _HELD.pop(next(iter(_HELD)))
    _HELD[prepared.key] = prepared
    return prepared
