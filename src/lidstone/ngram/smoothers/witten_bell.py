"""Witten-Bell: a history that was followed by many different words will be followed by new ones.

    p(w|h) = (c(hw) + N_1+(h.) p(w|h')) / (c(h) + N_1+(h.))

N_1+(h.) is the number of distinct words seen after h. Unigrams rest on the uniform, by the same rule.
Where thresholds dropped n-grams, N_1+ counts those that are left, and the counts dropped go to the order below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import Floats, Ints, make_table, mix, uniform, unigrams
from lidstone.ngram.smoothers.plan import Block, Plan, mix_plan
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import sum_children


@dataclass(frozen=True)
class WittenBell:
    """Witten-Bell smoothing, interpolated.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 1], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> WittenBell().fit(counts).prob([[], [1]]).round(4).tolist()   # unigrams: (2, 3, 0) of 5 tokens, 2 types
    [[0.381, 0.5238, 0.0952], [0.5524, 0.4095, 0.0381]]
    """

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        share = _share(counts.trie.first, counts.counts, counts.totals)
        return make_table(self, "witten-bell", counts, _base(counts), *mix(counts, share))

    def plan(self, counts: Counts) -> Plan:
        """The same, block by block."""
        return mix_plan("witten-bell", _base(counts), _share_of_block)


def _share_of_block(block: Block) -> Floats:
    return _share(block.first, block.counts, block.totals)


def _share(first: Ints, counts: Ints, totals: Ints) -> Floats:
    """c(h) / (c(h) + N_1+(h.)) of each history."""
    types = sum_children(first, (counts > 0).astype(np.int32))
    share: Floats = totals / np.maximum(totals + types, 1)
    return share


def _base(counts: Counts) -> Floats:
    distinct = np.count_nonzero(counts.counts[: counts.vocab.size])
    seen = counts.tokens / (counts.tokens + distinct)
    return seen * unigrams(counts) + (1 - seen) * uniform(counts)
