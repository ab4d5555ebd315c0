"""Which label each output position scores, and which token comes before it.

A causal model's logits at t score the label at t + 1, so its labels are moved one to the left (slicing the logits
would copy them), and the input at t is the token before the label. An encoder-decoder is aligned already, and its
decoder's inputs are the tokens before. An unknown token is -1: there the history ends. `evaluation_items` counts the
labels that are scored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lidstone.loss.targets import shift_right
from lidstone.text.datasets import IGNORED
from lidstone.text.history import UNKNOWN


class Aligned(NamedTuple):
    """Labels and the token before each, both at the position of the logits that score them; (batch, time)."""

    labels: Tensor
    histories: Tensor


def align_causal(
    labels: Tensor,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    shifted: bool = False,
) -> Aligned:
    """Labels of a causal model as its outputs score them.

    Without `input_ids` the labels are the histories, except where they are ignored. Padding, and the last token before
    a new document (whose position ids start again at 0), predict nothing and are not part of a history. `shifted`
    labels are already at the position that predicts them.

    >>> align_causal(torch.tensor([[-100, 5, 6]]), torch.tensor([[4, 5, 6]]))
    Aligned(labels=tensor([[   5,    6, -100]]), histories=tensor([[4, 5, 6]]))
    """
    following = labels if shifted else shift_left(labels, IGNORED)
    before = shift_right(labels, UNKNOWN) if shifted else labels
    before = before.clamp(min=UNKNOWN) if input_ids is None else input_ids
    outside = _outside(labels, attention_mask, position_ids)
    if outside is None:
        return Aligned(following, before)
    return Aligned(following.masked_fill(outside, IGNORED), before.masked_fill(outside, UNKNOWN))


def align_decoder(labels: Tensor, decoder_input_ids: Tensor, bos: int) -> Aligned:
    """Labels of an encoder-decoder; the first id that its decoder reads is the sentence start.

    >>> align_decoder(torch.tensor([[5, 6]]), torch.tensor([[0, 5]]), bos=9).histories
    tensor([[9, 5]])
    """
    histories = decoder_input_ids.clone()
    histories[:, 0] = bos
    return Aligned(labels, histories)


def shift_left(tensor: Tensor, fill: int) -> Tensor:
    """Each position gets its right neighbour's value; (batch, time)."""
    return torch.nn.functional.pad(tensor[:, 1:], (0, 1), value=fill)


def _outside(labels: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None) -> Tensor | None:
    """Positions that are padding, or after which another document begins."""
    outside = None
    if attention_mask is not None and attention_mask.shape == labels.shape:
        outside = attention_mask == 0
    if position_ids is not None and position_ids.shape == labels.shape:
        last = shift_left(position_ids, 1) == 0
        outside = last if outside is None else outside | last
    return outside


def evaluation_items(counted: Any, labels: Tensor, targets: Tensor) -> float:
    """The number that an evaluation loss is divided by, so that exp of it is a perplexity: the predicted `targets`.

    The Trainer passes its own count, `counted`. That includes the first label of a row, which some causal models
    (GPT-2's class) never predict, so the loss would be too small. The count is also the sum over all processes,
    depending on the arguments, and the Trainer multiplies the loss by their number afterwards: the result covers as
    many processes as `counted` does.

    >>> labels, targets = torch.tensor([[5, 6, 7]]), torch.tensor([[6, 7, -100]])
    >>> evaluation_items(3, labels, targets)
    2.0
    """
    own = _present(targets)
    here = [own, _present(labels), _present(labels[..., 1:])]
    everywhere, processes = _summed(here, labels)
    for copies in range(1, processes + 1):  # tensor-parallel processes have copies of one batch
        if processes % copies == 0 and int(counted) * copies in everywhere[1:]:
            return everywhere[0] / copies
    return float(own)


def _present(labels: Tensor) -> int:
    return int((labels != IGNORED).sum())


def _summed(counts: list[int], like: Tensor) -> tuple[list[int], int]:
    """Counts added up over the processes, and how many processes there are."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not distributed or torch.distributed.get_world_size() == 1:
        return counts, 1
    sums = torch.tensor(counts, device=like.device)
    torch.distributed.all_reduce(sums)
    return sums.tolist(), torch.distributed.get_world_size()
