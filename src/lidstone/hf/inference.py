"""The mode in which a model is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch gradients and dropout off, and restore the model's mode afterwards."""
    import torch

    training = model.training
    try:
        with torch.inference_mode():
            if training:
                model.eval()
            yield
    finally:
        if training:
            model.train()
