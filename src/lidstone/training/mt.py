"""Translation: pairs of sentences as batches.

encoder reads    das haus </s>
decoder reads    </s> the house
label            the house </s>
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.evaluation.batching import Ids
from lidstone.evaluation.perplexity import pair_inputs
from lidstone.training.batches import Arrays, Batches, BatchSize, shuffled_batches


def pair_batches(
    sources: Sequence[Ids], targets: Sequence[Ids], *, eos: int, pad: int, limit: int, size: BatchSize, seed: int
) -> Batches:
    """Pairs of similar target length, then source length; sides are given without eos.

    >>> pairs = pair_batches([np.array([5])], [np.array([7, 8])], eos=2, pad=1, limit=9, size=BatchSize(9), seed=1)
    >>> pairs[0]["labels"].tolist()
    [[7, 8, 2]]
    """
    if not len(targets):
        raise InputError("there are no training pairs", hint="check the files and the filters of the corpus")
    check_pair_lengths(sources, targets, limit, "training")

    def make(group: NDArray[np.int64]) -> Arrays:
        inputs, labels = pair_inputs([sources[i] for i in group], [targets[i] for i in group], eos, pad)
        return {**inputs, "labels": labels}

    lengths, second = (np.array([len(sentence) + 1 for sentence in side]) for side in (targets, sources))
    return Batches(shuffled_batches(lengths, size, seed, second), make)


def check_pair_lengths(sources: Sequence[Ids], targets: Sequence[Ids], limit: int, what: str) -> None:
    """Refuse pairs that the model cannot read whole."""
    for side, sentences in (("source", sources), ("target", targets)):
        for number, sentence in enumerate(sentences, 1):
            if len(sentence) + 1 > limit:
                raise InputError(
                    f"{what} pair {number} has {len(sentence) + 1} {side} tokens, but the model reads at most {limit}",
                    hint="set corpus.max_length lower or model.max_positions higher",
                )
