"""Witten-Bell: a history that was followed by many different words will be followed by new ones.

    p(w|h) = (c(hw) + N_1+(h.) p(w|h')) / (c(h) + N_1+(h.))                                                     (1)

N_1+(h.) is the number of distinct words seen after h. Unigrams rest on the uniform, by the same rule.
Where thresholds dropped n-grams, N_1+ counts those that are left, and the counts dropped go to the order below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import BlockFit, BlockSmoother, Floats, HistoryBlock, uniform, unigrams


@dataclass(frozen=True)
class WittenBell(BlockSmoother):
    """Witten-Bell smoothing, interpolated.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 1], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> WittenBell().fit(counts).prob([[], [1]]).round(4).tolist()   # unigrams: (2, 3, 0) of 5 tokens, 2 types
    [[0.381, 0.5238, 0.0952], [0.5524, 0.4095, 0.0381]]
    """

    name: ClassVar[str] = "witten-bell"

    def prepare(self, counts: Counts) -> BlockFit:
        """The share of c(hw)/c(h) falls with the number of different followers."""
        distinct = np.count_nonzero(counts.counts[: counts.vocab.size])
        seen = counts.tokens / (counts.tokens + distinct)
        return BlockFit.interpolated(seen * unigrams(counts) + (1 - seen) * uniform(counts), _share)


def _share(block: HistoryBlock) -> Floats:
    """c(h) / (c(h) + N_1+(h.)) of each history: the share of c(hw)/c(h) in (1)."""
    types = block.sum_followers((block.counts > 0).astype(np.int32))
    share: Floats = block.totals / np.maximum(block.totals + types, 1)
    return share
