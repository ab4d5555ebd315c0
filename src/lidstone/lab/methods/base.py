"""What a method is: the steps of a training that it can change, its settings, a recipe's section `regularizer`, and the
registry, which has the methods' labels, and by the order of its lines their places in tables.

A `TrainingMethod` is plain cross-entropy; a method overrides the steps that it changes. It reads the training text
through `TrainingText`, which caches counts and tables under the hash of their inputs, so seeds, strengths and models
share them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from lidstone.errors import FileFormatError, printable
from lidstone.loss.schedule import Kind, Schedule

if TYPE_CHECKING:
    from lidstone.hf.stored_teacher import StoredTeacher
    from lidstone.loss.losses import SmoothedLoss
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class MethodLabel:
    """How tables show a method."""

    short: str
    long: str
    stands_alone: bool = True
    """False if the trained network needs an n-gram model at test time, too, and is not ranked among the others"""


METHODS = {
    "none": MethodLabel("None", "None"),
    "confidence_penalty": MethodLabel("CP", "Confidence penalty"),
    "label_smoothing": MethodLabel("LS", "Label smoothing"),
    "unigram_label_smoothing": MethodLabel("unigram LS", "Unigram label smoothing"),
    "noising": MethodLabel("Noising", "Data noising"),
    "reverse_kl": MethodLabel("Reverse KL", "Reverse KL to the n-gram model"),
    "ndp": MethodLabel("NDP", "Next-distribution prediction"),
    "distillation": MethodLabel("Distillation", "Distillation from a teacher"),
    "residual": MethodLabel("Residual", "N-gram residual", stands_alone=False),
    "smoother": MethodLabel("smoother", "Smoother"),  # runs are named after the smoother instead
}


@cache
def load_method(kind: str) -> TrainingMethod:
    """The method of this kind, from its file.

    >>> load_method("noising").kind
    'noising'
    """
    method: TrainingMethod = import_module(f"lidstone.lab.methods.{kind}").METHOD
    return method


def residual_of(model: Any) -> Any:
    """The n-gram residual that a model was trained with, see `residual`; None for other models."""
    return getattr(model, "ngram_residual", None)


if TYPE_CHECKING:
    MethodKind = str
else:
    MethodKind = Literal[tuple(METHODS)]


Thing = TypeVar("Thing", bound="Counts | BackoffTable")
BatchChange = Callable[[dict[str, Any], float], dict[str, Any]]
"""Changes a batch of training; the second argument is a factor on the strength, for schedules."""
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Strength = Annotated[float, Field(ge=0)]
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
    more: NDArray[Any] | None = None
    """the text that the table is fitted to, if it is not the training text"""
    given: BackoffTable | None = None
    """the table of `regularizer.table`"""
    teacher: StoredTeacher | None = None
    """the teacher of `regularizer.teacher`, at the positions of the stream"""

    def count(self, order: int, stream: NDArray[Any] | None = None) -> Counts:
        """Counts of the training text, or of another, from the cache if they are there."""
        from lidstone.ngram.counts import count

        text = self.stream if stream is None else stream
        key = _hash(text.tobytes(), self.vocab.fingerprint, order)
        return self._cached("counts", key, lambda: count(text, self.vocab, order))

    def fit(self, name: str, smoother: Any, counts: Counts) -> BackoffTable:
        """The table of a smoother, from the cache if it is there."""
        key = _hash(counts.fingerprint, name, repr(smoother))
        found: BackoffTable = self._cached("tables", key, lambda: smoother.fit(counts))
        return found

    def table(self, settings: Regularizer, counts: Counts | None = None) -> BackoffTable:
        """The table of a recipe: that of a file, or of its smoother and the text of the table or other counts."""
        if self.given is not None:
            return self.given
        counts = counts or self.count(settings.order, self.more)
        return self.fit(str(settings.smoother), settings.make_smoother(counts, self.valid), counts)

    def fold_tables(self, settings: Regularizer, number: int) -> list[BackoffTable]:
        """One table per fold, fitted to the training text without the sentences of that fold."""
        from lidstone.ngram.counts import count

        owner = folds_of(self.lengths, number)
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


def folds_of(lengths: NDArray[Any], number: int) -> NDArray[np.int64]:
    """The fold of each token of sentences: sentence i belongs to fold i mod k.

    >>> folds_of(np.array([1, 2, 1]), 2).tolist()
    [0, 1, 1, 0]
    """
    return np.repeat(np.arange(len(lengths)) % number, lengths)


class TrainingMethod:
    """Plain cross-entropy, the method `none`; another method overrides the steps that it changes."""

    kind = "none"
    tasks: tuple[str, ...] = ("lm", "mt")
    """what it can train"""
    has_smoother: bool | None = False
    """whether it needs the key `smoother`; otherwise the key is an error; None: it may have it"""
    has_folds = False
    """whether it can take the key `folds`"""
    axes: tuple[str, ...] | None = ()
    """keys of `regularizer` whose axes, common to all methods of a sweep, apply to this one; None: all"""
    has_order = False
    """whether it uses n-grams of the settings' order"""
    takes_hidden_states = True
    """whether the loss may compute the logits itself, from hidden states and the output matrix"""

    def default_name(self, smoother: str | None) -> str:
        """The name in tables of a recipe that gives none."""
        return self.kind.replace("_", "-")

    def check(self, settings: Regularizer) -> None:
        """Raise a ValueError for settings that this method does not allow."""
        from lidstone.ngram.smoothers.registry import smoother_names

        if {settings.gamma, settings.gamma_plus, settings.gamma_minus} != {None} or settings.parameters:
            raise ValueError("kind none has no gamma and no parameters; name a smoother: smoother: katz")
        if settings.name in smoother_names():
            raise ValueError(f"{settings.name} is a smoother; write smoother: {settings.name}, and its gamma")

    def loss(
        self, settings: Regularizer, text: TrainingText, make: type[SmoothedLoss], schedule: Schedule
    ) -> SmoothedLoss:
        """The loss of training; `make` is a class of losses, on logits or on hidden states."""
        return make(schedule=schedule)

    def change_model(self, settings: Regularizer, text: TrainingText, model: Any) -> None:
        """Change the untrained model."""

    def marks(self, settings: Regularizer, lengths: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
        """Numbers of the labels that batches are to hold, by name; `lengths` are those of the sentences."""
        return {"folds": folds_of(lengths, settings.folds)} if settings.folds else {}

    def batch_change(self, settings: Regularizer, text: TrainingText, model: Any) -> BatchChange | None:
        """What changes the batches of training; None: nothing."""
        return None

    def describe(self, settings: Regularizer) -> dict[str, Any]:
        """The method in `run.json`, with the keys by which reports group runs."""
        plus, minus = settings.strengths if settings.is_set else (None, None)
        return {
            "kind": self.kind,
            "smoother": settings.smoother,
            "parameters": {**settings.parameters, **settings.table_origin},
            "order": settings.order if self.has_order else None,
            "gamma_plus": plus,
            "gamma_minus": minus,
            "form": None,
            "empirical": None,
            "schedule": settings.schedule.kind,
        }


class StrengthMethod(TrainingMethod):
    """A method that has the one strength gamma."""

    axes: tuple[str, ...] | None = ("gamma",)

    def check(self, settings: Regularizer) -> None:
        """Raise a ValueError if there is no gamma."""
        if settings.gamma is None:
            raise ValueError(f"{self.kind} needs gamma")


class TableMethod(StrengthMethod):
    """A method whose target is mixed with a table: by default one without histories, in the exact, token-wise form.

    The target is then (1 - gamma) onehot + gamma p~.
    """

    def table(self, settings: Regularizer, text: TrainingText, counts: Counts) -> BackoffTable:
        """The table, of counts that have the order in `describe`."""
        raise NotImplementedError

    def describe(self, settings: Regularizer) -> dict[str, Any]:
        own = {} if self.has_order else {"order": 1}
        return super().describe(settings) | own | {"form": "exact", "empirical": "token"}

    def loss(
        self, settings: Regularizer, text: TrainingText, make: type[SmoothedLoss], schedule: Schedule
    ) -> SmoothedLoss:
        options = self.describe(settings)
        counts = text.count(options["order"])
        return make(
            self.table(settings, text, counts),
            counts if options["empirical"] == "ngram" else None,
            **{key: options[key] for key in ("gamma_plus", "gamma_minus", "form", "empirical")},
            schedule=schedule,
        )


def _hash(*parts: Any) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT]).encode())
    for part in parts:
        digest.update(b"\0" + (part if isinstance(part, bytes) else str(part).encode()))
    return digest.hexdigest()[:24]


def _check_name(text: str) -> str:
    if printable(text) != text:
        raise ValueError("it has control characters")
    return text


Name = Annotated[str, AfterValidator(_check_name)]


class Section(BaseModel):
    """A part of a recipe: no unknown keys, no changes after loading, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    LATER: ClassVar[frozenset[str]] = frozenset()
    """Keys that the first version did not have: written only where they are set, so old recipes keep their run ids."""

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        values: dict[str, Any] = serialize(self)
        return {
            key: value
            for key, value in values.items()
            if key not in self.LATER or getattr(self, key) != fields[key].default
        }


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


class TeacherSettings(Section):
    """Who teaches, how, and what of it is kept: see `lidstone.teach`."""

    runs: tuple[int | str, ...] = Field(min_length=1)
    """The networks: folders of runs; or seeds, with which this recipe's network is trained without a regularizer."""
    set: dict[str, Any] = Field(default_factory=dict)
    """For seeds: what those recipes have instead, by dotted key, such as {model.dropout: 0.15}."""
    weights: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """One for each of the runs; equal by default."""
    cross_fit: bool = False
    """Run i of K was trained without the sentences i mod K (seeds: it is), and teaches these alone."""
    weight: Annotated[float, Field(ge=0, le=1)] | Literal["em"] = 0.0
    """Of the smoother's table beside the networks; em: the best for the validation text."""
    k: Positive | None = 64
    """How many words are kept at each position; null: all."""
    sample: bool = False
    """Draw k words, without bias, instead of keeping the most probable ones."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Softens the teacher before its words are kept."""
    tail: Literal["drop", "renormalize", "uniform", "unigram", "table"] = "uniform"
    """What the other words have: drop, renormalize, uniform, unigram; table: in proportion to the smoother's table."""

    @field_validator("runs", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return (value,) if isinstance(value, (int, str)) else value


class Regularizer(Section):
    """What is added to the cross-entropy: a smoother as regularizer, or a baseline."""

    LATER = frozenset({"noise", "folds", "text", "table", "teacher"})

    name: Name = ""
    """The label in tables; by default the smoother or the kind."""
    kind: MethodKind = "none"
    """none, smoother (implied by `smoother:`), label_smoothing, unigram_label_smoothing, confidence_penalty, noising,
    reverse_kl, ndp, residual or distillation; all but the first two have the one strength gamma. residual adds gamma
    times the log-probabilities of a smoother to the logits; noising replaces tokens of the training text; reverse_kl
    adds gamma KL(q || p~) of a smoother; ndp mixes the target with the n-gram frequencies of the text; distillation
    mixes it with a teacher."""
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
    """How the strengths change over training."""
    noise: Literal["blank", "unigram", "kneser-ney"] = "kneser-ney"
    """noising: what inputs are replaced with: blank, unigram, or kneser-ney, which replaces targets, too."""
    folds: Annotated[int, Field(ge=2)] | None = None
    """Language models: each training sentence meets a table fitted without its fold; null: the whole table."""
    text: tuple[str, ...] = ()
    """The text that the table is fitted to, if not the training text: files, globs, or the name of a corpus."""
    table: str | None = None
    """A table instead of a smoother: a file of lidstone, ARPA, or a KenLM trie, over the tokens of the run."""
    teacher: TeacherSettings | None = None
    """distillation: who teaches; the target is (1 - gamma) onehot + gamma teacher."""

    @property
    def strengths(self) -> tuple[float, float]:
        """(gamma_plus, gamma_minus), also if given as gamma."""
        plus = self.gamma if self.gamma_plus is None else self.gamma_plus
        minus = self.gamma if self.gamma_minus is None else self.gamma_minus
        return plus or 0.0, minus or 0.0

    @property
    def table_origin(self) -> dict[str, Any]:
        """What the table is made from, as reports show it; empty for one table of the training text."""
        text = ", ".join(Path(name).name for name in self.text)
        origin = {"folds": self.folds, "text": text, "table": self.table and Path(self.table).name}
        return {key: value for key, value in origin.items() if value}

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

    @field_validator("text", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _imply(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        source = values.get("smoother") or ("table" if values.get("table") else None)
        kind = str(values.get("kind") or ("smoother" if source else "none")).replace("-", "_")
        name = values.get("name") or (load_method(kind).default_name(source) if kind in METHODS else "")
        return {**values, "kind": kind, "name": name}

    @model_validator(mode="after")
    def _consistent(self) -> Regularizer:
        from lidstone.ngram.smoothers.registry import get_smoother

        if self.gamma is not None and (self.gamma_plus, self.gamma_minus) != (None, None):
            raise ValueError("give either gamma or gamma_plus and gamma_minus")
        if self.table is not None and (self.smoother, self.parameters, self.text) != (None, {}, ()):
            raise ValueError("give either a table or a smoother with its parameters and its text")
        with_table = self.smoother is not None or self.table is not None
        if self.method.has_smoother not in (None, with_table):
            raise ValueError(f"kind {self.kind} and smoother {self.smoother or self.table} contradict each other")
        if self.text and not with_table:
            raise ValueError(f"text is that of a smoother's table, and kind {self.kind} has none")
        if self.folds and (self.text or self.table):
            raise ValueError("folds are those of the training text: leave out text and table")
        if (self.teacher is not None) != (self.kind == "distillation"):
            raise ValueError("kind distillation needs a teacher, and no other kind has one")
        self.method.check(self)
        if self.folds is not None and not self.method.has_folds:
            raise ValueError(f"folds are for a smoother's table, and kind {self.kind} has none")
        if self.smoother is not None:
            get_smoother(self.smoother, **self._given_parameters)
        return self
