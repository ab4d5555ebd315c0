"""A smoothed n-gram distribution as regularizer: what lidstone is for. See `SmoothedCrossEntropy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lidstone.lab.methods.base import Regularizer, TableMethod, TargetSettings, TrainingText

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable


class SmootherMethod(TableMethod):
    """Any smoother, of any order, in any form; the only method that has both strengths."""

    kind = "smoother"
    has_smoother = True

    def default_name(self, smoother: str | None) -> str:
        """The name of the smoother."""
        return str(smoother)

    def check(self, settings: Regularizer) -> None:
        """Both strengths, and in the exact form gamma_minus up to 1."""
        if settings.gamma is None and None in (settings.gamma_plus, settings.gamma_minus):
            raise ValueError("a smoother needs gamma, or both gamma_plus and gamma_minus")
        if settings.form == "exact" and settings.strengths[1] > 1:
            raise ValueError(f"gamma_minus is {settings.strengths[1]}, but the exact form allows 0 to 1")

    def varies_along(self, key: str) -> bool:
        """Every key is its own."""
        return True

    def target(self, settings: Regularizer) -> TargetSettings:
        """As the recipe sets them."""
        return settings.order, settings.form, settings.empirical

    def table(self, settings: Regularizer, text: TrainingText) -> tuple[BackoffTable, Counts]:
        """The smoother, fitted to the training text."""
        counts = text.count(settings.order)
        return text.table(settings, counts), counts


METHOD = SmootherMethod()
