"""A smoothed n-gram distribution as regularizer: what lidstone is for. See `SmoothedCrossEntropy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lidstone.lab.methods.base import Regularizer, TableMethod, TrainingText

if TYPE_CHECKING:
    from lidstone.loss.losses import SmoothedLoss
    from lidstone.loss.schedule import Schedule
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable


class SmootherMethod(TableMethod):
    """Any smoother, of any order, in any form; the only method that has both strengths."""

    kind = "smoother"
    has_smoother = True
    has_folds = True
    axes = None
    has_order = True

    def default_name(self, smoother: str | None) -> str:
        return str(smoother)

    def check(self, settings: Regularizer) -> None:
        if settings.gamma is None and None in (settings.gamma_plus, settings.gamma_minus):
            raise ValueError("a smoother needs gamma, or both gamma_plus and gamma_minus")
        if settings.form == "exact" and settings.strengths[1] > 1:
            raise ValueError(f"gamma_minus is {settings.strengths[1]}, but the exact form allows 0 to 1")
        if settings.folds and settings.empirical != "token":
            raise ValueError("folds need empirical: token")

    def describe(self, settings: Regularizer) -> dict[str, Any]:
        return super().describe(settings) | {"form": settings.form, "empirical": settings.empirical}

    def loss(
        self, settings: Regularizer, text: TrainingText, make: type[SmoothedLoss], schedule: Schedule
    ) -> SmoothedLoss:
        if not settings.folds:
            return super().loss(settings, text, make, schedule)
        from lidstone.loss.folds import FoldedCrossEntropy

        plus, minus = settings.strengths
        tables = text.fold_tables(settings, settings.folds)
        return FoldedCrossEntropy(tables, gamma_plus=plus, gamma_minus=minus, form=settings.form, schedule=schedule)

    def table(self, settings: Regularizer, text: TrainingText, counts: Counts) -> BackoffTable:
        return text.table(settings)


METHOD = SmootherMethod()
