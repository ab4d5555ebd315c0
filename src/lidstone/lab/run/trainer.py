"""Train one model: afterwards it has the best weights, and its learning curve is returned.

The Trainer takes ready batches, evaluates with our scores, and stops at a NaN. Checkpoints are written at every
evaluation; `resume=True` continues from the last complete one and gives, on a CPU, the result of an uninterrupted
training. `accumulation` is the number of batches per update over all processes: under torchrun each takes its share.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import load_model
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState

from lidstone.errors import RunError
from lidstone.hf.mixin import SmoothedLossMixin
from lidstone.lab.methods.base import BatchChange
from lidstone.lab.recipe.sections import Metric, Training
from lidstone.lab.run.checkpoints import (
    Fitted,
    last_checkpoint,
    read_errors,
    remove_older,
    summarize_training,
    trained_seconds,
    write_checksums,
    write_errors,
)
from lidstone.lab.run.setup import Setup, process_count
from lidstone.progress import progress_bar

Scores = Mapping[str, float]
log = logging.getLogger("lidstone.lab.run")


def fit(
    setup: Setup,
    score: Callable[[Any], Scores],
    settings: Training,
    folder: Path,
    *,
    metric: Metric = "perplexity",
    description: str = "training",
    tensorboard: Path | None = None,
    resume: bool = False,
) -> Fitted:
    """Train the model of a setup; checkpoints go to `folder`. Afterwards it has the weights that are best by `metric`.

    `description` is shown before the progress bar, and in the log of evaluations where there is no terminal;
    `tensorboard` is a folder for TensorBoard's files. A KeyboardInterrupt says at which step it came.
    """
    progress = TrainingProgress(description)
    arguments = training_arguments(settings, len(setup.batches), folder, metric=metric, tensorboard=tensorboard)
    trainer = _trainer(setup, score, settings, arguments, progress)
    found = last_checkpoint(folder) if resume else None
    before = trained_seconds(found.state["log_history"]) if found else 0.0
    if found is not None and found.finished:
        load_model(setup.model, str(found.best / "model.safetensors"), strict=False)
        return summarize_training(found.state, metric, before)
    trainer.seconds_before, trainer.began = before, time.perf_counter()
    try:
        trainer.train(resume_from_checkpoint=str(found.path) if found else None)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"interrupted at step {trainer.state.global_step}") from error
    finally:
        progress.close()
    elapsed = time.perf_counter() - trainer.began
    return replace(
        summarize_training(vars(trainer.state), metric, before, elapsed),
        tokens_per_second=trainer.tokens / sum(progress.seconds) if progress.seconds else None,
        update_seconds=median(progress.seconds) if progress.seconds else None,
    )


def _trainer(setup: Setup, score: Any, settings: Training, arguments: Any, progress: TrainingProgress) -> Any:
    stop_early = [] if settings.patience is None else [EarlyStopping(settings.patience, settings.warmup_steps)]
    trainer = PipelineTrainer(
        model=setup.model,
        args=arguments,
        train_dataset=setup.batches,
        eval_dataset=setup.batches,  # required, never read: `score` has its own text
        callbacks=[progress, *stop_early],
        smoothed_loss=setup.loss,
        batch_change=setup.batch_change,
        score=score,
        rate=settings.rate,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class PipelineTrainer(SmoothedLossMixin, Trainer):
    """A Trainer whose batches are ready, and whose validation is `score(model)`."""

    lr_scheduler: Any
    control: Any

    def __init__(
        self,
        *args: Any,
        score: Callable[[Any], Scores],
        rate: Callable[[int, int], float],
        batch_change: BatchChange | None = None,
        **kwargs: Any,
    ) -> None:
        """An item of the data is a whole batch, which `batch_change` changes; `rate(step, steps)` is the factor on the
        learning rate.
        """
        super().__init__(*args, data_collator=itemgetter(0), **kwargs)
        self.score, self.rate, self.batch_change = score, rate, batch_change
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
        if self.batch_change is not None:
            strength = self.smoothed_loss.schedule(self.state.global_step / max(self.state.max_steps, 1))
            inputs = self.batch_change(dict(inputs), strength)
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        if not math.isfinite(loss.item()):
            raise RunError(
                f"the loss is {loss.item()} at step {self.state.global_step + 1}",
                hint="lower training.learning_rate or set training.clip; the last good checkpoint is kept",
            )
        return loss

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

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with read_errors(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with read_errors(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with read_errors(checkpoint):
            super()._load_rng_state(checkpoint)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with write_errors(Path(self.args.output_dir)):
            super()._save_checkpoint(*args, **kwargs)
            if self.is_world_process_zero():
                write_checksums(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")
                remove_older(Path(self.args.output_dir), self.state.best_model_checkpoint)


class EarlyStopping(TrainerCallback, ExportableState):
    """Stops after `patience` evaluations without a lower validation loss; those of the warm-up are not counted.

    The loss also where weights are chosen by BLEU: early in training BLEU is noise, while the loss falls steadily.
    """

    def __init__(self, patience: int, warmup_steps: int) -> None:
        self.patience, self.warmup_steps = patience, warmup_steps
        self.lowest: float | None = None
        self.waited = 0

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Compare the loss with the lowest so far."""
        if self.lowest is None or metrics["eval_loss"] < self.lowest:
            self.lowest, self.waited = metrics["eval_loss"], 0
        elif state.global_step > self.warmup_steps:
            self.waited += 1
        if self.waited >= self.patience:
            control.should_training_stop = True

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        settings = {"patience": self.patience, "warmup_steps": self.warmup_steps}
        return {"args": settings, "attributes": {"lowest": self.lowest, "waited": self.waited}}


class TrainingProgress(TrainerCallback):
    """A progress bar on stderr, a line per evaluation (logged without a terminal), and the seconds of updates."""

    def __init__(self, description: str) -> None:
        self.description = description
        self.bar: Any = None
        self.seconds: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Draw the bar, in the first process only."""
        if state.is_world_process_zero:
            self.bar = progress_bar(state.max_steps, self.description)
            self.advance = self.bar.__enter__()
            self.advance(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the time: an update is measured without evaluation and checkpoints."""
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the seconds of the update, and advance the bar by it."""
        self.seconds.append(time.perf_counter() - self.began)
        if self.bar is not None:
            self.advance(1)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Print or log the scores."""
        if self.bar is None:
            return
        names = ("loss", "perplexity", "bleu")
        values = [f"{name} {metrics[f'eval_{name}']:.4g}" for name in names if f"eval_{name}" in metrics]
        where = f"{self.description}: step {state.global_step} of {state.max_steps}"
        line = f"{where}  {'  '.join(values)}  {metrics['eval_seconds']:.0f} s"
        print(line, file=sys.stderr) if sys.stderr.isatty() else log.info(line)

    def close(self) -> None:
        """Remove the bar, also after an error."""
        if self.bar is not None:
            self.bar.__exit__(None, None, None)
            self.bar = None


def training_arguments(
    settings: Training, batches: int, folder: Path, *, metric: Metric, tensorboard: Path | None = None
) -> Any:
    """Arguments for a Trainer whose dataset has so many ready batches."""
    cuda, processes = torch.cuda.is_available(), process_count()
    every: Any = "steps" if settings.eval_every else "epoch"
    interval = settings.eval_every or 1
    if tensorboard:
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(tensorboard)
    return TrainingArguments(
        output_dir=str(folder.resolve()),
        max_steps=settings.steps(batches, processes),
        per_device_train_batch_size=1,  # one item is a whole batch
        gradient_accumulation_steps=settings.share(processes),
        learning_rate=settings.learning_rate,
        adam_beta1=settings.betas[0],
        adam_beta2=settings.betas[1],
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        seed=settings.seed,
        data_seed=settings.seed,
        eval_strategy=every,
        eval_steps=interval,
        save_strategy=every,
        save_steps=interval,
        logging_strategy=every,
        logging_steps=interval,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{metric}",
        greater_is_better=metric == "bleu",
        restore_callback_states_from_checkpoint=True,
        logging_nan_inf_filter=False,  # a NaN stops the training instead
        remove_unused_columns=False,
        disable_tqdm=True,
        log_level="error",
        log_level_replica="error",
        report_to=_trackers(settings, tensorboard),
        run_name=folder.parent.name,
        use_cpu=not cuda,
        bf16=use_bf16(settings.precision, cuda),
        dataloader_pin_memory=cuda,
        ddp_backend=None if cuda or processes == 1 else "gloo",
        ddp_find_unused_parameters=False if processes > 1 else None,
    )


def _trackers(settings: Training, tensorboard: Path | None) -> list[str]:
    """The Trainer's names of the trackers; one that is unknown or not installed is an error."""
    from transformers.integrations import get_available_reporting_integrations

    installed = get_available_reporting_integrations()
    for name in settings.report_to:
        if name not in installed:
            hint = f"install it, or use one of: {', '.join(installed) or 'none is installed'}"
            raise RunError(f"training.report_to: {name} is not installed", hint=hint)
    return list(dict.fromkeys([*settings.report_to, *(["tensorboard"] if tensorboard else [])]))


def use_bf16(precision: str, cuda: bool) -> bool:
    """Whether to compute in bfloat16: on request, and by default on a GPU that supports it.

    >>> use_bf16("auto", cuda=False), use_bf16("fp32", cuda=True)
    (False, False)
    """
    able = torch.cuda.is_bf16_supported() if cuda else True
    if precision == "bf16" and not able:
        raise RunError("this GPU does not support bfloat16", hint="set training.precision to fp32")
    return precision == "bf16" or (precision == "auto" and cuda and able)
