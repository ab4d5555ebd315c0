"""Tensors that belong to a module and never change: they follow its device and nothing else.

They are no buffers, for what torch does with buffers is wrong for a table: DistributedDataParallel would send them
around at every step, AveragedModel would average them, `.half()` would round them, `to_empty()` would lose them, and a
copy of the model would copy them. Here a copy shares them, and a module that was moved to the meta device has them
again when it comes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class ConstantTensors(nn.Module):
    """A module with constant tensors, each an attribute.

    >>> module = ConstantTensors()
    >>> module._keep("numbers", np.arange(3), torch.float32)
    >>> module.half().numbers
    tensor([0., 1., 2.])
    >>> list(module.buffers()), module.to("meta").to_empty(device="cpu").numbers
    ([], tensor([0., 1., 2.]))
    """

    def __init__(self) -> None:
        super().__init__()
        self._constants: tuple[str, ...] = ()
        self._before_meta: dict[str, Tensor] = {}

    def _keep(self, name: str, array: np.ndarray, dtype: torch.dtype) -> None:
        """Make an array a constant tensor, on the CPU even under `torch.device("meta")`."""
        given = torch.from_numpy(np.require(array, requirements=["C", "W"]))
        setattr(self, name, given.to(dtype, copy=given.dtype == dtype))
        self._constants = (*dict.fromkeys((*self._constants, name)),)

    def constants(self) -> dict[str, Tensor]:
        """All constant tensors by name."""
        return {name: getattr(self, name) for name in self._constants}

    @property
    def resident_bytes(self) -> int:
        """Memory of all tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.constants().values())

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Follow the module to another device; whatever else `fn` does to tensors is left out."""
        super()._apply(fn, recurse)
        if not self._constants:
            return self
        now = getattr(self, self._constants[0]).device
        device = fn(torch.empty(0, device=now)).device
        if device.type == "meta" and now.type != "meta":
            self._before_meta = self.constants()
        source = self._before_meta if now.type == "meta" else self.constants()
        for name, tensor in source.items():
            setattr(self, name, tensor.to(device))
        if device.type != "meta":
            self._before_meta = {}
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A module of its own that shares the tensors."""
        copied = self.__class__.__new__(self.__class__)
        memo[id(self)] = copied
        for name, value in self.__dict__.items():
            copied.__dict__[name] = value.copy() if isinstance(value, dict) else value
        return copied
