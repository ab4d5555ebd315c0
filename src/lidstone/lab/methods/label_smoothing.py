"""Label smoothing: the target is (1 - gamma) onehot + gamma u, with the uniform distribution u over the event space.

The same as `torch.nn.CrossEntropyLoss(label_smoothing=gamma)`, where every id can be predicted.
"""

from __future__ import annotations

from typing import Any

from lidstone.errors import InputError
from lidstone.lab.methods.base import Regularizer, TableMethod, TrainingText
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import empty_level, uniform
from lidstone.ngram.table import BackoffTable


class LabelSmoothingMethod(TableMethod):
    """A table of order 1 that is uniform."""

    kind = "label_smoothing"

    def table(self, settings: Regularizer, text: TrainingText, counts: Counts) -> BackoffTable:
        return uniform_table(counts)


def uniform_table(counts: Counts) -> BackoffTable:
    """The uniform distribution over the event space, after every history.

    >>> from lidstone import Vocabulary, count
    >>> uniform_table(count([[1, 2]], Vocabulary(size=4, eos=0), order=1)).prob([()]).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    return table_without_histories("label-smoothing", counts, uniform(counts))


def table_without_histories(name: str, counts: Counts, base: Any) -> BackoffTable:
    """The table that gives the distribution `base`, (V,), after every history."""
    if counts.order != 1:
        raise InputError(
            f"{name} has no histories, but the counts have order {counts.order}", hint="count with order=1"
        )
    fingerprints = {"vocabulary": counts.vocab.fingerprint, "counts": counts.fingerprint}
    signature = {"smoother": name, "order": 1, **fingerprints}
    return BackoffTable(counts.vocab, counts.trie, base, *empty_level(counts), signature)


METHOD = LabelSmoothingMethod()
