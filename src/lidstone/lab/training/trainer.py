"""The Trainer of lidstone's pipelines: it takes ready batches, evaluates with our scores, and stops at a NaN."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer, TrainerCallback

from lidstone.errors import RunError
from lidstone.hf.mixin import SmoothedLossMixin
from lidstone.lab.methods.residual import NAME as RESIDUAL
from lidstone.lab.training.checkpoints import write_checksums, write_errors
from lidstone.progress import progress_bar

Scores = Mapping[str, float]
Noise = Callable[[dict[str, Any], float], dict[str, Any]]


class PipelineTrainer(SmoothedLossMixin, Trainer):
    """A Trainer whose batches are ready, and whose validation is `score(model)`."""

    lr_scheduler: Any
    control: Any

    def __init__(
        self,
        *args: Any,
        score: Callable[[Any], Scores],
        rate: Callable[[int, int], float],
        **kwargs: Any,
    ) -> None:
        """`rate(step, steps)` is the factor on the learning rate."""
        super().__init__(*args, data_collator=_only, **kwargs)
        self.score, self.rate = score, rate
        self.noise: Noise | None = None
        """`noise(batch, strength)` changes the batches of training"""
        self.tokens = 0
        self.seconds_before = 0.0
        self.began = time.perf_counter()

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The learning rate of the recipe instead of one of the Trainer's own."""
        if self.lr_scheduler is None:
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, lambda step: self.rate(step, num_training_steps))
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """As in the base class, but a loss that is not finite ends the training before the weights are updated."""
        inputs = dict(inputs)
        with self._folds(inputs.pop("folds", None)):
            loss = super().training_step(model, self._noised(inputs), num_items_in_batch)
        if not math.isfinite(loss.item()):
            raise RunError(
                f"the loss is {loss.item()} at step {self.state.global_step + 1}",
                hint="lower training.learning_rate or set training.clip; the last good checkpoint is kept",
            )
        return loss

    def _noised(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if self.noise is None:
            return inputs
        strength = self.smoothed_loss.schedule(self.state.global_step / max(self.state.max_steps, 1))
        return self.noise(inputs, strength)

    @contextmanager
    def _folds(self, folds: Any) -> Iterator[None]:
        """Pass the folds of a training batch to the model's residual, if it has one."""
        residual = getattr(self.model, RESIDUAL, None)
        if residual is None:
            yield
            return
        residual.fold_of = None if folds is None else folds.to(self.model.device)
        try:
            yield
        finally:
            residual.fold_of = None

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """As in the base class, and count tokens."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        self.tokens += int(items) if items is not None else 0
        return batches, items

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Our own scores, logged like the Trainer's."""
        self.model.eval()
        scores = {f"eval_{name}": value for name, value in self.score(self.model).items()}
        scores["eval_seconds"] = self.seconds_before + time.perf_counter() - self.began
        self.log(scores)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, scores)
        return scores

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with write_errors(Path(self.args.output_dir)):
            super()._save_checkpoint(*args, **kwargs)
            if self.is_world_process_zero():
                write_checksums(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")


class Bar(TrainerCallback):
    """A progress bar on stderr, and a line after each evaluation; silent if stderr is not a terminal."""

    def __init__(self, description: str) -> None:
        self.description = description
        self.bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Draw the bar, in the first process only."""
        if state.is_world_process_zero:
            self.bar = progress_bar(state.max_steps, self.description)
            self.advance = self.bar.__enter__()
            self.advance(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Move it on."""
        if self.bar is not None:
            self.advance(1)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Print the scores."""
        if self.bar is not None and sys.stderr.isatty():
            shown = {name.removeprefix("eval_"): value for name, value in (metrics or {}).items()}
            values = "  ".join(f"{name} {shown[name]:.4g}" for name in ("perplexity", "bleu") if name in shown)
            print(f"{self.description}: step {state.global_step}  {values}", file=sys.stderr)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take it away."""
        self.close()

    def close(self) -> None:
        """Remove the bar, also after an error."""
        if self.bar is not None:
            self.bar.__exit__(None, None, None)
            self.bar = None


class StepClock(TrainerCallback):
    """The seconds of each update, without evaluation and checkpoints."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start."""
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop."""
        self.seconds.append(time.perf_counter() - self.began)


def _only(batches: list[Any]) -> Any:
    """The collator: one item of the dataset is a whole batch."""
    (batch,) = batches
    return batch
