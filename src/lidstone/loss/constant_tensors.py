"""Tensors that belong to a module and never change: they follow its device and nothing else.

They are no buffers, for what torch does with buffers is wrong for a table: DistributedDataParallel would send them
around at every step, AveragedModel would average them, `.half()` would round them, `to_empty()` would lose them, and a
copy of the model would copy them. Here a copy shares them, and a module that was moved to the meta device has them
again when it comes back. `share` puts them into a file that the processes of a machine map into memory together.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lidstone.errors import InputError
from lidstone.files import atomic_write


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
        self._file: Path | None = None

    def _keep(self, name: str, array: np.ndarray, dtype: torch.dtype, *, copy: bool = True) -> None:
        """Make an array a constant tensor, on the CPU even under `torch.device("meta")`.

        copy=False shares the memory of an array that has the right type.
        """
        given = torch.from_numpy(np.require(array, requirements=["C", "W"]))
        setattr(self, name, given.to(dtype, copy=copy and given.dtype == dtype))
        self._constants = (*dict.fromkeys((*self._constants, name)),)

    def constants(self) -> dict[str, Tensor]:
        """All constant tensors by name."""
        return {name: getattr(self, name) for name in self._constants}

    @property
    def resident_bytes(self) -> int:
        """Memory of all tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.constants().values())

    def share(self, path: str | Path) -> None:
        """Map the tensors from a file, which is written if it is not there: processes then have them in common.

        Pickles of the module hold the file's name in place of the tensors.
        """
        file, tensors = Path(path).absolute(), {name: tensor.cpu() for name, tensor in self.constants().items()}
        identity = _identity(tensors)
        if not file.exists():
            _write(file, tensors, identity)
        for name, tensor in _mapped(file, identity).items():
            setattr(self, name, tensor.to(getattr(self, name).device))
        self._file, self._identity = file, identity

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: without the tensors where a file has them."""
        mapped = self._constants if self._file is not None else ()
        return {name: value for name, value in self.__dict__.items() if name not in mapped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Undo `__getstate__`; the tensors of a file are on the CPU then."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self._file is not None:
            self.__dict__.update(_mapped(self._file, self._identity))

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Follow the module to another device; whatever else `fn` does to tensors is left out."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
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


def _identity(tensors: dict[str, Tensor]) -> str:
    """16 hex digits that tell sets of tensors apart."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _write(file: Path, tensors: dict[str, Tensor], identity: str) -> None:
    from safetensors.torch import save_file

    with atomic_write(file) as temporary:
        save_file(tensors, temporary, {"format": "lidstone-loss", "identity": identity})


def _mapped(file: Path, identity: str) -> dict[str, Tensor]:
    """The tensors of a file, as views of its pages."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            if (opened.metadata() or {}).get("identity") == identity:
                return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cannot map {file}: {error}", hint="call share again with a path that all processes see"
        ) from error
    raise InputError(f"{file} holds the tensors of another loss", hint="remove it, or share under another name")
