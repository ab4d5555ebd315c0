"""Training data as a list of ready batches: sentences or packed blocks of a language model, pairs of a translation.

    language model   input    </s> the cat sat         a model starts from the end of a sentence
                     label    the  cat sat </s>
    translation      encoder  das haus </s>
                     decoder  </s> the house
                     label    the house </s>

Sentence by sentence, every sentence is a sequence; one longer than the model becomes several sequences that do not
overlap. Packed, the text is one stream cut into blocks, and a block may begin inside a sentence. Batches are made once,
of sequences of similar length, and the Trainer shuffles the batches every epoch, as fairseq does. Labels are at the
positions of the inputs that predict them, so they need not be shifted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.text.datasets import IGNORED, Ids, length_batches, padded, pair_inputs, pieces

if TYPE_CHECKING:
    from torch import Tensor

Arrays = dict[str, NDArray[np.int64]]
Marks = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Batches:
    """Groups of sequences, and how to make the arrays of a group: what a model reads, and `labels`."""

    groups: Sequence[NDArray[np.int64]]
    make: Callable[[NDArray[np.int64]], Arrays]
    longest: int
    """the number of labels of the longest (target) sequence"""

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        import torch

        return {name: torch.from_numpy(array) for name, array in self.make(self.groups[number]).items()}


@dataclass(frozen=True)
class BatchSize:
    """How large a batch is: target tokens with padding, or sequences."""

    tokens: int | None = None
    sequences: int | None = None


def shuffled_batches(
    lengths: NDArray[np.integer], size: BatchSize, seed: int, second: NDArray[np.integer] | None = None
) -> list[NDArray[np.int64]]:
    """Groups of similar length, then of similar `second` length; ties are resolved at random, by the seed.

    >>> groups = shuffled_batches(np.array([1, 2, 1]), BatchSize(sequences=2), seed=1)
    >>> sorted(groups[0].tolist()), groups[1].tolist()
    ([0, 2], [1])
    """
    order = np.random.default_rng(seed).permutation(len(lengths))
    if second is not None:
        order = order[np.argsort(second[order], kind="stable")]
    return [order[group] for group in length_batches(lengths[order], tokens=size.tokens, size=size.sequences)]


def sentence_batches(
    sentences: Sequence[Ids], *, eos: int, limit: int, size: BatchSize, seed: int, marks: Marks | None = None
) -> Batches:
    """One sequence per sentence, which is given without eos; `limit` is the longest that the model reads.

    `marks` are numbers of the labels, sentence after sentence; batches hold them under their names.

    >>> batch = sentence_batches([np.array([5, 6])], eos=2, limit=8, size=BatchSize(tokens=8), seed=1)[0]
    >>> batch["input_ids"].tolist(), batch["labels"].tolist()
    ([[2, 5, 6]], [[5, 6, 2]])
    """
    cuts = [
        (number, start, end)
        for number, sentence in enumerate(sentences)
        for start, _, end in pieces(len(sentence) + 1, limit, overlap=0)
    ]
    rows = [np.concatenate([[eos], sentences[number], [eos]])[start : end + 1] for number, start, end in cuts]
    first = np.cumsum([0, *(len(sentence) + 1 for sentence in sentences)])
    own = [slice(first[number] + start, first[number] + end) for number, start, end in cuts]
    return _row_batches(rows, eos, size, seed, own, marks or {})


def block_batches(
    stream: Ids, *, eos: int, block: int, size: BatchSize, seed: int, marks: Marks | None = None
) -> Batches:
    """One sequence per block of a packed text in which every sentence ends with eos; `marks` number its tokens.

    >>> batches = block_batches(np.array([5, 6, 2, 7, 2]), eos=2, block=3, size=BatchSize(tokens=6), seed=1)
    >>> sorted(batches[0]["labels"].tolist())
    [[5, 6, 2], [7, 2, -100]]
    """
    whole = np.concatenate([[eos], stream])
    starts = range(0, len(stream), block)
    rows = [whole[start : start + block + 1] for start in starts]
    return _row_batches(rows, eos, size, seed, [slice(start, start + block) for start in starts], marks or {})


def _row_batches(
    rows: Sequence[Ids], eos: int, size: BatchSize, seed: int, own: Sequence[slice], marks: Marks
) -> Batches:
    """Batches of rows whose labels are the inputs moved by one, with the marks that are each row's own."""
    if not rows:
        raise InputError("there is no training text", hint="check the files and the filters of the corpus")

    def make(group: NDArray[np.int64]) -> Arrays:
        chosen = [rows[number] for number in group]
        labels = padded([row[1:] for row in chosen], IGNORED)
        more = {name: padded([values[own[number]] for number in group], 0) for name, values in marks.items()}
        inputs = padded([row[:-1] for row in chosen], eos)
        return {"input_ids": inputs, "labels": labels, "shift_labels": labels, **more}

    lengths = np.array([len(row) - 1 for row in rows])
    return Batches(shuffled_batches(lengths, size, seed), make, int(lengths.max()))


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
    return Batches(shuffled_batches(lengths, size, seed, second), make, int(lengths.max()))


def check_pair_lengths(sources: Sequence[Ids], targets: Sequence[Ids], limit: int, what: str) -> None:
    """Raise an error for pairs that are longer than the model can read."""
    for side, sentences in (("source", sources), ("target", targets)):
        for number, sentence in enumerate(sentences, 1):
            if len(sentence) + 1 > limit:
                raise InputError(
                    f"{what} pair {number} has {len(sentence) + 1} {side} tokens, but the model reads at most {limit}",
                    hint="set model.max_positions higher"
                    + (" or corpus.max_length lower" if what == "training" else ", or leave the pair out"),
                )
