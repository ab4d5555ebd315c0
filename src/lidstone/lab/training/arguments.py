"""Our settings as `TrainingArguments` of transformers, and the processes that torchrun started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lidstone.errors import RunError
from lidstone.lab.training.settings import Metric, Training


def training_arguments(
    settings: Training, batches: int, folder: Path, *, metric: Metric, tensorboard: Path | None = None
) -> Any:
    """Arguments for a Trainer whose dataset has so many ready batches."""
    import torch
    from transformers import TrainingArguments

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
        save_total_limit=2,  # the best and the last
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{metric}",
        greater_is_better=metric == "bleu",
        restore_callback_states_from_checkpoint=True,
        logging_nan_inf_filter=False,  # a NaN stops the training instead
        remove_unused_columns=False,
        disable_tqdm=True,
        log_level="error",
        log_level_replica="error",
        report_to=["tensorboard"] if tensorboard else [],
        use_cpu=not cuda,
        bf16=use_bf16(settings.precision, cuda),
        dataloader_pin_memory=cuda,
        ddp_backend=None if cuda or processes == 1 else "gloo",
        ddp_find_unused_parameters=False if processes > 1 else None,
    )


def use_bf16(precision: str, cuda: bool) -> bool:
    """Whether to compute in bfloat16: on request, and by default on a GPU that supports it.

    >>> use_bf16("auto", cuda=False), use_bf16("fp32", cuda=True)
    (False, False)
    """
    import torch

    able = torch.cuda.is_bf16_supported() if cuda else True
    if precision == "bf16" and not able:
        raise RunError("this GPU does not support bfloat16", hint="set training.precision to fp32")
    return precision == "bf16" or (precision == "auto" and cuda and able)


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
