"""The sections of a recipe, as frozen pydantic models: what may be set, within which range, with what default.

The defaults are the paper's language model; `recipe/recipe.py` lays the translation defaults over them.
How a section is used is no matter of this file.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from lidstone.training.architectures import ModelSpec

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Strength = Annotated[float, Field(ge=0)]


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
    """Which text, and how it is cleaned before tokenization."""

    LATER = frozenset({"distinct"})

    name: str | None = None
    """A corpus known by name: embedded, wikitext2, wikitext2-raw, iwslt14, multi30k, tatoeba or wmt14."""
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
    """Keep the first so many training samples."""
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
    """Keep each cleaned sample once: repeats go, and training samples that are also in validation or test."""


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


class Model(Section):
    """The network; the fields are those of `lidstone.training.models.ModelSpec`."""

    kind: Literal["transformer-lm", "transformer-mt", "auto"] = "transformer-lm"
    layers: Positive = 6
    width: Annotated[int, Field(ge=2)] = 512
    heads: Positive = 8
    ffn: Positive = 2048
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    max_positions: Positive = 512
    tied: bool = True
    checkpoint: str | None = None
    options: dict[str, Any] = {}

    def spec(self) -> ModelSpec:
        """The same values for `build_model`."""
        return ModelSpec(**{**self.model_dump(), "options": tuple(sorted(self.options.items()))})


class Schedule(Section):
    """How the strengths change over training."""

    kind: Literal["constant", "linear", "cosine"] = "constant"
    final: Strength = 0.0
    """For linear and cosine: the factor on the strengths at the end."""
    steps: Positive | None = None
    """Reached after so many steps; null: at the end of training."""


Baseline = Literal["none", "smoother", "label_smoothing", "unigram_label_smoothing", "confidence_penalty"]


class Regularizer(Section):
    """What is added to the cross-entropy: a smoother turned regularizer, or a baseline one would use instead."""

    name: str = ""
    """The label in tables; by default the smoother or the kind."""
    kind: Baseline = "none"
    """smoother is implied by `smoother:`; the others are baselines with the strength gamma."""
    smoother: str | None = None
    """Name of a smoother, such as jelinek-mercer; null for none."""
    parameters: dict[str, Any] = {}
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
    """What the smoothed distribution is compared with: the token at hand, or the n-gram frequencies."""
    schedule: Schedule = Schedule()

    @property
    def strengths(self) -> tuple[float, float]:
        """(gamma_plus, gamma_minus), whichever way they were given."""
        plus = self.gamma if self.gamma_plus is None else self.gamma_plus
        minus = self.gamma if self.gamma_minus is None else self.gamma_minus
        return plus or 0.0, minus or 0.0

    @model_validator(mode="before")
    @classmethod
    def _imply(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        kind = str(values.get("kind") or ("smoother" if values.get("smoother") else "none")).replace("-", "_")
        label = values.get("smoother") or kind.replace("_", "-")
        return {**values, "kind": kind, "name": values.get("name") or label}

    @model_validator(mode="after")
    def _consistent(self) -> Regularizer:
        one_by_one = (self.gamma_plus, self.gamma_minus)
        if self.gamma is not None and one_by_one != (None, None):
            raise ValueError("give either gamma or gamma_plus and gamma_minus")
        if (self.kind == "smoother") != (self.smoother is not None):
            raise ValueError(f"kind {self.kind} and smoother {self.smoother} contradict each other")
        if self.kind == "smoother" and self.gamma is None and None in one_by_one:
            raise ValueError("a smoother needs gamma, or both gamma_plus and gamma_minus")
        if self.kind not in ("none", "smoother") and self.gamma is None:
            raise ValueError(f"{self.kind} needs gamma")
        if self.kind == "smoother" and self.form == "exact" and self.strengths[1] > 1:
            raise ValueError(f"gamma_minus is {self.strengths[1]}, but the exact form allows 0 to 1")
        if self.smoother is not None:
            from lidstone.ngram.smoothers.registry import get_smoother

            get_smoother(self.smoother, **self.parameters)
        return self


class Training(Section):
    """How the network is trained."""

    epochs: Positive | None = None
    """Stop after so many passes over the training text."""
    max_steps: Positive | None = 50_000
    """Stop after so many updates."""
    batch_tokens: Positive | None = 2048
    """Target tokens per batch, padding included."""
    batch_size: Positive | None = None
    """Sequences per batch, instead of batch_tokens."""
    accumulation: Positive = 16
    """Batches per update."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    betas: tuple[Rate, Rate] = (0.9, 0.98)
    """Adam's two decay rates."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    """How the learning rate falls after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0)] = 4000
    warmup_start: Annotated[float, Field(ge=0)] = 1e-7
    """The learning rate at step 0, from which it rises linearly."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    clip: Annotated[float, Field(ge=0)] = 0.0
    """Largest gradient norm; 0: no clipping."""
    block_length: Annotated[int, Field(ge=2)] | None = 512
    """Language models: pack the text into blocks of so many tokens; null: one sentence per sequence."""
    patience: Positive | None = 5
    """Stop after so many evaluations without a better validation score; null: never."""
    eval_every: Positive | None = None
    """Evaluate every so many updates; null: after each epoch."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU that has it, fp32 elsewhere."""
    threads: Positive | None = None
    """CPU threads; null: torch's own choice."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Training:
        if self.epochs is None and self.max_steps is None:
            raise ValueError("training needs an end: set epochs or max_steps")
        if (self.batch_tokens is None) == (self.batch_size is None):
            raise ValueError("set either batch_tokens or batch_size, and the other to null")
        return self


class Evaluation(Section):
    """How a trained model is scored."""

    metric: Literal["perplexity", "bleu"] = "perplexity"
    """What early stopping and model choice look at, on the validation text."""
    beam: Positive = 5
    length_penalty: float = 1.0
    """Scores are divided by length to this power."""
    max_length_factor: Annotated[float, Field(ge=0)] = 1.2
    """A translation has at most factor x source length + extra tokens."""
    max_length_extra: Annotated[int, Field(ge=0)] = 10
    batch_size: Positive = 64
    valid_limit: Positive | None = None
    """Early stopping looks at the first so many validation sentences only; null: at all."""


class Sweep(Section):
    """What `lidstone sweep` searches: every combination of the axes, for each method."""

    axes: dict[str, list[Any]] = {}
    """Values by dotted key, e.g. regularizer.gamma_plus: [0.05, 0.1]."""
    by_method: dict[str, dict[str, list[Any]]] = {}
    """Further axes of single methods, by the method's name."""
    search: Literal["grid", "tpe"] = "grid"
    trials: Positive | None = None
    """For tpe: how many settings to try per method."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """The best setting of each method is trained once per seed."""
