"""Language modelling: sentences or packed blocks as batches, and the score on held-out text.

    input    </s> the cat sat          (a model starts from the end of a sentence)
    label    the  cat sat </s>

Sentence by sentence every sequence starts anew; a sentence longer than the model goes in as several sequences, none of
them overlapping. Packed, the text is one stream cut into blocks, and a block may begin inside a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.evaluation.batching import IGNORED, Ids, padded, pieces
from lidstone.training.batches import Arrays, Batches, BatchSize, shuffled_batches


def sentence_batches(sentences: Sequence[Ids], *, eos: int, limit: int, size: BatchSize, seed: int) -> Batches:
    """One sequence per sentence, which is given without eos; `limit` is the longest that the model reads.

    >>> batch = sentence_batches([np.array([5, 6])], eos=2, limit=8, size=BatchSize(tokens=8), seed=1)[0]
    >>> batch["input_ids"].tolist(), batch["labels"].tolist()
    ([[2, 5, 6]], [[5, 6, 2]])
    """
    rows = [
        np.concatenate([[eos], sentence, [eos]])[start : end + 1]
        for sentence in sentences
        for start, _, end in pieces(len(sentence) + 1, limit, overlap=0)
    ]
    return _row_batches(rows, eos, size, seed)


def block_batches(stream: Ids, *, eos: int, block: int, size: BatchSize, seed: int) -> Batches:
    """One sequence per block of a packed text in which every sentence ends with eos.

    >>> batches = block_batches(np.array([5, 6, 2, 7, 2]), eos=2, block=3, size=BatchSize(tokens=6), seed=1)
    >>> sorted(batches[0]["labels"].tolist())
    [[5, 6, 2], [7, 2, -100]]
    """
    whole = np.concatenate([[eos], stream])
    rows = [whole[start : start + block + 1] for start in range(0, len(stream), block)]
    return _row_batches(rows, eos, size, seed)


def _row_batches(rows: Sequence[Ids], eos: int, size: BatchSize, seed: int) -> Batches:
    """Batches of rows whose labels are the inputs moved by one."""
    if not rows:
        raise InputError("there is no training text", hint="check the files and the filters of the corpus")

    def make(group: NDArray[np.int64]) -> Arrays:
        chosen = [rows[number] for number in group]
        labels = padded([row[1:] for row in chosen], IGNORED)
        return {"input_ids": padded([row[:-1] for row in chosen], eos), "labels": labels, "shift_labels": labels}

    lengths = np.array([len(row) - 1 for row in rows])
    return Batches(shuffled_batches(lengths, size, seed), make)
