"""One run, from a recipe to `runs/<id>/run.json`: prepare -> count -> fit -> train -> evaluate -> record.

A run that is complete is not computed again. One that was cut short goes on with `resume=True` and ends, on a CPU, as
if nothing had happened. Under torchrun every process calls `train`; the first one writes.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidstone.corpus.cache import new_folder
from lidstone.corpus.prepare import prepare_corpus
from lidstone.corpus.prepared import Prepared
from lidstone.errors import InputError, RunError
from lidstone.experiment.loss import make_loss
from lidstone.experiment.record import (
    SCHEMA,
    SENTENCES,
    add_name,
    method_of,
    peak_memory,
    read_record,
    run_id,
    versions,
    write_record,
)
from lidstone.experiment.saved import SavedModel
from lidstone.experiment.scoring import Scorer, reach_of
from lidstone.locks import claim
from lidstone.recipe.recipe import Recipe
from lidstone.training.arguments import process_count, process_rank, use_bf16
from lidstone.training.batches import Batches, BatchSize

Watch = Callable[[dict[str, float]], None]

PAD = 1  # the id of padding in our vocabularies, see `pipeline.SPECIALS`


@dataclass(frozen=True)
class Run:
    """A run's folder and what its `run.json` holds."""

    folder: Path
    record: dict[str, Any]
    computed: bool = True
    """False if it was complete before"""


def train(
    recipe: Recipe,
    output: str | Path = "runs",
    *,
    resume: bool = False,
    tensorboard: bool = False,
    watch: Watch | None = None,
    claimed: bool = False,
) -> Run:
    """Train the regularizer of a recipe (see `Recipe.method`), and record the run below `output`.

    `watch` is called with the scores of every validation; an error that it raises ends the training. A run that
    another process is at is refused; `claimed` says that its lock is the caller's own.
    """
    began = time.perf_counter()
    _set_threads(recipe.training.threads)
    quiet_transformers()
    with _first_process_first():
        prepared = prepare_corpus(recipe)
    folder = Path(output) / run_id(recipe, prepared)
    done = read_record(folder)
    if done is not None:
        if process_rank() == 0:
            add_name(folder, done, recipe.regularizer.name)
        return Run(folder, done, computed=False)
    with contextlib.nullcontext() if claimed or process_rank() > 0 else _alone(folder):
        _check_unfinished(folder, resume)
        folder.mkdir(parents=True, exist_ok=True)
        return _train(recipe, prepared, folder, began, resume, folder / "tensorboard" if tensorboard else None, watch)


def _train(
    recipe: Recipe,
    prepared: Prepared,
    folder: Path,
    began: float,
    resume: bool,
    tensorboard: Path | None,
    watch: Watch | None,
) -> Run:
    from lidstone.training.fit import fit

    model = make_model(recipe, prepared)
    batches = make_batches(recipe, prepared, reach_of(model))
    with _first_process_first():
        steps = recipe.training.steps(len(batches), process_count())
        loss = make_loss(recipe.regularizer, prepared, steps, linear=_takes_hidden_states(recipe))
    scorer = Scorer(recipe, prepared)
    fitted = fit(
        model,
        loss,
        batches,
        _watched(scorer.validation(), watch),
        recipe.training,
        folder / "checkpoints",
        metric=recipe.evaluation.metric,
        description=recipe.regularizer.name,
        tensorboard=tensorboard,
        resume=resume,
    )
    if process_rank() > 0:
        return Run(folder, {})
    model.eval()
    saved = SavedModel(recipe.task, model, prepared.target, prepared.source, recipe.evaluation, folder.name)
    with new_folder(folder / "model") as made:
        saved.save(made)
    metrics, sentences = scorer.test(model)
    record = _record(recipe, prepared, folder, model, loss, fitted, metrics)
    record["cost"] |= {"total_seconds": time.perf_counter() - began, "peak_memory_bytes": peak_memory()}
    write_record(folder, record, sentences)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return Run(folder, record)


def _watched(score: Callable[[Any], dict[str, float]], watch: Watch | None) -> Callable[[Any], dict[str, float]]:
    """A score that is also told to whoever watches."""
    if watch is None:
        return score

    def scored(model: Any) -> dict[str, float]:
        values = score(model)
        watch(values)
        return values

    return scored


def _takes_hidden_states(recipe: Recipe) -> bool:
    """Whether the loss may take hidden states: our own networks, whose logits are one matrix product, in float32."""
    import torch

    return recipe.model.kind != "auto" and not use_bf16(recipe.training.precision, torch.cuda.is_available())


def make_model(recipe: Recipe, prepared: Prepared) -> Any:
    """The untrained model, whose weights depend on the seed alone."""
    import torch

    from lidstone.training.models import build_model

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
    from lidstone.training.batches import block_batches, check_pair_lengths, pair_batches, sentence_batches

    training, eos, split = recipe.training, prepared.vocab.eos, prepared.train
    size, seed = BatchSize(training.batch_tokens, training.batch_size), training.seed
    limit = reach or recipe.model.max_positions
    if split.source is not None:
        test = prepared.test
        check_pair_lengths(list(test.source or ()), list(test.target), limit, "test")
        sources, targets = list(split.source), list(split.target)
        return pair_batches(sources, targets, eos=eos, pad=PAD, limit=limit, size=size, seed=seed)
    if training.block_length is None:
        return sentence_batches(list(split.target), eos=eos, limit=limit, size=size, seed=seed)
    if training.block_length > limit:
        raise InputError(
            f"blocks of {training.block_length} tokens are longer than the model reads, {limit}",
            hint="set training.block_length lower",
        )
    return block_batches(split.target.stream, eos=eos, block=training.block_length, size=size, seed=seed)


def _record(
    recipe: Recipe, prepared: Prepared, folder: Path, model: Any, loss: Any, fitted: Any, metrics: dict[str, Any]
) -> dict[str, Any]:
    from lidstone.training.models import parameter_count

    best = {name.removeprefix("valid_"): value for name, value in fitted.best.items() if name.startswith("valid_")}
    return {
        "schema": SCHEMA,
        "id": folder.name,
        "status": "complete",
        "task": recipe.task,
        "name": recipe.regularizer.name,
        "method": method_of(recipe.regularizer),
        "seed": recipe.training.seed,
        "config": recipe.to_dict(),
        "signature": {
            "corpus": prepared.signature,
            "vocabulary": prepared.vocab.fingerprint_without_unk,
            "vocabulary_size": prepared.vocab.size,
            "test_sentences": len(prepared.test),
            "model_parameters": parameter_count(model),
            "table": loss.signature.get("table"),
            "metric": metrics.get("bleu_signature", "perplexity per token"),
            "processes": process_count(),
        },
        "versions": versions(),
        "metrics": {"valid": {**best, "step": fitted.best.get("step")}, "test": metrics},
        "curve": fitted.curve,
        "sentences": {"file": SENTENCES},
        "cost": {
            "train_seconds": fitted.seconds,
            "tokens_per_second": fitted.tokens_per_second,
            "steps": fitted.steps,
        },
    }


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with claim(folder.parent, folder.name) as mine:
        if not mine:
            raise RunError(f"another process is training {folder}", hint="wait for it, or stop it first")
        yield


def _check_unfinished(folder: Path, resume: bool) -> None:
    from lidstone.training.checkpoints import last_checkpoint

    found = last_checkpoint(folder / "checkpoints")
    if found is not None and not resume:
        raise RunError(
            f"{folder} holds a training that was cut short at step {found.step}",
            hint="go on with --resume, or delete the folder to begin anew",
        )


def quiet_transformers() -> None:
    """No bars for the writing of files, no advice: errors alone."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _set_threads(threads: int | None) -> None:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _first_process_first() -> Iterator[None]:
    """Under torchrun the first process fills the caches; the others wait, then read them."""
    if process_count() == 1:
        yield
        return
    import torch
    from accelerate import PartialState

    with PartialState(cpu=not torch.cuda.is_available()).main_process_first():
        yield
