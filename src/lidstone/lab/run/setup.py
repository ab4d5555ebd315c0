"""What a recipe trains: the untrained model, the training text in batches, the loss, and what its method changes.

Corpora are kept in memory: many runs on the same text read it once. Under torchrun every process sets up the same; the
first one fills the caches.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lidstone.errors import InputError, RunError
from lidstone.lab.corpus.named import cache_root
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.methods.base import BatchChange, Regularizer, TrainingText
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.batches import Batches, BatchSize
from lidstone.lab.run.models import PAD
from lidstone.lab.run.table_text import table_of_file, table_text

if TYPE_CHECKING:
    from lidstone.loss.losses import SmoothedLoss


KEPT = 4
"""How many corpora are kept in memory: a sweep may vary the text, for instance corpus.fraction."""
_HELD: dict[str, Prepared] = {}


@dataclass(frozen=True)
class Setup:
    """Everything that `fit` needs in addition to its settings."""

    model: Any
    batches: Batches
    loss: SmoothedLoss
    batch_change: BatchChange | None = None
    """what the method does to the batches of training"""


def set_up(recipe: Recipe, prepared: Prepared) -> Setup:
    """Build the model, the batches and the loss of a recipe, and set the number of CPU threads."""
    import torch

    if recipe.training.threads is not None:
        torch.set_num_threads(recipe.training.threads)
    model, settings, text = (
        make_model(recipe, prepared),
        recipe.regularizer,
        training_text(prepared, recipe.regularizer),
    )
    with first_process_first():
        settings.method.change_model(settings, text, model)
        batch_change = settings.method.batch_change(settings, text, model)
    batches = make_batches(recipe, prepared, getattr(model.config, "max_position_embeddings", None))
    if recipe.task == "lm" and not _pretrained(recipe):
        model.config.trained_window = batches.longest  # saved with the model; see `window_of`
    steps = recipe.training.steps(len(batches), process_count())
    with first_process_first():
        loss = make_loss(settings, text, steps, linear=_takes_hidden_states(recipe))
    return Setup(model, batches, loss, batch_change)


def training_text(prepared: Prepared, settings: Regularizer | None = None) -> TrainingText:
    """The text of a prepared corpus as a method reads it; counts and tables are cached beside the corpora."""
    train, settings = prepared.train.target, settings or Regularizer()
    more = table_text(prepared, settings.text).stream if settings.text else None
    given = table_of_file(prepared, settings) if settings.table else None
    return TrainingText(
        prepared.vocab, train.stream, train.lengths, prepared.valid.target.stream, cache_root(), more, given
    )


def make_loss(settings: Regularizer, text: TrainingText, steps: int, *, linear: bool = False) -> SmoothedLoss:
    """The loss of one method; `steps` is the length of the training, for schedules.

    `linear` takes hidden states instead of logits, if the method allows: faster, and without storing all logits.
    """
    from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedCrossEntropy

    make: type[SmoothedLoss] = LinearSmoothedCrossEntropy if linear else SmoothedCrossEntropy
    return settings.method.loss(settings, text, make, settings.schedule.over(steps))


def _pretrained(recipe: Recipe) -> bool:
    """Whether training continues a checkpoint, which has seen longer rows than this run may have."""
    return recipe.model.kind == "auto" and Path(str(recipe.model.checkpoint)).is_dir()


def _takes_hidden_states(recipe: Recipe) -> bool:
    """Whether the loss may take hidden states: our own networks, whose logits are one matrix product, in float32."""
    import torch

    from lidstone.lab.run.trainer import use_bf16

    if not recipe.regularizer.method.takes_hidden_states:
        return False
    return recipe.model.kind != "auto" and not use_bf16(recipe.training.precision, torch.cuda.is_available())


def make_model(recipe: Recipe, prepared: Prepared) -> Any:
    """The untrained model, whose weights depend on the seed alone."""
    import torch

    from lidstone.lab.run.models import build_model

    torch.manual_seed(recipe.training.seed)
    source = prepared.source.vocabulary.size if prepared.source else None
    return build_model(
        recipe.model,
        prepared.vocab.size,
        source_vocab_size=source,
        shared_vocabulary=recipe.tokenizer.shared_vocabulary,
    )


def make_batches(recipe: Recipe, prepared: Prepared, reach: int | None = None) -> Batches:
    """The training text in batches: sentences, blocks or pairs; `reach` is the longest sequence the model reads."""
    from lidstone.lab.run.batches import block_batches, check_pair_lengths, pair_batches, sentence_batches

    training, eos, split = recipe.training, prepared.vocab.eos, prepared.train
    size, seed = BatchSize(training.batch_tokens, training.batch_size), training.seed
    limit = reach or recipe.model.max_positions
    if split.source is not None:
        for name, other in (("validation", prepared.valid), ("test", prepared.test)):
            check_pair_lengths(list(other.source or ()), list(other.target), limit, name)
        sources, targets = list(split.source), list(split.target)
        return pair_batches(sources, targets, eos=eos, pad=PAD, limit=limit, size=size, seed=seed)
    number = recipe.regularizer.folds
    folds = None if number is None else training_text(prepared).folds(number)
    if training.block_length is None:
        return sentence_batches(list(split.target), eos=eos, limit=limit, size=size, seed=seed, folds=folds)
    if training.block_length > limit:
        raise InputError(
            f"blocks of {training.block_length} tokens are longer than the model reads, {limit}",
            hint="set training.block_length lower",
        )
    folds = None if folds is None else np.repeat(folds, split.target.lengths)
    return block_batches(split.target.stream, eos=eos, block=training.block_length, size=size, seed=seed, folds=folds)


def cached_corpus(recipe: Recipe, key: str | None = None) -> Prepared:
    """The prepared corpus of a recipe; with its key (`Prepared.key`), from memory if it is there.

    The key is a hash of the text and the settings, so a corpus in memory is never out of date. Without a key the text
    is read again.
    """
    if key is not None and key in _HELD:
        return _HELD[key]
    prepared = prepare_corpus(recipe)
    if key not in (None, prepared.key):
        raise RunError(
            f"the corpus of {recipe.name} is not the one that the sweep was started with",
            hint="was a text file changed, or does this machine have other files? Start the sweep again",
        )
    while len(_HELD) >= KEPT:
        _HELD.pop(next(iter(_HELD)))
    _HELD[prepared.key] = prepared
    return prepared


def process_count() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_rank() -> int:
    """Which of them this is."""
    return int(os.environ.get("RANK", "0"))


@contextlib.contextmanager
def first_process_first() -> Iterator[None]:
    """Under torchrun the first process fills the caches; the others wait, then read them."""
    if process_count() == 1:
        yield
        return
    import torch
    from accelerate import PartialState

    with PartialState(cpu=not torch.cuda.is_available()).main_process_first():
        yield
