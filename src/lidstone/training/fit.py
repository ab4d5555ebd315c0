"""Training one model: settings in, the best weights in place and a learning curve out.

Checkpoints are written at every evaluation; `resume=True` goes on from the last whole one and ends, on a CPU, in the
very result of an uninterrupted training. `accumulation` is the number of batches per update over all processes: under
torchrun each takes its share.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lidstone.errors import RunError
from lidstone.training.batches import Batches
from lidstone.training.checkpoints import Checkpoint, last_checkpoint

if TYPE_CHECKING:
    from lidstone.regularizer.loss import SmoothedLoss
    from lidstone.training.trainer import Scores


@dataclass(frozen=True)
class FitSettings:
    """How a network is trained; the fields are those of a recipe's section `training`."""

    epochs: int | None = None
    max_steps: int | None = 50_000
    accumulation: int = 1
    learning_rate: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.98)
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    warmup_steps: int = 4000
    warmup_start: float = 1e-7
    weight_decay: float = 0.01
    clip: float = 0.0
    patience: int | None = 5
    eval_every: int | None = None
    seed: int = 1
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    metric: Literal["perplexity", "bleu"] = "perplexity"
    """what early stopping and the choice of the best checkpoint look at"""
    tensorboard: Path | None = None
    """a folder for TensorBoard's files"""
    description: str = "training"
    """stands before the progress bar"""

    def steps(self, batches: int, processes: int = 1) -> int:
        """How many updates the training has, if it is not stopped early.

        >>> FitSettings(epochs=2, max_steps=None, accumulation=2).steps(batches=5)     # 3 updates per epoch
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

        >>> settings = FitSettings(learning_rate=1.0, warmup_steps=4, warmup_start=0.0)
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


@dataclass(frozen=True)
class Fitted:
    """What a training left behind; the model itself holds the best weights."""

    curve: list[dict[str, Any]]
    seconds: float
    """wall time of training, over all sittings"""
    tokens_per_second: float | None
    """of the updates alone; None if this sitting made none"""
    steps: int
    best: dict[str, Any] = field(default_factory=dict)
    """the point of the curve with the best validation score"""


def fit(
    model: Any,
    loss: SmoothedLoss,
    batches: Batches,
    score: Callable[[Any], Scores],
    settings: FitSettings,
    folder: Path,
    *,
    resume: bool = False,
) -> Fitted:
    """Train `model`; checkpoints go to `folder`. Afterwards the model holds the weights that scored best."""
    from lidstone.training.trainer import StepClock

    clock = StepClock()
    trainer = _trainer(model, loss, batches, score, settings, folder, clock)
    found = last_checkpoint(folder) if resume else None
    if found is not None and found.finished:
        _load_weights(model, found.best)
        return _summary(found.state, settings, found, 0.0, None)
    before = _seconds(found.state["log_history"]) if found else 0.0
    trainer.seconds_before, trainer.began = before, time.perf_counter()
    try:
        trainer.train(resume_from_checkpoint=str(found.path) if found else None)
    finally:
        trainer.bar.close()
    elapsed = time.perf_counter() - trainer.began
    speed = trainer.tokens / clock.seconds if clock.seconds else None
    return _summary(vars(trainer.state), settings, None, before + elapsed, speed)


def _trainer(model: Any, loss: Any, batches: Any, score: Any, settings: FitSettings, folder: Path, clock: Any) -> Any:
    from transformers import EarlyStoppingCallback, PrinterCallback

    from lidstone.training.arguments import training_arguments
    from lidstone.training.trainer import Bar, PipelineTrainer

    bar = Bar(settings.description)
    callbacks = [clock, bar]
    if settings.patience is not None:
        callbacks.append(EarlyStoppingCallback(settings.patience))
    trainer = PipelineTrainer(
        model=model,
        args=training_arguments(settings, len(batches), folder),
        train_dataset=batches,
        eval_dataset=batches,  # asked for, never read: `score` has its own text
        callbacks=callbacks,
        smoothed_loss=loss,
        score=score,
        rate=settings.rate,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.bar = bar
    return trainer


def _summary(
    state: dict[str, Any], settings: FitSettings, found: Checkpoint | None, seconds: float, speed: float | None
) -> Fitted:
    curve = learning_curve(state["log_history"])
    key = f"valid_{settings.metric}"
    scored = [point for point in curve if key in point]
    sign = 1 if settings.metric == "perplexity" else -1
    best = min(scored, key=lambda point: sign * point[key], default={})
    seconds = seconds or _seconds(state["log_history"])
    return Fitted(curve, seconds, speed, int(state["global_step"]), best)


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
