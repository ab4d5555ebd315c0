"""No regularizer: plain cross-entropy, what the others are compared with."""

from __future__ import annotations

from typing import Any

from lidstone.lab.methods.base import Regularizer, TrainingMethod


class NoRegularizer(TrainingMethod):
    """Cross-entropy without any change."""

    kind = "none"
    axes = ()

    def check(self, settings: Regularizer) -> None:
        from lidstone.ngram.smoothers.registry import smoother_names

        if {settings.gamma, settings.gamma_plus, settings.gamma_minus} != {None} or settings.parameters:
            raise ValueError("kind none has no gamma and no parameters; name a smoother: smoother: katz")
        if settings.name in smoother_names():
            raise ValueError(f"{settings.name} is a smoother; write smoother: {settings.name}, and its gamma")

    def describe(self, settings: Regularizer) -> dict[str, Any]:
        return super().describe(settings) | {"gamma_plus": None, "gamma_minus": None}


METHOD = NoRegularizer()
