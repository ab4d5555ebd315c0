"""The parts of the loss, gathered between two lines of the training log."""

from __future__ import annotations

import torch
from torch import Tensor

from lidstone.regularizer.loss import LossParts


class PartsMeter:
    """Sums nll, plus and minus over micro-batches; reads their mean per optimizer step, as the Trainer's loss is.

    >>> one = torch.tensor(1.0)
    >>> meter = PartsMeter()
    >>> for step in (0, 0, 1, 1):                                # two steps of two micro-batches
    ...     meter.add(LossParts(2 * one, one, one, 0 * one), step)
    >>> meter.read()
    {'nll': 2.0, 'plus': 2.0, 'minus': 0.0}
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what was added."""
        self._sums: Tensor | None = None
        self._steps: set[int] = set()

    def add(self, parts: LossParts, step: int) -> None:
        """Take one micro-batch of this optimizer step; nothing waits for the device."""
        sums = torch.stack(parts[1:]).detach().float()
        self._sums = sums if self._sums is None else self._sums + sums
        self._steps.add(step)

    def read(self, processes: int = 1) -> dict[str, float]:
        """The means since the last reading; `processes` > 1 averages over them, so all must call it together."""
        if self._sums is None:
            return {}
        sums = self._sums / len(self._steps)
        if processes > 1:
            torch.distributed.all_reduce(sums)
            sums = sums / processes
        self.clear()
        return dict(zip(("nll", "plus", "minus"), sums.tolist(), strict=True))
