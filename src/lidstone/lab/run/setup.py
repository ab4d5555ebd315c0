"""What a recipe trains: the untrained model, the training text in batches, the loss, and the noise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lidstone.errors import InputError
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.batches import Batches, BatchSize
from lidstone.lab.run.loss import make_loss
from lidstone.lab.run.methods import attach_residual, make_noise, training_folds
from lidstone.lab.run.models import PAD
from lidstone.lab.run.processes import first_process_first, process_count

if TYPE_CHECKING:
    from lidstone.lab.methods.noising import Noising
    from lidstone.loss.loss import SmoothedLoss


@dataclass(frozen=True)
class Setup:
    """Everything that `fit` needs in addition to its settings."""

    model: Any
    batches: Batches
    loss: SmoothedLoss
    noise: Noising | None = None


def set_up(recipe: Recipe, prepared: Prepared) -> Setup:
    """Build the model, the batches, the loss and the noise of a recipe, and set the number of CPU threads."""
    import torch

    if recipe.training.threads is not None:
        torch.set_num_threads(recipe.training.threads)
    model = make_model(recipe, prepared)
    with first_process_first():
        attach_residual(recipe.regularizer, prepared, model)
        noise = make_noise(recipe.regularizer, prepared, model.config.pad_token_id)
    batches = make_batches(recipe, prepared, getattr(model.config, "max_position_embeddings", None))
    if recipe.task == "lm" and not _pretrained(recipe):
        model.config.trained_window = batches.longest  # saved with the model; see `window_of`
    steps = recipe.training.steps(len(batches), process_count())
    with first_process_first():
        loss = make_loss(recipe.regularizer, prepared, steps, linear=_takes_hidden_states(recipe))
    return Setup(model, batches, loss, noise)


def _pretrained(recipe: Recipe) -> bool:
    """Whether training continues a checkpoint, which has seen longer rows than this run may have."""
    return recipe.model.kind == "auto" and Path(str(recipe.model.checkpoint)).is_dir()


def _takes_hidden_states(recipe: Recipe) -> bool:
    """Whether the loss may take hidden states: our own networks, whose logits are one matrix product, in float32."""
    import torch

    from lidstone.lab.run.trainer import use_bf16

    if recipe.regularizer.kind == "residual":  # it is added to logits
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
    folds = training_folds(recipe.regularizer, split)
    if training.block_length is None:
        return sentence_batches(list(split.target), eos=eos, limit=limit, size=size, seed=seed, folds=folds)
    if training.block_length > limit:
        raise InputError(
            f"blocks of {training.block_length} tokens are longer than the model reads, {limit}",
            hint="set training.block_length lower",
        )
    folds = None if folds is None else np.repeat(folds, split.target.lengths)
    return block_batches(split.target.stream, eos=eos, block=training.block_length, size=size, seed=seed, folds=folds)
