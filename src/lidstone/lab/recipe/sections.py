"""The sections of a recipe: what may be set, within which range, with what default.

`ModelSpec`, `Training` and `Beam` are defined where they are used, in `training` and `evaluation`; the others here. The
defaults are those of the paper's language model; `recipe/recipe.py` has those for translation.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from lidstone.lab.evaluation.beam import Beam
from lidstone.lab.recipe.settings import Metric, ModelSpec, Training
from lidstone.loss.schedule import Kind, Schedule
from lidstone.section import Positive, Section

__all__ = [
    "Corpus",
    "Evaluation",
    "Files",
    "ModelSpec",
    "Regularizer",
    "ScheduleSection",
    "Sweep",
    "Tokenizer",
    "Training",
]

Strength = Annotated[float, Field(ge=0)]


class Files(Section):
    """The text files of one split; several are read one after the other.

    >>> Files.model_validate("train.txt").target
    ('train.txt',)
    """

    source: tuple[str, ...] = ()
    """Text to translate from; empty for language models."""
    target: tuple[str, ...] = ()
    """Text to model, or to translate into."""

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"target": value} if isinstance(value, (str, list, tuple)) else value

    @field_validator("source", "target", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class Corpus(Section):
    """The text, and how it is cleaned before tokenization."""

    LATER = frozenset({"distinct"})

    name: str | None = None
    """A corpus known by name: embedded, wikitext2, wikitext2-raw, iwslt14, multi30k, tatoeba, wmt14,
    lafand-en-ibo, lafand-en-swa, lafand-en-yor, lafand-fr-wol."""
    train: Files | None = None
    """Your own training text instead; for translation {source: FILE, target: FILE}."""
    valid: Files | None = None
    """Validation text. Where missing it is taken out of the training text."""
    test: Files | None = None
    """Test text. Where missing it is taken out of the training text."""
    source_language: str = "de"
    """Language code of the source, for Moses tokenization and to pick the side of a named corpus."""
    target_language: str = "en"
    """Language code of the target."""
    valid_every: Annotated[int, Field(ge=2)] | None = None
    """Without validation files: every n-th cleaned training line (fairseq's IWSLT script: 23)."""
    limit: Positive | None = None
    """Keep only this many training samples, the first ones."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Keep this share of the training samples, evenly spread."""
    lowercase: bool = False
    """Lower-case the text."""
    tokenization: Literal["none", "moses", "done"] = "none"
    """moses: tokenize with sacremoses; done: the files are Moses-tokenized already; none: leave as it is."""
    normalize: bool = False
    """With moses: normalise punctuation and remove non-printing characters first (fairseq's WMT script)."""
    min_length: Annotated[int, Field(ge=0)] = 1
    """Drop training samples with fewer words on either side."""
    max_length: Positive | None = None
    """Drop training samples with more words on either side (fairseq's IWSLT script: 175)."""
    max_ratio: Annotated[float, Field(ge=1)] | None = None
    """Drop training pairs whose lengths differ by more than this factor (fairseq's scripts: 1.5)."""
    distinct: bool = False
    """Keep each cleaned sample once: drop repeats, and training samples that are also in validation or test."""


class Tokenizer(Section):
    """How text becomes ids."""

    kind: Literal["word", "bpe", "checkpoint"] = "bpe"
    """word: split at white space; bpe: byte-pair encoding; checkpoint: the tokenizer of model.checkpoint."""
    merges: Positive = 16_000
    """Number of BPE merges to learn."""
    joint: bool = True
    """Translation: learn one set of merges from both languages together."""
    shared_vocabulary: bool = False
    """Translation: one vocabulary, and one embedding matrix, for both languages."""
    codes: str | None = None
    """A file of BPE merges (subword-nmt format) to use instead of learning them."""
    min_count: Positive = 1
    """Tokens that occur less often in the training text become <unk>."""
    pad_to_multiple: Positive = 1
    """Round the vocabulary size up to a multiple, with unused ids (fairseq: 8)."""


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


Baseline = Literal[
    "none", "smoother", "label_smoothing", "unigram_label_smoothing", "confidence_penalty", "noising", "residual"
]


class Regularizer(Section):
    """What is added to the cross-entropy: a smoother as regularizer, or a baseline."""

    LATER = frozenset({"noise", "folds"})

    name: str = ""
    """The label in tables; by default the smoother or the kind."""
    kind: Baseline = "none"
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

    @model_validator(mode="before")
    @classmethod
    def _imply(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        kind = str(values.get("kind") or ("smoother" if values.get("smoother") else "none")).replace("-", "_")
        label = values.get("smoother") if kind == "smoother" else kind.replace("_", "-")
        return {**values, "kind": kind, "name": values.get("name") or label}

    @model_validator(mode="after")
    def _consistent(self) -> Regularizer:
        from lidstone.ngram.smoothers.registry import get_smoother, smoother_names

        one_by_one = (self.gamma_plus, self.gamma_minus)
        if self.gamma is not None and one_by_one != (None, None):
            raise ValueError("give either gamma or gamma_plus and gamma_minus")
        if (self.kind in ("smoother", "residual")) != (self.smoother is not None):
            raise ValueError(f"kind {self.kind} and smoother {self.smoother} contradict each other")
        if self.kind == "none" and (one_by_one != (None, None) or self.gamma is not None or self.parameters):
            raise ValueError("kind none has no gamma and no parameters; name a smoother: smoother: katz")
        if self.kind == "none" and self.name in smoother_names():
            raise ValueError(f"{self.name} is a smoother; write smoother: {self.name}, and its gamma")
        if self.kind == "smoother" and self.gamma is None and None in one_by_one:
            raise ValueError("a smoother needs gamma, or both gamma_plus and gamma_minus")
        if self.kind not in ("none", "smoother") and self.gamma is None:
            raise ValueError(f"{self.kind} needs gamma")
        if self.kind == "residual" and not self.gamma:
            raise ValueError("a residual needs gamma above 0")
        if self.kind == "residual" and self.schedule.kind != "constant":
            raise ValueError("the strength of a residual is part of the model: it cannot follow a schedule")
        if self.folds is not None and self.kind != "residual":
            raise ValueError(f"folds are for kind residual, not {self.kind}")
        if self.kind == "noising" and not 0 <= (self.gamma or 0) <= 1:
            raise ValueError(f"gamma is {self.gamma}, but noising needs a probability from 0 to 1")
        if self.kind == "smoother" and self.form == "exact" and self.strengths[1] > 1:
            raise ValueError(f"gamma_minus is {self.strengths[1]}, but the exact form allows 0 to 1")
        if self.smoother is not None:
            get_smoother(self.smoother, **self.parameters)
        return self


class Evaluation(Beam):
    """How a trained model is scored."""

    LATER = frozenset({"ngram_orders"})

    metric: Metric = "perplexity"
    """The validation metric for early stopping and the choice of settings: perplexity or bleu."""
    valid_limit: Positive | None = None
    """Validation sentences used for early stopping, from the first on; null: all."""
    ngram_orders: tuple[Annotated[int, Field(ge=1, le=8)], ...] = (2, 3, 4, 5)
    """Language models: n-gram models of the training text to score beside the network; empty: none."""


class Sweep(Section):
    """What `lidstone sweep` searches: every combination of the axes, for each method."""

    axes: dict[str, list[Any]] = Field(default_factory=dict)
    """Values by dotted key, e.g. regularizer.gamma_plus: [0.05, 0.1]."""
    by_method: dict[str, dict[str, list[Any]]] = Field(default_factory=dict)
    """Further axes of single methods, by the method's name."""
    search: Literal["grid", "tpe"] = "grid"
    """grid: all combinations; tpe: Optuna's guided search."""
    trials: Positive | None = None
    """For tpe: how many settings to try per method."""
    refine: dict[str, list[Any]] = Field(default_factory=dict)
    """Values to try after the search, by dotted key, one at a time, all else as in the best setting."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """The best setting of each method is trained once per seed."""
