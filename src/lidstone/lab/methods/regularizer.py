"""The section `regularizer` of a recipe: the settings of all methods, and which of them the chosen method allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from lidstone.lab.methods import METHODS, load_method
from lidstone.loss.schedule import Kind, Schedule
from lidstone.section import Positive, Section

if TYPE_CHECKING:
    from lidstone.lab.methods.base import TrainingMethod
    from lidstone.ngram.counts import Counts

    MethodKind = str
else:
    MethodKind = Literal[tuple(METHODS)]

Strength = Annotated[float, Field(ge=0)]


class ScheduleSection(Section):
    """How the strengths change over training: the keys from which `over` makes a `lidstone.Schedule`.

    A recipe counts updates; a `Schedule` has a share of training, known only when the length of training is known.
    """

    kind: Kind = "constant"
    """constant, linear or cosine."""
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """For linear and cosine: the factor on the strengths at the end."""
    steps: Positive | None = None
    """Steps until it is reached; null: at the end of training."""

    def over(self, steps: int) -> Schedule:
        """The schedule of a training of so many updates.

        >>> ScheduleSection(kind="linear", steps=50).over(100)(0.25)
        0.5
        """
        return Schedule(self.kind, end=self.final, share=min(1.0, self.steps / steps) if self.steps else 1.0)


class Regularizer(Section):
    """What is added to the cross-entropy: a smoother as regularizer, or a baseline."""

    LATER = frozenset({"noise", "folds"})

    name: str = ""
    """The label in tables; by default the smoother or the kind."""
    kind: MethodKind = "none"
    """none, smoother (implied by `smoother:`), label_smoothing, unigram_label_smoothing, confidence_penalty, noising or
    residual; all but the first two are baselines with the strength gamma. residual adds gamma times
    the log-probabilities of a smoother to the logits; noising replaces tokens of the training text."""
    smoother: str | None = None
    """Name of a smoother, such as jelinek-mercer; null for none."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Its parameters, such as {weights: 0.75}."""
    order: Annotated[int, Field(ge=1, le=8)] = 2
    """The n of the n-grams."""
    gamma: Strength | None = None
    """Both strengths at once; the strength of a baseline."""
    gamma_plus: Strength | None = None
    """Strength of p+, where the smoothed probability is higher than the empirical one."""
    gamma_minus: Strength | None = None
    """Strength of p-, where it is lower."""
    form: Literal["exact", "published"] = "exact"
    """exact: the signed identity; published: both terms added, as the paper prints it."""
    empirical: Literal["token", "ngram"] = "token"
    """What the smoothed distribution is compared with: the token at this position, or the n-gram frequencies."""
    schedule: ScheduleSection = ScheduleSection()
    noise: Literal["blank", "unigram", "kneser-ney"] = "kneser-ney"
    """noising: what inputs are replaced with; kneser-ney replaces targets, too."""
    folds: Annotated[int, Field(ge=2)] | None = None
    """residual: each training sentence uses a table that was fitted without its fold; null: the table of all text."""

    @property
    def strengths(self) -> tuple[float, float]:
        """(gamma_plus, gamma_minus), also if given as gamma."""
        plus = self.gamma if self.gamma_plus is None else self.gamma_plus
        minus = self.gamma if self.gamma_minus is None else self.gamma_minus
        return plus or 0.0, minus or 0.0

    @property
    def method(self) -> TrainingMethod:
        """The method of this kind."""
        return load_method(self.kind)

    @property
    def is_set(self) -> bool:
        """Whether there is a regularizer at all."""
        return self.kind != "none"

    def make_smoother(self, counts: Counts, held_out: Any) -> Any:
        """The smoother; Jelinek-Mercer's `weights: em` learns its weights from held-out text."""
        from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer
        from lidstone.ngram.smoothers.registry import get_smoother

        if self._learns_weights:
            return JelinekMercer.learn(counts, held_out, **self._given_parameters)
        return get_smoother(str(self.smoother), **self.parameters)

    @property
    def _learns_weights(self) -> bool:
        return self.smoother == "jelinek-mercer" and self.parameters.get("weights") == "em"

    @property
    def _given_parameters(self) -> dict[str, Any]:
        """The parameters without those that are learned."""
        return {key: value for key, value in self.parameters.items() if not (self._learns_weights and key == "weights")}

    @model_validator(mode="before")
    @classmethod
    def _imply(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        kind = str(values.get("kind") or ("smoother" if values.get("smoother") else "none")).replace("-", "_")
        name = values.get("name") or (load_method(kind).default_name(values.get("smoother")) if kind in METHODS else "")
        return {**values, "kind": kind, "name": name}

    @model_validator(mode="after")
    def _consistent(self) -> Regularizer:
        from lidstone.ngram.smoothers.registry import get_smoother

        if self.gamma is not None and (self.gamma_plus, self.gamma_minus) != (None, None):
            raise ValueError("give either gamma or gamma_plus and gamma_minus")
        if self.method.has_smoother != (self.smoother is not None):
            raise ValueError(f"kind {self.kind} and smoother {self.smoother} contradict each other")
        self.method.check(self)
        if self.folds is not None and not self.method.has_folds:
            raise ValueError(f"folds are for kind residual, not {self.kind}")
        if self.smoother is not None:
            get_smoother(self.smoother, **self._given_parameters)
        return self
