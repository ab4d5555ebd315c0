"""The number of labels that an evaluation loss is divided by, so that exp of it is a perplexity.

The Trainer passes its own count. That includes the first label of a row, which some causal models (GPT-2's class) never
predict, so the loss would be too small. The count is also the sum over all processes, depending on the arguments, and
the Trainer multiplies the loss by their number afterwards.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lidstone.hf.alignment import IGNORED


def evaluation_items(counted: Any, labels: Tensor, targets: Tensor) -> float:
    """The number of `targets` that are predicted, over as many processes as the Trainer's count `counted` covers.

    >>> labels, targets = torch.tensor([[5, 6, 7]]), torch.tensor([[6, 7, -100]])
    >>> evaluation_items(3, labels, targets)
    2.0
    """
    own = _present(targets)
    here = [own, _present(labels), _present(labels[..., 1:])]
    everywhere, processes = _summed(here, labels)
    for copies in range(1, processes + 1):  # tensor-parallel processes have copies of one batch
        if processes % copies == 0 and int(counted) * copies in everywhere[1:]:
            return everywhere[0] / copies
    return float(own)


def _present(labels: Tensor) -> int:
    return int((labels != IGNORED).sum())


def _summed(counts: list[int], like: Tensor) -> tuple[list[int], int]:
    """Counts added up over the processes, and how many processes there are."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not distributed or torch.distributed.get_world_size() == 1:
        return counts, 1
    sums = torch.tensor(counts, device=like.device)
    torch.distributed.all_reduce(sums)
    return sums.tolist(), torch.distributed.get_world_size()
