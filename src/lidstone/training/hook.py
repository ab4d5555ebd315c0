"""A smoothed loss inside Hugging Face's Trainer: one argument, or a mixin.

    Trainer(..., compute_loss_func=trainer_loss(loss))          sees outputs and labels: histories from the labels
    class MyTrainer(SmoothedLossMixin, Trainer): ...            sees the inputs, too: true histories, parts logged

Both divide by the tokens of the whole accumulated batch over all processes, so the gradient does not depend on how
the batch is cut up, and both report the plain negative log-likelihood in evaluation.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from lidstone.errors import InputError
from lidstone.regularizer.linear_loss import LinearSmoothedCrossEntropy
from lidstone.regularizer.loss import LossParts, SmoothedCrossEntropy
from lidstone.training.alignment import Aligned, align_causal
from lidstone.training.checks import check_loss, is_encoder_decoder, logits_of, move_to, one_number
from lidstone.training.meter import PartsMeter
from lidstone.training.mixin import SmoothedLossMixin

__all__ = ["SmoothedLossMixin", "TrainerLoss", "trainer_loss"]

Shift = Literal["auto"] | bool


def trainer_loss(loss: SmoothedCrossEntropy, shift: Shift = "auto") -> TrainerLoss:
    """Make `loss` a `compute_loss_func` of the Trainer.

    shift=True moves the labels of a causal model, False leaves those of an encoder-decoder; "auto" looks at the
    outputs. Add its `.callback` to the Trainer's callbacks to log the parts, and for a schedule.

    >>> outputs = {"logits": torch.zeros(1, 3, 4, requires_grad=True)}
    >>> round(trainer_loss(SmoothedCrossEntropy())(outputs, torch.tensor([[1, 2, 3]])).item(), 4)
    1.3863
    """
    return TrainerLoss(loss, shift)


class TrainerLoss:
    """A smoothed loss as the Trainer calls it: `(outputs, labels, num_items_in_batch)`."""

    def __init__(self, loss: SmoothedCrossEntropy, shift: Shift = "auto") -> None:
        if isinstance(loss, LinearSmoothedCrossEntropy):
            raise InputError("the linear loss needs hidden states, not logits", hint="use SmoothedLossMixin with it")
        check_loss(loss)
        self.loss, self.shift = loss, shift
        self.meter = PartsMeter()
        self.step: int | None = None
        """the optimizer step; None until the callback runs"""

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
        """The loss of one micro-batch."""
        if labels is None:
            raise InputError(
                "the batch holds no labels", hint="use a collator that makes labels, -100 where unpredicted"
            )
        logits = logits_of(outputs)
        move_to(self.loss, logits)
        targets, histories = self._align(outputs, labels)
        parts: LossParts = self.loss(logits, targets, histories, one_number(num_items_in_batch))
        if torch.is_grad_enabled():
            self._record(parts)
        return parts.total

    @cached_property
    def callback(self) -> Any:
        """A TrainerCallback that logs nll, plus and minus and tells the schedule how far training is."""
        from lidstone.training.callback import PartsCallback

        return PartsCallback(self)

    def _align(self, outputs: Any, labels: Tensor) -> Aligned | tuple[Tensor, None]:
        shift = not is_encoder_decoder(outputs) if self.shift == "auto" else self.shift
        return align_causal(labels) if shift else (labels, None)

    def _record(self, parts: LossParts) -> None:
        if self.step is not None:
            self.meter.add(parts, self.step)
        elif self.loss.schedule.kind != "constant" and not self.loss.progress:
            warnings.warn(
                "the schedule does not move: give the Trainer callbacks=[compute_loss_func.callback]", stacklevel=3
            )
