"""Estimate the time of a training from a few of its updates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lidstone.lab.corpus.prepared import Prepared, Split
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.recipe.sections import Training
from lidstone.lab.run.scoring import Scorer
from lidstone.lab.run.setup import Setup, set_up

UPDATES = 6
SENTENCES = 64  # how many are scored to time an evaluation; a batch of them is translated


def estimate_seconds(recipe: Recipe, prepared: Prepared) -> float:
    """Seconds of training and evaluation without early stopping; trains a few updates to measure."""
    from lidstone.lab.run.run import quiet_transformers

    quiet_transformers()
    setup = set_up(recipe, prepared)
    steps, batches = recipe.training.steps(len(setup.batches)), len(setup.batches)
    update = _seconds_of_update(setup, recipe.training)
    scorer = Scorer(recipe, prepared)
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

    few = training.model_copy(update={"epochs": None, "max_steps": UPDATES, "eval_every": UPDATES, "patience": None})
    with TemporaryDirectory() as folder:
        fitted = fit(setup.model, setup.loss, setup.batches, _no_score, few, Path(folder))
    return fitted.update_seconds or 0.0


def _no_score(model: Any) -> dict[str, float]:
    return {"loss": 0.0, "perplexity": 1.0}


def _seconds_of_scoring(scorer: Scorer, model: Any, split: Split, translate: bool) -> float:
    """The time to score a split, from some of its sentences."""
    seconds = _timed(lambda some: scorer.likelihood(model, split, some), len(split), SENTENCES)
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
