"""Training data as a list of ready batches.

Batches are put together once, of sequences of similar length, and the Trainer shuffles whole batches every epoch, as
fairseq does. Labels stand at the positions of the inputs that predict them: no shift is left to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lidstone.evaluation.batching import IGNORED, length_batches

if TYPE_CHECKING:
    from torch import Tensor

Arrays = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Batches:
    """Groups of sequences, and how to make the arrays of a group: what a model reads, and `labels`."""

    groups: Sequence[NDArray[np.int64]]
    make: Callable[[NDArray[np.int64]], Arrays]

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        import torch

        return {name: torch.from_numpy(array) for name, array in self.make(self.groups[number]).items()}

    @property
    def tokens(self) -> int:
        """How many labels an epoch has."""
        return sum(int((self.make(group)["labels"] != IGNORED).sum()) for group in self.groups)


@dataclass(frozen=True)
class BatchSize:
    """How large a batch is: target tokens with padding, or sequences."""

    tokens: int | None = None
    sequences: int | None = None


def shuffled_batches(
    lengths: NDArray[np.integer], size: BatchSize, seed: int, second: NDArray[np.integer] | None = None
) -> list[NDArray[np.int64]]:
    """Groups of similar length, then of similar `second` length; chance, by the seed, decides between equals.

    >>> groups = shuffled_batches(np.array([1, 2, 1]), BatchSize(sequences=2), seed=1)
    >>> sorted(groups[0].tolist()), groups[1].tolist()
    ([0, 2], [1])
    """
    order = np.random.default_rng(seed).permutation(len(lengths))
    if second is not None:
        order = order[np.argsort(second[order], kind="stable")]
    return [order[group] for group in length_batches(lengths[order], tokens=size.tokens, size=size.sequences)]
