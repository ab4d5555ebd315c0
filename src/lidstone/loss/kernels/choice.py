"""Which kernels run on a device.

    cpu       compiled loops                                    on a CPU
    triton    one program per row of logits                     on CUDA and ROCm, where Triton is installed
    tensors   plain tensor code                                 everywhere else

`LIDSTONE_KERNELS=tensors`, or `with using("tensors")`, overrides the choice for every device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from lidstone.errors import InputError

MODULES = {"cpu": "cpu", "triton": "gpu", "tensors": "tensors"}
FREE_TO_READ = ("cpu",)  # devices whose numbers the host reads without waiting
_forced: list[str] = []


def kernel_name(device: torch.device) -> str:
    """The name of the kernels for a device.

    >>> kernel_name(torch.device("cpu")), kernel_name(torch.device("mps"))
    ('cpu', 'tensors')
    """
    forced = _forced[-1] if _forced else os.environ.get("LIDSTONE_KERNELS", "")
    if forced:
        return _checked(forced)
    if device.type == "cpu":
        return "cpu"
    return "triton" if device.type == "cuda" and has_triton() else "tensors"


def kernels_for(device: torch.device) -> Any:
    """The module with `plan`, `losses`, `gradient_` and `linear` for a device."""
    return import_module(f"lidstone.loss.kernels.{MODULES[kernel_name(device)]}")


def free_to_read(device: torch.device) -> bool:
    """Whether the host reads numbers of this device without waiting: ids and losses are checked there alone."""
    return device.type in FREE_TO_READ and kernel_name(device) != "triton"


@contextmanager
def using(name: str) -> Iterator[None]:
    """Run these kernels on whatever device inside the block."""
    _forced.append(_checked(name))
    try:
        yield
    finally:
        _forced.pop()


@cache
def has_triton() -> bool:
    """Is Triton installed?"""
    return find_spec("triton") is not None


def _checked(name: str) -> str:
    if name not in MODULES:
        raise InputError(f"there are no kernels named {name!r}", hint=f"choose from {', '.join(MODULES)}")
    return name
