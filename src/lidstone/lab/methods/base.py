"""What a method is: the steps of a training that it can change. Each has the answer of plain cross-entropy here.

A method reads the training text through `TrainingText`, which caches counts and tables under the hash of their inputs,
so seeds, strengths and models share them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError

if TYPE_CHECKING:
    from lidstone.lab.methods.regularizer import Regularizer
    from lidstone.loss.loss import SmoothedLoss
    from lidstone.loss.schedule import Schedule
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary

Thing = TypeVar("Thing", bound="Counts | BackoffTable")
BatchChange = Callable[[dict[str, Any], float], dict[str, Any]]
"""Changes a batch of training; the second argument is a factor on the strength, for schedules."""
TargetSettings = tuple[int | None, Literal["exact", "published"] | None, Literal["token", "ngram"] | None]
"""Order, form and empirical of the target of a loss; None where the target is the label alone."""
FORMAT = 1
"""Part of every hash: increased when counting or fitting gives other results."""


@dataclass(frozen=True)
class TrainingText:
    """The text that methods count, as ids, and where counts and tables are cached."""

    vocab: Vocabulary
    stream: NDArray[Any]
    """the training text; every sentence ends with eos"""
    lengths: NDArray[Any]
    """of its sentences, with eos"""
    valid: NDArray[Any]
    """the validation text, for what is learned from held-out text"""
    cache: Path

    def count(self, order: int) -> Counts:
        """Counts of the training text, from the cache if they are there."""
        from lidstone.ngram.counts import count

        key = _hash(self.stream.tobytes(), self.vocab.fingerprint, order)
        return self._cached("counts", key, lambda: count(self.stream, self.vocab, order))

    def fit(self, name: str, smoother: Any, counts: Counts) -> BackoffTable:
        """The table of a smoother, from the cache if it is there."""
        key = _hash(counts.fingerprint, name, repr(smoother))
        found: BackoffTable = self._cached("tables", key, lambda: smoother.fit(counts))
        return found

    def table(self, settings: Regularizer, counts: Counts | None = None) -> BackoffTable:
        """The table of a recipe's smoother, of the whole training text or of other counts."""
        counts = counts or self.count(settings.order)
        return self.fit(str(settings.smoother), settings.make_smoother(counts, self.valid), counts)

    def folds(self, number: int) -> NDArray[np.int64]:
        """The fold of each sentence: sentence i belongs to fold i mod k."""
        return np.arange(len(self.lengths)) % number

    def fold_tables(self, settings: Regularizer, number: int) -> list[BackoffTable]:
        """One table per fold, fitted to the training text without the sentences of that fold."""
        from lidstone.ngram.counts import count

        owner = np.repeat(self.folds(number), self.lengths)
        counted = (count(self.stream[owner != fold], self.vocab, settings.order) for fold in range(owner.max() + 1))
        return [self.table(settings, counts) for counts in counted]

    def _cached(self, kind: str, key: str, make: Callable[[], Thing]) -> Thing:
        """What the cache has under this key; if nothing, it is made and stored."""
        from lidstone.ngram.formats.safetensors import load, save

        path = self.cache / kind / f"{key}.safetensors"
        if path.exists():
            try:
                return load(path)  # type: ignore[return-value]
            except FileFormatError:
                path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        thing = make()
        save(thing, path)
        return thing


class TrainingMethod:
    """Plain cross-entropy; a method overrides the steps that it changes."""

    kind: str
    tasks: tuple[str, ...] = ("lm", "mt")
    """what it can train"""
    has_smoother = False
    """whether it needs the key `smoother`; otherwise the key is an error"""
    has_folds = False
    """whether it can take the key `folds`"""
    takes_hidden_states = True
    """whether the loss may compute the logits itself, from hidden states and the output matrix"""

    def default_name(self, smoother: str | None) -> str:
        """The name in tables of a recipe that gives none."""
        return self.kind.replace("_", "-")

    def check(self, settings: Regularizer) -> None:
        """Raise a ValueError for settings that this method does not allow."""
        if settings.gamma is None:
            raise ValueError(f"{self.kind} needs gamma")

    def varies_along(self, key: str) -> bool:
        """Whether an axis of a sweep that is common to all methods, a key of `regularizer`, applies to this one."""
        return key == "gamma"

    def loss(
        self, settings: Regularizer, text: TrainingText, make: type[SmoothedLoss], schedule: Schedule
    ) -> SmoothedLoss:
        """The loss of training; `make` is a class of losses, on logits or on hidden states."""
        return make(schedule=schedule)

    def change_model(self, settings: Regularizer, text: TrainingText, model: Any) -> None:
        """Change the untrained model."""

    def batch_change(self, settings: Regularizer, text: TrainingText, model: Any) -> BatchChange | None:
        """What changes the batches of training; None: nothing."""
        return None

    def target(self, settings: Regularizer) -> TargetSettings:
        """What `run.json` says of the target."""
        return None, None, None

    def own_settings(self, settings: Regularizer) -> dict[str, Any]:
        """The settings in `run.json` other than the smoother's parameters."""
        return {}

    def describe(self, settings: Regularizer) -> dict[str, Any]:
        """The method in `run.json`, with the keys by which reports group runs."""
        plus, minus = settings.strengths
        order, form, empirical = self.target(settings)
        return {
            "kind": self.kind,
            "smoother": settings.smoother,
            "parameters": {**settings.parameters, **self.own_settings(settings)},
            "order": order,
            "gamma_plus": plus,
            "gamma_minus": minus,
            "form": form,
            "empirical": empirical,
            "schedule": settings.schedule.kind,
        }


class TableMethod(TrainingMethod):
    """A method whose target is mixed with a table: by default one of order 1, in the exact, token-wise form.

    The target is then (1 - gamma) onehot + gamma p~.
    """

    def table(self, settings: Regularizer, text: TrainingText) -> tuple[BackoffTable, Counts]:
        """The table, and the counts it was made from."""
        raise NotImplementedError

    def target(self, settings: Regularizer) -> TargetSettings:
        """As for all tables without histories."""
        return 1, "exact", "token"

    def loss(
        self, settings: Regularizer, text: TrainingText, make: type[SmoothedLoss], schedule: Schedule
    ) -> SmoothedLoss:
        """Cross-entropy with the table's target."""
        table, counts = self.table(settings, text)
        plus, minus = settings.strengths
        _, form, empirical = self.target(settings)
        assert form is not None and empirical is not None
        return make(
            table,
            counts if empirical == "ngram" else None,
            gamma_plus=plus,
            gamma_minus=minus,
            form=form,
            empirical=empirical,
            schedule=schedule,
        )


def _hash(*parts: Any) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT]).encode())
    for part in parts:
        digest.update(b"\0" + (part if isinstance(part, bytes) else str(part).encode()))
    return digest.hexdigest()[:24]
