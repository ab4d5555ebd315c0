"""One run, from a recipe to `runs/<id>/run.json`: prepare -> count -> fit -> train -> evaluate -> record.

A complete run is not computed again. An interrupted one continues with `resume=True` and gives, on a CPU, the result of
an uninterrupted one. Under torchrun every process calls `train`; the first one writes. `estimate_seconds` times
a few updates instead.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lidstone.errors import RunError
from lidstone.files import new_folder
from lidstone.hf.perplexity import window_of
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.corpus.prepared import CorpusSplit, Prepared
from lidstone.lab.methods.base import residual_of
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.recipe.sections import Training
from lidstone.lab.run.record import (
    CHECKPOINTS,
    SCHEMA,
    SENTENCES,
    claim,
    find_or_compute,
    peak_memory,
    read_record,
    run_id,
    versions,
    write_record,
)
from lidstone.lab.run.saved import SavedModel
from lidstone.lab.run.scoring import CorpusScorer
from lidstone.lab.run.setup import (
    Setup,
    checkpoint_source,
    first_process_first,
    process_count,
    process_rank,
    set_up,
    table_source,
)

Watch = Callable[[dict[str, float]], None]
TIMED_UPDATES = 6
TIMED_SENTENCES = 64  # how many are scored to time an evaluation; a batch of them is translated


@dataclass(frozen=True)
class TrainedRun:
    """A run's folder and the content of its `run.json`."""

    folder: Path
    record: dict[str, Any]
    computed: bool = True
    """False if it was complete before"""


def train(
    recipe: Recipe,
    output: str | Path = "runs",
    *,
    prepared: Prepared | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    watch: Watch | None = None,
) -> TrainedRun:
    """Train the regularizer of a recipe (see `Recipe.method`), and record the run below `output`.

    `prepared` is the recipe's corpus, if the caller has it already. `watch` is called with the scores of every
    validation; an error that it raises ends the training. If another process is training this run, it is an error.

    >>> from lidstone import load_recipe
    >>> train(load_recipe("demo").method("none"), "runs").record["metrics"]["test"]  # doctest: +SKIP
    """
    if prepared is None:
        with first_process_first():
            prepared = prepare_corpus(recipe)
    folder = Path(output) / run_id(recipe, prepared)

    def find() -> TrainedRun | None:
        return _complete_run(folder, recipe.regularizer.name)

    def compute() -> TrainedRun:
        _check_unfinished(folder, resume)
        return train_run(recipe, prepared, folder, resume=resume, tensorboard=tensorboard, watch=watch)

    if process_rank() > 0:  # the first process holds the lock
        return find() or compute()
    return find_or_compute(folder, find, compute)


def train_run(
    recipe: Recipe,
    prepared: Prepared,
    folder: Path,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    watch: Watch | None = None,
) -> TrainedRun:
    """Train into a folder that has the run's id as its name and whose lock the caller holds."""
    from lidstone.lab.run.trainer import fit

    began = time.perf_counter()
    quiet_transformers()
    folder.mkdir(parents=True, exist_ok=True)
    setup, scorer = set_up(recipe, prepared), CorpusScorer(recipe, prepared)

    def score(model: Any) -> dict[str, float]:
        values = scorer.validate(model)
        if watch is not None:
            watch(values)
        return values

    fitted = fit(
        setup,
        score,
        recipe.training,
        folder / CHECKPOINTS,
        metric=recipe.evaluation.metric,
        description=recipe.regularizer.name,
        tensorboard=folder / "tensorboard" if tensorboard else None,
        resume=resume,
    )
    if process_rank() > 0:
        return TrainedRun(folder, {})
    setup.model.eval()
    _save_model(recipe, prepared, folder, setup.model)
    scores = scorer.test(setup.model)
    record = _record(recipe, prepared, folder, setup.model, setup.loss, fitted, scores.metrics) | scores.further
    if setup.teacher is not None:
        record["signature"]["teacher"] = setup.teacher.facts
    total = fitted.seconds_before + time.perf_counter() - began
    record["cost"] |= {"total_seconds": total, "peak_memory_bytes": peak_memory()}
    write_record(folder, record, scores.sentences)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return TrainedRun(folder, record)


def _complete_run(folder: Path, name: str) -> TrainedRun | None:
    """The run if it is complete; its record then lists this method's name too."""
    done = read_record(folder)
    if done is None:
        return None
    if process_rank() == 0:
        claim(folder, done, name)
    return TrainedRun(folder, done, computed=False)


def _save_model(recipe: Recipe, prepared: Prepared, folder: Path, model: Any) -> None:
    from lidstone.lab.run.checkpoints import write_errors

    saved = SavedModel(recipe.task, model, prepared.target, prepared.source, recipe.evaluation, folder.name)
    with new_folder(folder / "model") as made, write_errors(folder, "the model"):
        saved.save(made)


def _record(
    recipe: Recipe, prepared: Prepared, folder: Path, model: Any, loss: Any, fitted: Any, metrics: dict[str, Any]
) -> dict[str, Any]:
    from lidstone.lab.run.models import parameter_count

    residual = residual_of(model)
    best = {name.removeprefix("valid_"): value for name, value in fitted.best.items() if name.startswith("valid_")}
    return {
        "schema": SCHEMA,
        "id": folder.name,
        "status": "complete",
        "task": recipe.task,
        "name": recipe.regularizer.name,
        "method": recipe.regularizer.method.describe(recipe.regularizer),
        "seed": recipe.training.seed,
        "config": recipe.to_dict(),
        "signature": {
            "corpus": prepared.signature,
            "vocabulary": prepared.vocab.token_fingerprint,
            "vocabulary_size": prepared.vocab.size,
            "test_sentences": len(prepared.test),
            "model_parameters": parameter_count(model),
            **({"window": window_of(model)} if recipe.task == "lm" else {}),
            "table": loss.signature.get("table") if residual is None else residual.signature,
            **({"table_source": source} if (source := table_source(prepared, recipe.regularizer)) else {}),
            **({"checkpoint": weights} if (weights := checkpoint_source(recipe)) else {}),
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


def _check_unfinished(folder: Path, resume: bool) -> None:
    from lidstone.lab.run.checkpoints import last_checkpoint

    found = last_checkpoint(folder / CHECKPOINTS)
    if found is not None and not resume:
        raise RunError(
            f"the training in {folder} was interrupted at step {found.step}",
            hint="continue it with --resume, or delete the folder to start again",
        )


def quiet_transformers() -> None:
    """Let transformers print errors only: no progress bars, no advice."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def estimate_seconds(recipe: Recipe, prepared: Prepared) -> float:
    """Seconds of training and evaluation without early stopping; trains a few updates to measure."""
    quiet_transformers()
    setup = set_up(recipe, prepared)
    steps, batches = recipe.training.steps(len(setup.batches)), len(setup.batches)
    update = _seconds_of_update(setup, recipe.training)
    scorer = CorpusScorer(recipe, prepared)
    valid = _seconds_of_scoring(scorer, setup.model, prepared.valid, recipe.evaluation.metric == "bleu")
    valid *= scorer.validated(prepared.valid) / len(prepared.valid)
    test = _seconds_of_scoring(scorer, setup.model, prepared.test, recipe.task == "mt")
    return steps * update + evaluations(recipe.training, steps, batches) * valid + test


def evaluations(training: Training, steps: int, batches: int) -> int:
    """How often a training is evaluated: every so many updates, or after each epoch.

    >>> evaluations(Training(epochs=2, max_steps=None, accumulation=2), steps=6, batches=5)
    2
    """
    return math.ceil(steps / (training.eval_every or math.ceil(batches / training.accumulation)))


def _seconds_of_update(setup: Setup, training: Training) -> float:
    from lidstone.lab.run.trainer import fit

    few = {"epochs": None, "max_steps": TIMED_UPDATES, "eval_every": TIMED_UPDATES, "patience": None}
    settings = training.model_copy(update=few)
    with TemporaryDirectory() as folder:
        fitted = fit(setup, lambda model: {"loss": 0.0, "perplexity": 1.0}, settings, Path(folder))
    return fitted.update_seconds or 0.0


def _seconds_of_scoring(scorer: CorpusScorer, model: Any, split: CorpusSplit, translate: bool) -> float:
    """The time to score a split, from some of its sentences."""
    seconds = _timed(lambda some: scorer.likelihood(model, split, some), len(split), TIMED_SENTENCES)
    if translate:
        batch = scorer.recipe.evaluation.batch_size
        seconds += _timed(lambda some: scorer.hypotheses(model, split, some), len(split), batch)
    return seconds


def _timed(work: Callable[[slice], Any], count: int, sample: int) -> float:
    """The time for `count` sentences, from an evenly spread sample."""
    every = slice(None, None, math.ceil(count / sample))
    began = time.perf_counter()
    work(every)
    return (time.perf_counter() - began) * count / len(range(count)[every])
