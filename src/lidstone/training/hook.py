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
from transformers import TrainerCallback

from lidstone.errors import InputError
from lidstone.regularizer.linear_loss import LinearSmoothedCrossEntropy
from lidstone.regularizer.loss import LossParts, SmoothedCrossEntropy
from lidstone.training.alignment import Aligned, align_causal
from lidstone.training.checks import check_arguments, check_loss, is_encoder_decoder, logits_of, move_to, one_number

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


class PartsCallback(TrainerCallback):
    """Adds nll, plus and minus to each line of the training log.

    The lines of `state.log_history` get them, and the callbacks after this one. The Trainer puts its own reporters
    (TensorBoard and the like) first, so they get them from `SmoothedLossMixin` only.
    """

    def __init__(self, hook: TrainerLoss) -> None:
        self.hook = hook

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Refuse arguments that the loss cannot honour, and start anew."""
        check_arguments(args)
        self.hook.meter.clear()
        self.hook.step = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell the loss how far training is."""
        self.hook.step = state.global_step
        self.hook.loss.progress = state.global_step / max(state.max_steps, 1)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Add the parts to a line of the training log; lines of evaluation have no `loss`."""
        if logs is None or "loss" not in logs:
            return
        parts = self.hook.meter.read(args.world_size)
        if args.average_tokens_across_devices:  # then each process holds its share of one sum
            parts = {name: value * args.world_size for name, value in parts.items()}
        logs.update(parts)
        state.log_history[-1].update(parts)


class PartsMeter:
    """Sums nll, plus and minus over micro-batches; reads their mean per optimizer step, as the Trainer's loss is.

    >>> one = torch.tensor(1.0)
    >>> meter = PartsMeter()
    >>> for step in (0, 0, 1, 1):                                # two steps of two micro-batches
    ...     meter.add(LossParts(2 * one, one, one, 0 * one), step)
    >>> meter.read()
    {'nll': 2.0, 'plus': 2.0, 'minus': 0.0}
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what was added."""
        self._sums: Tensor | None = None
        self._steps: set[int] = set()

    def add(self, parts: LossParts, step: int) -> None:
        """Take one micro-batch of this optimizer step; nothing waits for the device."""
        sums = torch.stack(parts[1:]).detach().float()
        self._sums = sums if self._sums is None else self._sums + sums
        self._steps.add(step)

    def read(self, processes: int = 1) -> dict[str, float]:
        """The means since the last reading; `processes` > 1 averages over them, so all must call it together."""
        if self._sums is None:
            return {}
        sums = self._sums / len(self._steps)
        if processes > 1:
            torch.distributed.all_reduce(sums)
            sums = sums / processes
        self.clear()
        return dict(zip(("nll", "plus", "minus"), sums.tolist(), strict=True))
