"""The methods that do not change the loss: noising changes the training text, the residual changes the model.

A model that was trained as the residual of an n-gram model needs that table: it is saved with the weights, and
loading attaches it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.files import write_text
from lidstone.lab.corpus.prepared import Prepared, Split
from lidstone.lab.recipe.sections import Regularizer
from lidstone.lab.run.loss import count_training_text, fit_smoother
from lidstone.ngram.formats.safetensors import load, save

if TYPE_CHECKING:
    from lidstone.hf.mixture import Mixture
    from lidstone.lab.methods.noising import Noising
    from lidstone.lab.methods.residual import NgramResidual
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary

TABLE, FACTS = "residual.safetensors", "residual.json"


def make_noise(regularizer: Regularizer, prepared: Prepared, pad: int | None) -> Noising | None:
    """The noise of a recipe; None for any other method. `pad` is the model's id of padding."""
    from lidstone.lab.methods.noising import Noising

    if regularizer.kind != "noising":
        return None
    counts = count_training_text(prepared, 2)
    blank = blank_id(prepared.vocab, pad) if regularizer.noise == "blank" else 0
    return Noising(counts, gamma=regularizer.strengths[0], scheme=regularizer.noise, blank=blank)


def blank_id(vocab: Vocabulary, pad: int | None) -> int:
    """An id that inputs do not have otherwise, and whose embedding is trained: that of padding is not.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> blank_id(Vocabulary(size=6, eos=2, unpredictable=(0, 1)), pad=0)
    1
    """
    unused = [token for token in vocab.unpredictable if token != pad]
    if not unused:
        raise InputError("the vocabulary has no id that can be the blank", hint="use noise: unigram or kneser-ney")
    return unused[0]


def attach_residual(regularizer: Regularizer, prepared: Prepared, model: Any) -> None:
    """Attach the n-gram model to the network, if the recipe's kind is residual."""
    from lidstone.lab.methods.residual import NgramResidual

    if regularizer.kind != "residual":
        return
    counts = count_training_text(prepared, regularizer.order)
    table = fit_smoother(regularizer, counts, prepared)
    folds = fold_tables(regularizer, prepared)
    NgramResidual(table, regularizer.strengths[0], folds).attach(model)


def training_folds(regularizer: Regularizer, split: Split) -> NDArray[np.int64] | None:
    """The fold of each training sentence; None where the method has no folds.

    Sentence i belongs to fold i mod k.
    """
    if regularizer.kind != "residual" or not regularizer.folds:
        return None
    return np.arange(len(split)) % regularizer.folds


def fold_tables(regularizer: Regularizer, prepared: Prepared) -> list[BackoffTable]:
    """One table per fold, fitted to the training text without the sentences of that fold."""
    from lidstone.ngram.counts import count

    folds = training_folds(regularizer, prepared.train)
    if folds is None:
        return []
    target = prepared.train.target
    owner = np.repeat(folds, target.lengths)
    counted = (count(target.stream[owner != k], prepared.vocab, regularizer.order) for k in range(folds.max() + 1))
    return [fit_smoother(regularizer, counts, prepared) for counts in counted]


def table_signature(model: Any) -> dict[str, Any] | None:
    """The signature of the table of a model's residual; None for other models."""
    residual = residual_of(model)
    return None if residual is None else residual.signature


def residual_of(model: Any) -> NgramResidual | None:
    """The residual that is attached to a model."""
    from lidstone.lab.methods.residual import NAME

    return getattr(model, NAME, None)


@contextmanager
def generating(model: Any, mixture: Mixture | None = None) -> Iterator[Any]:
    """The logits processors for `generate`: the mixture, or the residual, which the forward pass then leaves out."""
    from transformers import LogitsProcessorList

    residual = residual_of(model)
    mixing = [] if mixture is None else [mixture.process]
    if residual is None:
        yield LogitsProcessorList(mixing)
        return
    residual.aside = True
    try:
        yield LogitsProcessorList([residual.process, *mixing])
    finally:
        residual.aside = False


def save_residual(model: Any, folder: Path) -> None:
    """Write the table of a model's residual, if it has one."""
    residual = residual_of(model)
    if residual is not None:
        save(residual.table, folder / TABLE)
        write_text(folder / FACTS, json.dumps({"alpha": residual.alpha}))


def load_residual(model: Any, folder: Path) -> None:
    """Attach the table that is saved beside a model, if there is one."""
    from lidstone.lab.methods.residual import NgramResidual
    from lidstone.ngram.table import BackoffTable

    if not (folder / FACTS).is_file():
        return
    table = load(folder / TABLE)
    assert isinstance(table, BackoffTable)
    NgramResidual(table, float(json.loads((folder / FACTS).read_text())["alpha"])).attach(model)
