"""The sections of a recipe: what may be set, within which range, with what default.

The section `regularizer` is in `lab/methods/base.py`. The defaults are those of the paper's language model;
`recipe/recipe.py` has those for translation.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeGuard, get_origin

from pydantic import (
    BaseModel,
    Field,
    field_validator,
    model_validator,
)

from lidstone.errors import RunError
from lidstone.lab.methods.base import Positive, Rate, Section

Metric = Literal["perplexity", "bleu"]


def is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Whether an annotation is a model; in Python 3.10 list[int] is a type, too."""
    return get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel)


class SplitFiles(Section):
    """The text files of one split; several are read one after the other.

    >>> SplitFiles.model_validate("train.txt").target
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
    train: SplitFiles | None = None
    """Your own training text instead; for translation {source: FILE, target: FILE}."""
    valid: SplitFiles | None = None
    """Validation text. Where missing it is taken out of the training text."""
    test: SplitFiles | None = None
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
    """word: split at white space; bpe: byte-pair encoding; checkpoint: that of model.checkpoint."""
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


class ModelSpec(Section):
    """The shape of a model, without its vocabulary.

    >>> ModelSpec().width
    512
    """

    kind: Literal["transformer-lm", "transformer-mt", "auto"] = "transformer-lm"
    """transformer-lm (OPT class), transformer-mt (Marian class) or auto (a checkpoint or configuration)."""
    layers: Positive = 6
    """Layers of the decoder, and of the encoder where there is one."""
    width: Annotated[int, Field(ge=2)] = 512
    """Size of the embeddings and hidden states."""
    heads: Positive = 8
    """Attention heads per layer."""
    ffn: Positive = 2048
    """Inner size of the feed-forward layers."""
    dropout: Rate = 0.1
    """Dropout after each sub-layer."""
    attention_dropout: Rate = 0.0
    """Dropout on attention weights."""
    max_positions: Positive = 512
    """Longest sequence the model can read."""
    tied: bool = True
    """Share the input and output embeddings of the decoder."""
    checkpoint: str | None = None
    """For auto: a run or a checkpoint folder, a configuration file (.json), or a model type such as gpt2."""
    options: dict[str, Any] = Field(default_factory=dict)
    """For auto: further fields of the configuration, by name."""

    @model_validator(mode="after")
    def _can_be_built(self) -> ModelSpec:
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be split over {self.heads} heads")
        if self.kind == "auto" and self.checkpoint is None:
            raise ValueError("kind auto needs a checkpoint")
        return self


class Training(Section):
    """How the network is trained."""

    LATER = frozenset({"report_to"})

    epochs: Positive | None = None
    """Stop after this many passes over the training text."""
    max_steps: Positive | None = 50_000
    """Stop after this many updates, even if `epochs` is set; null: no limit."""
    batch_tokens: Positive | None = 2048
    """Target tokens per batch, padding included."""
    batch_size: Positive | None = None
    """Sequences per batch; set batch_tokens to null with it."""
    accumulation: Positive = 16
    """Batches per update, over all processes."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    """The highest learning rate, of Adam."""
    betas: tuple[Rate, Rate] = (0.9, 0.98)
    """Adam's two decay rates."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    """How the learning rate falls after the warm-up: inverse_sqrt, linear, cosine or constant (it does not)."""
    warmup_steps: Annotated[int, Field(ge=0)] = 4000
    """Updates until the learning rate is highest."""
    warmup_start: Annotated[float, Field(ge=0)] = 1e-7
    """The learning rate at step 0, from which it rises linearly."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Adam's decoupled weight decay."""
    clip: Annotated[float, Field(ge=0)] = 0.0
    """Largest gradient norm; 0: no clipping."""
    block_length: Annotated[int, Field(ge=2)] | None = 512
    """Language models: pack the text into blocks of this many tokens; null: one sentence per sequence."""
    patience: Positive | None = 5
    """Stop after so many evaluations after the warm-up without a lower validation loss; null: never."""
    eval_every: Positive | None = None
    """Updates between evaluations; null: after each epoch."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Fixes weights, order of batches and dropout."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """fp32, bf16, or auto: bf16 on a GPU that has it, fp32 elsewhere."""
    threads: Positive | None = None
    """CPU threads; null: torch's own choice."""
    report_to: tuple[str, ...] = ()
    """Trackers that the Trainer reports to: wandb, mlflow, tensorboard, ...; they do not change the run's id."""

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_of_each(self) -> Training:
        if self.epochs is None and self.max_steps is None:
            raise ValueError("training needs an end: set epochs or max_steps")
        if (self.batch_tokens is None) == (self.batch_size is None):
            raise ValueError("set either batch_tokens or batch_size, and the other to null")
        return self

    def steps(self, batches: int, processes: int = 1) -> int:
        """How many updates the training has, if it is not stopped early.

        >>> Training(epochs=2, max_steps=None, accumulation=2).steps(batches=5)     # 3 updates per epoch
        6
        """
        per_process = math.ceil(batches / processes)
        per_epoch = math.ceil(per_process / self.share(processes))
        ends = [self.epochs * per_epoch if self.epochs else None, self.max_steps]
        return min(end for end in ends if end is not None)

    def share(self, processes: int) -> int:
        """The batches per update of one process."""
        if self.accumulation % processes:
            raise RunError(
                f"{self.accumulation} batches per update cannot be shared by {processes} processes",
                hint="set training.accumulation to a multiple of the processes, and smaller batches with it",
            )
        return self.accumulation // processes

    def rate(self, step: int, steps: int) -> float:
        """The factor on the learning rate after `step` updates: a linear warm-up, then the schedule.

        >>> settings = Training(learning_rate=1.0, warmup_steps=4, warmup_start=0.0)
        >>> [round(settings.rate(step, 100), 3) for step in (0, 2, 4, 16)]
        [0.0, 0.5, 1.0, 0.5]
        """
        warm = max(self.warmup_steps, 1)
        if step < self.warmup_steps:
            start = self.warmup_start / self.learning_rate
            return start + (1 - start) * step / warm
        done = (step - self.warmup_steps) / max(steps - self.warmup_steps, 1)
        return {
            "constant": 1.0,
            "inverse_sqrt": math.sqrt(warm / max(step, 1)),
            "linear": max(0.0, 1 - done),
            "cosine": (1 + math.cos(math.pi * min(done, 1.0))) / 2,
        }[self.schedule]


class Beam(Section):
    """How translations are searched: part of the section `evaluation` of a recipe.

    >>> Beam().limit(20)
    34
    """

    beam: Positive = 5
    """Hypotheses kept at each step; 1 is greedy search."""
    length_penalty: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Scores are divided by length to this power."""
    max_length_factor: Annotated[float, Field(ge=0)] = 1.2
    """A translation has at most factor x source length + extra tokens."""
    max_length_extra: Annotated[int, Field(ge=0)] = 10
    """See max_length_factor."""
    batch_size: Positive = 64
    """Sentences searched together."""

    def limit(self, source_length: int) -> int:
        """The largest number of tokens in a translation of a source of this length, at least one."""
        return max(1, int(self.max_length_factor * source_length) + self.max_length_extra)


class Evaluation(Beam):
    """How a trained model is scored."""

    LATER = frozenset({"ngram_orders"})

    metric: Metric = "perplexity"
    """The validation metric that chooses weights and settings: perplexity or bleu."""
    valid_limit: Positive | None = None
    """Validation sentences used during training, from the first on; null: all."""
    ngram_orders: tuple[Annotated[int, Field(ge=1, le=8)], ...] = (2, 3, 4, 5)
    """Language models: n-gram models of the training text to score beside the network; empty: none."""


class SweepSettings(Section):
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
