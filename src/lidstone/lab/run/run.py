"""One run, from a recipe to `runs/<id>/run.json`: prepare -> count -> fit -> train -> evaluate -> record.

A complete run is not computed again. An interrupted one continues with `resume=True` and gives, on a CPU, the result of
an uninterrupted one. Under torchrun every process calls `train`; the first one writes.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidstone.errors import RunError
from lidstone.files import try_lock
from lidstone.hf.perplexity import window_of
from lidstone.lab.corpus.cache import new_folder
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.processes import first_process_first, process_count, process_rank
from lidstone.lab.run.record import (
    SCHEMA,
    SENTENCES,
    add_name,
    peak_memory,
    read_record,
    run_id,
    versions,
    write_record,
)
from lidstone.lab.run.saved import SavedModel
from lidstone.lab.run.scoring import Scorer
from lidstone.lab.run.setup import set_up

Watch = Callable[[dict[str, float]], None]


@dataclass(frozen=True)
class Run:
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
) -> Run:
    """Train the regularizer of a recipe (see `Recipe.method`), and record the run below `output`.

    `prepared` is the recipe's corpus, if the caller has it already. `watch` is called with the scores of every
    validation; an error that it raises ends the training. If another process is training this run, it is an error.
    """
    if prepared is None:
        with first_process_first():
            prepared = prepare_corpus(recipe)
    folder = Path(output) / run_id(recipe, prepared)
    found = _complete_run(folder, recipe.regularizer.name)
    if found is not None:
        return found
    with contextlib.nullcontext() if process_rank() > 0 else _only_process(folder):
        _check_unfinished(folder, resume)
        return train_run(recipe, prepared, folder, resume=resume, tensorboard=tensorboard, watch=watch)


def train_run(
    recipe: Recipe,
    prepared: Prepared,
    folder: Path,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Train into a folder that has the run's id as its name and whose lock the caller holds."""
    from lidstone.lab.run.trainer import fit

    began = time.perf_counter()
    quiet_transformers()
    folder.mkdir(parents=True, exist_ok=True)
    setup, scorer = set_up(recipe, prepared), Scorer(recipe, prepared)
    fitted = fit(
        setup.model,
        setup.loss,
        setup.batches,
        _watched(scorer.validation(), watch),
        recipe.training,
        folder / "checkpoints",
        metric=recipe.evaluation.metric,
        description=recipe.regularizer.name,
        tensorboard=folder / "tensorboard" if tensorboard else None,
        resume=resume,
        batch_change=setup.batch_change,
    )
    if process_rank() > 0:
        return Run(folder, {})
    setup.model.eval()
    _save_model(recipe, prepared, folder, setup.model)
    scores = scorer.test(setup.model)
    record = _record(recipe, prepared, folder, setup.model, setup.loss, fitted, scores.metrics) | scores.beside
    total = fitted.seconds_before + time.perf_counter() - began
    record["cost"] |= {"total_seconds": total, "peak_memory_bytes": peak_memory()}
    write_record(folder, record, scores.sentences)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return Run(folder, record)


def _complete_run(folder: Path, name: str) -> Run | None:
    """The run if it is complete; its record then lists this method's name too."""
    done = read_record(folder)
    if done is None:
        return None
    if process_rank() == 0:
        add_name(folder, done, name)
    return Run(folder, done, computed=False)


def _watched(score: Callable[[Any], dict[str, float]], watch: Watch | None) -> Callable[[Any], dict[str, float]]:
    """The function `score`, which also passes its result to `watch`."""
    if watch is None:
        return score

    def scored(model: Any) -> dict[str, float]:
        values = score(model)
        watch(values)
        return values

    return scored


def _save_model(recipe: Recipe, prepared: Prepared, folder: Path, model: Any) -> None:
    from lidstone.lab.run.checkpoints import write_errors

    saved = SavedModel(recipe.task, model, prepared.target, prepared.source, recipe.evaluation, folder.name)
    with new_folder(folder / "model") as made, write_errors(folder, "the model"):
        saved.save(made)


def _record(
    recipe: Recipe, prepared: Prepared, folder: Path, model: Any, loss: Any, fitted: Any, metrics: dict[str, Any]
) -> dict[str, Any]:
    from lidstone.lab.run.models import parameter_count

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
            "vocabulary": prepared.vocab.fingerprint_without_unk,
            "vocabulary_size": prepared.vocab.size,
            "test_sentences": len(prepared.test),
            "model_parameters": parameter_count(model),
            **({"window": window_of(model)} if recipe.task == "lm" else {}),
            "table": _table_signature(model, loss),
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


def _table_signature(model: Any, loss: Any) -> Any:
    """The signature of the table that a model was trained with: that of its residual, or of its loss."""
    from lidstone.lab.methods.residual import residual_of

    residual = residual_of(model)
    return loss.signature.get("table") if residual is None else residual.signature


@contextlib.contextmanager
def _only_process(folder: Path) -> Iterator[None]:
    """Hold the lock of a run; an error if another process holds it."""
    with try_lock(folder.parent, folder.name) as mine:
        if not mine:
            raise RunError(f"another process is training {folder}", hint="wait until it has finished, or stop it")
        yield


def _check_unfinished(folder: Path, resume: bool) -> None:
    from lidstone.lab.run.checkpoints import last_checkpoint

    found = last_checkpoint(folder / "checkpoints")
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
