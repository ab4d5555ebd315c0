"""The columns of a teacher in the batches of a Trainer: put there by a collator, read by `SmoothedLossMixin`.

`target_token_ids` and `target_logprobs` are (batch, time, k), aligned with `labels`: entry t says what the token at t
should have been. They are padded and moved as the labels are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from lidstone.errors import InputError
from lidstone.hf.stored_teacher import COLUMNS, IDS, LOGPROBS, MASK, StoredTeacher


class TeacherCollator:
    """Adds a teacher's columns to the batches of another collator, which pads left or right, or flattens.

    A row's columns are its own (see `StoredTeacher.add_columns`), or those that `teacher` has for its tokens.

    >>> collate = TeacherCollator(lambda rows: {"labels": torch.tensor([[5, 6], [7, -100]])})
    >>> rows = [{"input_ids": ids, "target_token_ids": [[3]] * len(ids), "target_logprobs": [[-0.1]] * len(ids)}
    ...         for ids in ([5, 6], [7])]
    >>> collate(rows)["target_token_ids"].tolist()
    [[[3], [3]], [[3], [-1]]]
    """

    def __init__(
        self, collator: Callable[[list[Any]], Mapping[str, Any]], teacher: StoredTeacher | None = None
    ) -> None:
        self.collator, self.teacher = collator, teacher

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch of some rows."""
        own = [self._columns(row) for row in rows]
        batch = dict(self.collator([{key: row[key] for key in row if key not in COLUMNS} for row in rows]))
        labels = batch["labels"] if "labels" in batch else batch["input_ids"]
        ids, logprobs = _empty(labels.shape, max((part[0].shape[-1] for part in own), default=0))
        for (row, start), (words, values) in zip(_places(labels, batch, own), own, strict=True):
            here = row, slice(start, start + len(words)), slice(words.shape[-1])
            ids[here], logprobs[here] = words, values
        return {**batch, IDS: ids, LOGPROBS: logprobs}

    def _columns(self, row: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities of one row, as many as it has tokens."""
        tokens = len(row["input_ids"])
        if IDS not in row or LOGPROBS not in row:
            if self.teacher is None:
                raise InputError(f"a row has no {IDS} and {LOGPROBS}", hint="give TeacherCollator(collator, teacher)")
            row = self.teacher.add_columns(row)
        if len(row[IDS]) < tokens or len(row[IDS]) != len(row[LOGPROBS]):
            raise InputError(
                f"a row of {tokens} tokens has {len(row[IDS])} entries of the teacher", hint="give one for each token"
            )
        ids, logprobs = _empty((tokens,), max(map(len, row[IDS]), default=0))
        for at, (words, values) in enumerate(zip(row[IDS][:tokens], row[LOGPROBS], strict=False)):
            ids[at, : len(words)], logprobs[at, : len(words)] = _tensor(words), _tensor(values)
        return ids, logprobs


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values))


def _empty(shape: Sequence[int], k: int) -> tuple[Tensor, Tensor]:
    """Columns that say nothing."""
    return torch.full((*shape, k), -1), torch.zeros(*shape, k)


def _places(labels: Tensor, batch: Mapping[str, Any], own: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[int, int]]:
    """In which row of the batch each row is, and where it begins."""
    lengths = [len(ids) for ids, _ in own]
    if labels.shape[0] == len(own) and labels.shape[1] >= max(lengths, default=0):
        mask = batch.get("attention_mask")
        left = mask is not None and bool((mask[:, -1] == 1).all()) and not bool((mask[:, 0] == 1).all())
        return [(row, labels.shape[1] - length if left else 0) for row, length in enumerate(lengths)]
    if labels.shape[0] == 1 and labels.shape[1] >= sum(lengths):
        return [(0, sum(lengths[:row])) for row in range(len(own))]
    raise InputError(
        f"the collator made labels {tuple(labels.shape)} of rows of {lengths} tokens, so the teacher does not fit",
        hint="cut rows before they are collated",
    )


def teacher_columns(inputs: Mapping[str, Any], shift: bool) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Ids and log-probabilities of a batch at the positions of its logits, -1 where unused; None without columns.

    >>> batch = {"target_token_ids": torch.tensor([[[4], [5]]]), "target_logprobs": torch.tensor([[[-1.0], [-2.0]]])}
    >>> teacher_columns(batch, shift=True)[0].tolist()
    [[[5], [-1]]]
    """
    if inputs.get(IDS) is None or inputs.get(LOGPROBS) is None:
        return None, None
    ids, logprobs, mask = inputs[IDS], inputs[LOGPROBS], inputs.get(MASK)
    ids = ids.masked_fill(logprobs.isneginf() if mask is None else logprobs.isneginf() | (mask == 0), -1)
    if not shift:
        return ids, logprobs
    return pad(ids[:, 1:], (0, 0, 0, 1), value=-1), pad(logprobs[:, 1:], (0, 0, 0, 1))
