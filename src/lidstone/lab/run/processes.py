"""The processes that torchrun started: each trains on its share of the batches, and all have the same weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


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
