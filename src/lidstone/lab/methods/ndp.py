"""N-gram frequencies as targets, without smoothing, after Next Distribution Prediction (NDP, arXiv 2408.17377).

    target of a position:  (1 - gamma) onehot + gamma c(h, w) / c(h)

h is the history of `order` - 1 words, or back to the sentence start, and the counts are those of the training text, so
every history of training is known. The paper collects such distributions for several n; this is its idea for one n,
with the strength of a smoother's regularizer, so that the two differ in the smoothing alone.
"""

from __future__ import annotations

from lidstone.lab.methods.base import Regularizer, TableMethod, TrainingText
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.jelinek_mercer import JelinekMercer
from lidstone.ngram.table import BackoffTable


class NextDistributionMethod(TableMethod):
    """The table of relative frequencies: Jelinek-Mercer that gives all weight to the longest history."""

    kind = "ndp"
    axes = ("gamma", "order")
    has_order = True

    def table(self, settings: Regularizer, text: TrainingText, counts: Counts) -> BackoffTable:
        return text.fit("ndp", JelinekMercer(weights=1.0, base="unigram"), counts)


METHOD = NextDistributionMethod()
