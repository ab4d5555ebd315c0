"""From the regularizer of a recipe to the loss that is trained with: counts, table, strengths.

Counts and tables are cached under the hash of their inputs, so seeds, strengths and models share them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lidstone.errors import FileFormatError
from lidstone.lab.corpus.cache import cache_root
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.recipe.sections import Regularizer

if TYPE_CHECKING:
    from lidstone.loss.loss import SmoothedLoss
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable

Thing = TypeVar("Thing", bound="Counts | BackoffTable")
FORMAT = 1
"""Part of every hash: increased when counting or fitting gives other results."""


def make_loss(regularizer: Regularizer, prepared: Prepared, steps: int, *, linear: bool = False) -> SmoothedLoss:
    """The loss of one method; `steps` is the length of the training, for schedules.

    `linear` takes hidden states instead of logits, if the method allows: faster, and without storing all logits.
    """
    from lidstone.lab.methods.losses import ConfidencePenalty
    from lidstone.loss.linear_loss import LinearSmoothedCrossEntropy
    from lidstone.loss.loss import SmoothedCrossEntropy

    schedule = regularizer.schedule.over(steps)
    loss: type[SmoothedLoss] = LinearSmoothedCrossEntropy if linear else SmoothedCrossEntropy
    if regularizer.kind == "none":
        return loss()
    if regularizer.kind in ("noising", "residual"):  # see `methods`: they change the text, and the model
        return loss(schedule=schedule)
    if regularizer.kind == "confidence_penalty":
        return ConfidencePenalty(regularizer.strengths[0], schedule=schedule)
    table, counts = make_table(regularizer, prepared)
    plus, minus = regularizer.strengths
    form, empirical = (regularizer.form, regularizer.empirical) if regularizer.smoother else ("exact", "token")
    return loss(
        table,
        counts if empirical == "ngram" else None,
        gamma_plus=plus,
        gamma_minus=minus,
        form=form,
        empirical=empirical,
        schedule=schedule,
    )


def make_table(regularizer: Regularizer, prepared: Prepared) -> tuple[BackoffTable, Counts]:
    """The smoothed table of the training text, and the counts it was made from."""
    from lidstone.lab.methods.losses import uniform_table, unigram_table

    counts = count_training_text(prepared, regularizer.order if regularizer.smoother else 1)
    if regularizer.kind == "label_smoothing":
        return uniform_table(counts), counts
    if regularizer.kind == "unigram_label_smoothing":
        return unigram_table(counts), counts
    return fit_smoother(regularizer, counts, prepared), counts


def count_training_text(prepared: Prepared, order: int) -> Counts:
    """Counts of the training text, from the cache if they are there."""
    from lidstone.ngram.counts import count

    stream = prepared.train.target.stream
    key = _hash(stream.tobytes(), prepared.vocab.fingerprint, order)
    return _cached("counts", key, lambda: count(stream, prepared.vocab, order))


def fit_smoother(regularizer: Regularizer, counts: Counts, prepared: Prepared) -> BackoffTable:
    """The table of the recipe's smoother; Jelinek-Mercer's `weights: em` learns them from the validation text."""
    from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer
    from lidstone.ngram.smoothers.registry import get_smoother

    name, parameters = str(regularizer.smoother), dict(regularizer.parameters)
    if name == "jelinek-mercer" and parameters.get("weights") == "em":
        parameters.pop("weights")
        smoother: Any = JelinekMercer.learn(counts, prepared.valid.target.stream, **parameters)
    else:
        smoother = get_smoother(name, **parameters)
    return fit_table(name, smoother, counts)


def fit_table(name: str, smoother: Any, counts: Counts) -> BackoffTable:
    """The table of a smoother, from the cache if it is there."""
    key = _hash(counts.fingerprint, name, repr(smoother))
    found: BackoffTable = _cached("tables", key, lambda: smoother.fit(counts))
    return found


def _cached(kind: str, key: str, make: Callable[[], Thing]) -> Thing:
    """What the cache has under this key; if nothing, it is made and stored."""
    from lidstone.ngram.formats.safetensors import load, save

    path = _folder(kind) / f"{key}.safetensors"
    if path.exists():
        try:
            return load(path)  # type: ignore[return-value]
        except FileFormatError:
            path.unlink(missing_ok=True)
    thing = make()
    save(thing, path)
    return thing


def _folder(kind: str) -> Path:
    folder = cache_root() / kind
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _hash(*parts: Any) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT]).encode())
    for part in parts:
        digest.update(b"\0" + (part if isinstance(part, bytes) else str(part).encode()))
    return digest.hexdigest()[:24]
