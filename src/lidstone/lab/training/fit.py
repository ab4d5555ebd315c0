"""Train one model: afterwards it has the best weights, and its learning curve is returned.

Checkpoints are written at every evaluation; `resume=True` continues from the last complete one and gives, on a CPU, the
result of an uninterrupted training. `accumulation` is the number of batches per update over all processes: under
torchrun each takes its share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lidstone.lab.training.batches import Batches
from lidstone.lab.training.checkpoints import last_checkpoint
from lidstone.lab.training.settings import Metric, Training

if TYPE_CHECKING:
    from lidstone.lab.training.trainer import Noise, Scores
    from lidstone.loss.loss import SmoothedLoss


@dataclass(frozen=True)
class Fitted:
    """The results of a training; the model itself has the best weights."""

    curve: list[dict[str, Any]]
    seconds: float
    """wall time of training, interrupted parts included"""
    seconds_before: float
    """the part of it that an earlier process spent"""
    steps: int
    best: dict[str, Any]
    """the point of the curve with the best validation score"""
    tokens_per_second: float | None = None
    """of the updates alone; None if this process made none"""
    update_seconds: float | None = None
    """the median; None if this process made none"""


def fit(
    model: Any,
    loss: SmoothedLoss,
    batches: Batches,
    score: Callable[[Any], Scores],
    settings: Training,
    folder: Path,
    *,
    metric: Metric = "perplexity",
    description: str = "training",
    tensorboard: Path | None = None,
    resume: bool = False,
    noise: Noise | None = None,
) -> Fitted:
    """Train `model`; checkpoints go to `folder`. Afterwards the model has the weights that are best by `metric`.

    `description` is shown before the progress bar; `tensorboard` is a folder for TensorBoard's files. `noise(batch,
    strength)` changes the batches of training, see `training.noising`.
    """
    from lidstone.lab.training.arguments import training_arguments
    from lidstone.lab.training.trainer import Bar, StepClock

    clock, bar = StepClock(), Bar(description)
    arguments = training_arguments(settings, len(batches), folder, metric=metric, tensorboard=tensorboard)
    trainer = _trainer(model, loss, batches, score, settings, arguments, [clock, bar])
    trainer.noise = noise
    found = last_checkpoint(folder) if resume else None
    before = _seconds(found.state["log_history"]) if found else 0.0
    if found is not None and found.finished:
        _load_weights(model, found.best)
        return _summary(found.state, metric, before)
    trainer.seconds_before, trainer.began = before, time.perf_counter()
    try:
        trainer.train(resume_from_checkpoint=str(found.path) if found else None)
    finally:
        bar.close()
    elapsed = time.perf_counter() - trainer.began
    return replace(
        _summary(vars(trainer.state), metric, before, elapsed),
        tokens_per_second=trainer.tokens / sum(clock.seconds) if clock.seconds else None,
        update_seconds=median(clock.seconds) if clock.seconds else None,
    )


def _trainer(
    model: Any, loss: Any, batches: Batches, score: Any, settings: Training, arguments: Any, callbacks: list[Any]
) -> Any:
    from transformers import EarlyStoppingCallback, PrinterCallback

    from lidstone.lab.training.trainer import PipelineTrainer

    stop_early = [EarlyStoppingCallback(settings.patience)] if settings.patience is not None else []
    trainer = PipelineTrainer(
        model=model,
        args=arguments,
        train_dataset=batches,
        eval_dataset=batches,  # required, never read: `score` has its own text
        callbacks=[*callbacks, *stop_early],
        smoothed_loss=loss,
        score=score,
        rate=settings.rate,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _summary(state: dict[str, Any], metric: Metric, before: float, elapsed: float = 0.0) -> Fitted:
    curve = learning_curve(state["log_history"])
    key = f"valid_{metric}"
    scored = [point for point in curve if key in point]
    sign = 1 if metric == "perplexity" else -1
    best = min(scored, key=lambda point: sign * point[key], default={})
    return Fitted(curve, before + elapsed, before, int(state["global_step"]), best)


def learning_curve(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The Trainer's log as one point per evaluation.

    >>> learning_curve([{"step": 5, "loss": 2.0}, {"step": 5, "epoch": 1.0, "eval_loss": 3.0, "eval_seconds": 1.5}])
    [{'step': 5, 'train_loss': 2.0, 'epoch': 1.0, 'valid_loss': 3.0, 'seconds': 1.5}]
    """
    points: dict[int, dict[str, Any]] = {}
    names = {"loss": "train_loss", "nll": "train_nll", "epoch": "epoch", "eval_seconds": "seconds"}
    for line in history:
        if "loss" not in line and not any(key.startswith("eval_") for key in line):
            continue
        point = points.setdefault(int(line["step"]), {"step": int(line["step"])})
        for key, value in line.items():
            name = names.get(key) or (f"valid_{key.removeprefix('eval_')}" if key.startswith("eval_") else None)
            if name:
                point[name] = value
    return list(points.values())


def _seconds(history: list[dict[str, Any]]) -> float:
    return max((line["eval_seconds"] for line in history if "eval_seconds" in line), default=0.0)


def _load_weights(model: Any, folder: Path) -> None:
    from safetensors.torch import load_model

    load_model(model, str(folder / "model.safetensors"), strict=False)
