"""The data of the report's explorer: p, p~, p+ and p- of a recipe's smoothers after frequent histories.

Written once per folder of runs, as `explorer.json`, from the tables that the runs were trained with.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lidstone.errors import LidstoneError
from lidstone.files import with_checksum, write_text
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.setup import training_text

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts

FILE = "explorer.json"
HISTORIES = 40


def write_explorer(recipe: Recipe, output: str | Path, prepared: Prepared | None = None) -> Path | None:
    """Write `explorer.json` into the folder of runs; None if no method has a smoother that is defined."""
    from lidstone.loss.explain import explorer_data

    methods = [method for method in recipe.methods or (recipe.regularizer,) if method.smoother]
    if not methods:
        return None
    prepared, order = prepared or prepare_corpus(recipe), methods[0].order
    text = training_text(prepared)
    counts = text.count(order)
    tables = {}
    for method in (method for method in methods if method.order == order):
        with contextlib.suppress(LidstoneError):  # training that method reports it
            tables[method.name] = text.table(method, counts)
    if not tables:
        return None
    data = explorer_data(tables, counts, frequent_histories(counts), prepared.vocab.tokens)
    data["vocabulary"] = prepared.vocab.fingerprint_without_unk  # as in run.json
    path = Path(output) / FILE
    write_text(path, json.dumps(with_checksum(data), ensure_ascii=False, allow_nan=False))
    return path


def frequent_histories(counts: Counts, number: int = HISTORIES) -> Iterable[tuple[int, ...]]:
    """The sentence start, then the longest histories, those that occur most often first.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> list(frequent_histories(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)))
    [(3,), (1,), (2,)]
    """
    if counts.order == 1:
        return [()]
    level = counts.trie.level(counts.order - 1)
    often = level.start + np.argsort(-counts.totals[level], kind="stable")[:number]
    found = [counts.trie.ngram(int(node)) for node in often if counts.totals[node]]
    start = (counts.vocab.bos,)
    return [start, *(history for history in found if history != start)]
