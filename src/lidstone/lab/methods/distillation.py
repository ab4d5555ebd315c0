"""Distillation: the target is mixed with a teacher, which is trained networks and, if wanted, an n-gram model.

    target = (1 - gamma) onehot + gamma t

The teacher's most probable words are stored for every position of the training text (see `lidstone.teach`); the tail
says what the other words have. With folds a sentence meets tables that were fitted without it, in the teacher and as
tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lidstone.errors import RunError
from lidstone.hf.stored_teacher import IDS, LOGPROBS
from lidstone.lab.methods.base import BatchChange, Regularizer, StrengthMethod, TrainingText
from lidstone.loss.folds import FoldedCrossEntropy
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedLoss
from lidstone.loss.schedule import Schedule
from lidstone.loss.teacher import LinearSparseTargetCrossEntropy, SparseTargetCrossEntropy
from lidstone.text.datasets import IGNORED

POSITIONS = "positions"
"""in a batch: where in the training text each label stands"""


class DistillationMethod(StrengthMethod):
    """Training on a stored teacher."""

    kind = "distillation"
    tasks = ("lm",)
    has_smoother = None
    has_folds = True
    axes = ("gamma", "order", "teacher")

    def check(self, settings: Regularizer) -> None:
        super().check(settings)
        teacher = settings.teacher
        assert teacher is not None
        reads = teacher.tail == "table" or teacher.weight != 0
        if settings.strengths[0] > 1:
            raise ValueError(f"gamma is {settings.strengths[0]}, but it is the teacher's share of the target: 0 to 1")
        if reads != (settings.smoother is not None or settings.table is not None):
            raise ValueError(
                "a smoother or table belongs to teacher.weight above 0 or teacher.tail: table, and they to it"
            )
        if settings.schedule.kind != "constant":
            raise ValueError("the share of a teacher does not follow a schedule")
        if teacher.cross_fit and (len(teacher.runs) < 2 or teacher.weights):
            raise ValueError("teacher.cross_fit needs two runs or more, without weights")
        if teacher.weights and len(teacher.weights) != len(teacher.runs):
            raise ValueError("teacher.weights needs one number for each of teacher.runs")

    def describe(self, settings: Regularizer) -> dict[str, Any]:
        found, teacher = super().describe(settings), settings.teacher
        assert teacher is not None
        facts = {"teachers": len(teacher.runs), "tail": teacher.tail, "k": teacher.k or "V"}
        more = {name: getattr(teacher, name) for name in ("weight", "temperature", "sample", "cross_fit")}
        usual = {name: type(teacher).model_fields[name].default for name in more}
        facts |= {name: value for name, value in more.items() if value != usual[name]}
        order = settings.order if settings.smoother or settings.table else None
        return found | {"parameters": {**found["parameters"], **facts}, "order": order}

    def marks(self, settings: Regularizer, lengths: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
        return super().marks(settings, lengths) | {POSITIONS: np.arange(lengths.sum())}

    def loss(
        self, settings: Regularizer, text: TrainingText, make: type[SmoothedLoss], schedule: Schedule
    ) -> SmoothedLoss:
        assert settings.teacher is not None
        tail, gamma = settings.teacher.tail, settings.strengths[0]
        if tail == "table" and settings.folds:
            tables = text.fold_tables(settings, settings.folds)
            return FoldedCrossEntropy(tables, make=SparseTargetCrossEntropy, gamma=gamma)
        linear = issubclass(make, LinearSmoothedCrossEntropy)
        kind = LinearSparseTargetCrossEntropy if linear else SparseTargetCrossEntropy
        if tail == "table":
            return kind(text.table(settings), gamma=gamma)
        return kind(tail, gamma=gamma, counts=text.count(1) if tail == "unigram" else None)

    def batch_change(self, settings: Regularizer, text: TrainingText, model: Any) -> BatchChange:
        """Put the columns of the teacher into a batch; folds stay for a loss with one tail for each."""
        teacher = text.teacher
        assert teacher is not None and settings.teacher is not None
        unread = {POSITIONS, *(() if settings.teacher.tail == "table" else ("folds",))}

        def change(batch: dict[str, Any], strength: float) -> dict[str, Any]:
            labels = batch["labels"]
            taught = teacher.at(batch[POSITIONS].reshape(-1).cpu().numpy())
            said = torch.from_numpy(taught.labels).view(labels.shape).to(labels.device)
            if not bool(((said == labels) | (labels == IGNORED)).all()):
                raise RunError("the teacher was made of other text", hint="delete its folder below the cache")
            columns = {IDS: taught.ids, LOGPROBS: taught.logprobs}
            rest = {name: value for name, value in batch.items() if name not in unread}
            shape = (*labels.shape, teacher.k)
            return {**rest, **{n: torch.from_numpy(c).view(shape).to(labels.device) for n, c in columns.items()}}

        return change


METHOD = DistillationMethod()
