"""Unigram label smoothing: label smoothing with the unigrams of the training text instead of the uniform."""

from __future__ import annotations

from lidstone.lab.methods.base import Regularizer, TableMethod, TrainingText
from lidstone.lab.methods.label_smoothing import table_without_histories
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import unigrams
from lidstone.ngram.table import BackoffTable


class UnigramLabelSmoothingMethod(TableMethod):
    """A table of order 1 that has the frequencies of the training text."""

    kind = "unigram_label_smoothing"

    def table(self, settings: Regularizer, text: TrainingText, counts: Counts) -> BackoffTable:
        return unigram_table(counts)


def unigram_table(counts: Counts) -> BackoffTable:
    """The unigram distribution of the text, after every history.

    >>> from lidstone import Vocabulary, count
    >>> unigram_table(count([[1, 1, 2]], Vocabulary(size=4, eos=0), order=1)).prob([()]).tolist()
    [[0.25, 0.5, 0.25, 0.0]]
    """
    return table_without_histories("unigram-label-smoothing", counts, unigrams(counts))


METHOD = UnigramLabelSmoothingMethod()
