"""`smoothed_trainer`: a Trainer class that counts its own training text, fits a table to it and chooses a strength.

    SmoothedTrainer = ld.smoothed_trainer(Trainer)
    SmoothedTrainer(model, args, train_dataset=train, processing_class=tokenizer).train()

It writes the usual lines for you: `Vocabulary.from_tokenizer`, `count`, `ModifiedKneserNey.fit`,
`SmoothedCrossEntropy`, `SmoothedLossMixin`. What is counted are the labels, as the Trainer has prepared them: padded or
packed, chats after their template, completions without their prompts, the target side of pairs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.hf.mixin import SmoothedLossMixin
from lidstone.loss.losses import SmoothedCrossEntropy
from lidstone.ngram.counts import Counts, count
from lidstone.ngram.smoothers.modified_kneser_ney import FALLBACK, ModifiedKneserNey
from lidstone.text.datasets import IGNORED, LENGTHS
from lidstone.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from lidstone.ngram.smoothers.base import BlockSmoother

Gamma = float | Literal["auto"]
TrainerClass = TypeVar("TrainerClass", bound=type)
STRENGTHS = (
    (100_000, 0.6, "less than 100,000 tokens: the best of 0.2, 0.4, 0.6 and 0.8 in results/wikitext2"),
    (2_000_000, 0.4, "100,000 to 2,000,000 tokens: the better of 0.2 and 0.4 in results/tatoeba"),
    (float("inf"), 0.2, "more than 2,000,000 tokens: a guess, so much text was not studied"),
)
"""Strengths for language models: below so many tokens of training text, the strength, and where it comes from."""


def smoothed_trainer(
    trainer: TrainerClass,
    *,
    tokenizer: Any = None,
    train_dataset: Any = None,
    order: int = 3,
    gamma: Gamma = "auto",
    smoother: BlockSmoother | None = None,
) -> TrainerClass:
    """Make a class of `Trainer`, `Seq2SeqTrainer` or TRL's `SFTTrainer` that trains with a smoothed loss.

    The tokenizer is that of the Trainer or of its collator, and the text its training data, where they are not given
    here. `gamma="auto"` chooses by `suggested_gamma`; what was chosen is printed and is in `trainer.smoothing`.

    >>> from transformers import Trainer
    >>> smoothed_trainer(Trainer, order=2, gamma=0.3).__name__
    'SmoothedTrainer'
    """
    if not isinstance(trainer, type):
        raise InputError(
            f"{type(trainer).__name__} was given where a Trainer class is expected",
            hint="SmoothedTrainer = ld.smoothed_trainer(Trainer); then SmoothedTrainer(model, args, ...)",
        )
    settings = Settings(tokenizer, train_dataset, order, gamma, smoother or ModifiedKneserNey(fallback=FALLBACK))
    made: Any = type(f"Smoothed{trainer.__name__}", (AutomaticLossMixin, trainer), {"settings": settings})
    return made  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Settings:
    """What `smoothed_trainer` was given."""

    tokenizer: Any
    train_dataset: Any
    order: int
    gamma: Gamma
    smoother: BlockSmoother


class AutomaticLossMixin(SmoothedLossMixin):
    """Makes its loss when the Trainer has its model and its data."""

    settings: ClassVar[Settings]
    smoothing: str
    """What was counted and chosen, in one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "smoothed_loss" in kwargs:
            raise InputError(
                "smoothed_trainer makes the loss itself", hint="to give a loss: class My(ld.SmoothedLossMixin, Trainer)"
            )
        given = self.settings.train_dataset
        if given is not None and len(args) < 4:  # Trainer(model, args, data_collator, train_dataset)
            kwargs.setdefault("train_dataset", given)
        super().__init__(*args, smoothed_loss=SmoothedCrossEntropy(), **kwargs)
        same = given is None or given is kwargs.get("train_dataset")
        self._smooth(self.train_dataset if same else given)

    def _smooth(self, data: Any) -> None:
        chosen, vocab = self.settings, vocabulary_of(self.model, _tokenizer_of(self))
        counts = count(labels_of(data, self._has_encoder), vocab, order=chosen.order)
        gamma, why = suggested_gamma(self.model, counts) if chosen.gamma == "auto" else (chosen.gamma, "as given")
        self.smoothed_loss = SmoothedCrossEntropy(chosen.smoother.fit(counts), gamma=gamma)
        text = f"{counts.tokens:,} tokens in {int(counts.counts[vocab.bos]):,} sentences"
        self.smoothing = f"{text}; {chosen.smoother.name}, order {chosen.order}; gamma {gamma:g} ({why})"
        if self.is_world_process_zero():
            print(f"lidstone: {self.smoothing}", file=sys.stderr)


def suggested_gamma(model: Any, counts: Counts) -> tuple[float, str]:
    """A strength to start from, and why; docs/results.md has the studies behind it.

    A model that translates gets 0.1, one that was trained before 0.4; the others by the size of the text.
    """
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        return 0.1, "encoder-decoder: the best for BLEU in results/multi30k and results/lafand_en_ibo"
    if getattr(config, "_name_or_path", "") or hasattr(model, "peft_config"):
        return 0.4, "trained before: the best of 0.1, 0.2, 0.4 and 0.6 in results/fine_tuning"
    return next((gamma, why) for limit, gamma, why in STRENGTHS if counts.tokens < limit)


def vocabulary_of(model: Any, tokenizer: Any) -> Vocabulary:
    """The tokenizer's vocabulary, with as many ids as the model's output has."""
    config: Any = getattr(model, "config", None)
    config = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    size = getattr(config, "vocab_size", None)
    if getattr(config, "decoder_vocab_size", size) not in (None, size):
        raise InputError(
            "the model has a vocabulary of its own for its output, of which the tokenizer does not tell",
            hint="make the vocabulary with ld.Vocabulary(size=, eos=, unpredictable=) and use ld.SmoothedLossMixin",
        )
    return Vocabulary.from_tokenizer(tokenizer, size=size)


def labels_of(data: Any, has_encoder: bool = False) -> Any:
    """What training predicts: `data` itself, for `count`, or rows of labels where there are masked ones.

    >>> [row.tolist() for row in labels_of([{"input_ids": [5, 6, 7, 8], "labels": [-100, 6, -100, 8]}])]
    [[6], [8]]
    """
    if data is None or not hasattr(data, "__len__"):
        raise InputError(
            "there is no training text to count" if data is None else f"a {type(data).__name__} has no known end",
            hint="ld.smoothed_trainer(Trainer, train_dataset=...): a finite data set, perhaps the first part of yours",
        )
    rows = data if hasattr(data, "__iter__") else [data[place] for place in range(len(data))]
    first = next(iter(rows), None)
    if not isinstance(first, dict) or first.get("labels") is None:
        if has_encoder:
            raise InputError("the rows have no labels", hint="tokenize the target side into a column `labels`")
        return rows
    names = [name for name in ("labels", LENGTHS) if name in first]
    labels = rows.select_columns(names) if hasattr(rows, "select_columns") else rows
    parts = [list(_predicted(row)) for row in labels]
    masked = any(sum(map(len, part)) < len(row["labels"]) for part, row in zip(parts, labels, strict=True))
    return [segment for part in parts for segment in part] if masked or has_encoder else rows


def _predicted(row: dict[str, Any]) -> Iterator[NDArray[Any]]:
    """The labels of a row without masked ones, one array for each part between them."""
    labels, lengths = np.asarray(row["labels"]), row.get(LENGTHS)
    for document in [labels] if lengths is None else np.split(labels, np.cumsum(lengths)[:-1]):
        changes = np.flatnonzero(np.diff(document == IGNORED)) + 1
        yield from (part for part in np.split(document, changes) if len(part) and part[0] != IGNORED)


def _tokenizer_of(trainer: Any) -> Any:
    """The tokenizer that was given, that of the Trainer, or that of its collator."""
    processor = getattr(trainer, "processing_class", None)
    found: Sequence[Any] = (
        trainer.settings.tokenizer,
        getattr(processor, "tokenizer", processor),
        getattr(trainer.data_collator, "tokenizer", None),
    )
    chosen = next((tokenizer for tokenizer in found if tokenizer is not None), None)
    if chosen is None:
        raise InputError("no tokenizer was given", hint="ld.smoothed_trainer(Trainer, tokenizer=tokenizer)")
    return chosen
