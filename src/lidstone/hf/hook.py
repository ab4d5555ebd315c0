"""A smoothed loss inside Hugging Face's Trainer: one argument, or a mixin.

    class MyTrainer(SmoothedLossMixin, Trainer): ...            sees the whole batch: true histories, parts logged
    Trainer(..., compute_loss_func=trainer_loss(loss))          sees outputs and labels: histories from the labels

Both divide by the tokens of the whole accumulated batch over all processes, so the gradient does not depend on how
the batch is divided. In evaluation both report the plain negative log-likelihood per predicted label.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import TrainerCallback

from lidstone.errors import InputError
from lidstone.hf.alignment import Aligned, align_causal
from lidstone.hf.checks import (
    check_arguments,
    check_decoder_length,
    check_loss,
    check_model,
    is_encoder_decoder,
    logits_of,
    move_to,
    one_number,
    require_decoder_inputs,
)
from lidstone.hf.evaluation_items import evaluation_items
from lidstone.loss.linear_loss import LinearSmoothedCrossEntropy
from lidstone.loss.loss import LossParts, SmoothedCrossEntropy, SmoothedLoss

Shift = Literal["auto"] | bool


def trainer_loss(loss: SmoothedCrossEntropy, shift: Shift = "auto") -> TrainerLoss:
    """Make `loss` a `compute_loss_func` of the Trainer.

    shift=True moves the labels of a causal model, False leaves those of an encoder-decoder; "auto" depends on the
    outputs. Add its `.callback` to the Trainer's callbacks to log the parts, and for a schedule.

    >>> outputs = {"logits": torch.zeros(1, 3, 4, requires_grad=True)}
    >>> round(trainer_loss(SmoothedCrossEntropy())(outputs, torch.tensor([[1, 2, 3]])).item(), 4)
    1.3863
    """
    return TrainerLoss(loss, shift)


class TrainerLoss:
    """A smoothed loss as the Trainer calls it: `(outputs, labels, num_items_in_batch)`."""

    def __init__(self, loss: SmoothedLoss, shift: Shift = "auto") -> None:
        if isinstance(loss, LinearSmoothedCrossEntropy):
            raise InputError("the linear loss needs hidden states, not logits", hint="use SmoothedLossMixin with it")
        check_loss(loss)
        self.loss, self.shift = loss, shift
        self.meter = PartsMeter()
        self.step: int | None = None
        """the optimizer step; None until the callback runs"""
        self.checked = False
        """whether the callback sees to it that an encoder-decoder gets its decoder's inputs"""

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
        """The loss of one micro-batch."""
        if labels is None:
            raise InputError("the batch has no labels", hint="use a collator that makes labels, -100 where unpredicted")
        logits = logits_of(outputs)
        move_to(self.loss, logits)
        targets, histories = self._align(outputs, labels)
        if histories is None:
            check_decoder_length(logits, targets)
            self._warn_of_unchecked_inputs()
        num_items = one_number(num_items_in_batch)
        if num_items is not None and not torch.is_grad_enabled():
            num_items = evaluation_items(num_items, labels, targets)
        parts: LossParts = self.loss(logits, targets, histories, num_items)
        if torch.is_grad_enabled():
            self._record(parts, targets)
        return parts.total

    @cached_property
    def callback(self) -> Any:
        """A TrainerCallback that logs nll, plus and minus and advances the schedule."""
        return PartsCallback(self)

    def _align(self, outputs: Any, labels: Tensor) -> Aligned | tuple[Tensor, None]:
        shift = not is_encoder_decoder(outputs) if self.shift == "auto" else self.shift
        return align_causal(labels) if shift else (labels, None)

    def _warn_of_unchecked_inputs(self) -> None:
        if not self.checked and self.shift == "auto":
            self.checked = True
            warnings.warn(
                "give the Trainer callbacks=[compute_loss_func.callback]: without it nobody checks that batches have "
                "decoder_input_ids, without which some models decode their own source",
                stacklevel=4,
            )

    def _record(self, parts: LossParts, labels: Tensor) -> None:
        if self.step is not None:
            self.meter.add(parts, self.step, self.loss.never_predicted(labels))
        elif self.loss.schedule.kind != "constant" and not self.loss.progress:
            warnings.warn(
                "the schedule does not move: give the Trainer callbacks=[compute_loss_func.callback]", stacklevel=3
            )


class PartsCallback(TrainerCallback):
    """Adds nll, plus and minus to each line of the training log.

    They are in `state.log_history` and in what later callbacks get. The Trainer calls its own reporters (TensorBoard
    and others) before, so those get them from `SmoothedLossMixin` only.
    """

    def __init__(self, hook: TrainerLoss) -> None:
        self.hook = hook
        self._check: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Check arguments and batches that would give a wrong loss, and reset the sums."""
        check_arguments(args)
        self.hook.meter.clear()
        self.hook.step = state.global_step
        self._check_batches(model)

    def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Check batches from now on, those of `evaluate` too."""
        self._check_batches(model)

    def _check_batches(self, model: Any) -> None:
        check_model(model)
        self.hook.checked = True
        if self._check is None and getattr(getattr(model, "config", None), "is_encoder_decoder", False):
            self._check = model.register_forward_pre_hook(require_decoder_inputs, with_kwargs=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the loss's progress: the share of the training that is done."""
        self.hook.step = state.global_step
        self.hook.loss.progress = state.global_step / max(state.max_steps, 1)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Add the parts to a line of the training log; lines of evaluation have no `loss`."""
        if logs is None or "loss" not in logs:
            return
        # with average_tokens_across_devices each process holds its share of one sum
        factor = args.world_size if args.average_tokens_across_devices else 1
        parts = self.hook.meter.read(args.world_size, factor)
        logs.update(parts)
        state.log_history[-1].update(parts)


class PartsMeter:
    """Sums nll, plus and minus over micro-batches; reads their mean per optimizer step, as the Trainer's loss is.

    Labels that the table never predicts are counted as well; their number is read only if there are any.

    >>> one, labels = torch.tensor(1.0), torch.tensor([True, False])
    >>> meter = PartsMeter()
    >>> for step in (0, 0, 1, 1):                                # two steps of two micro-batches
    ...     meter.add(LossParts(2 * one, one, one, 0 * one), step, labels)
    >>> meter.read()
    {'nll': 2.0, 'plus': 2.0, 'minus': 0.0, 'never_predicted': 4}
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset the sums."""
        self._sums: Tensor | None = None
        self._steps: set[int] = set()

    def add(self, parts: LossParts, step: int, never_predicted: Tensor) -> None:
        """Add one micro-batch of this optimizer step; does not wait for the device."""
        sums = torch.stack([*parts[1:], never_predicted.sum()]).detach().float()
        self._sums = sums if self._sums is None else self._sums + sums
        self._steps.add(step)

    def read(self, processes: int = 1, factor: float = 1.0) -> dict[str, float]:
        """The means since the last reading, times `factor`; with several processes all must call it together."""
        if self._sums is None:
            return {}
        sums = self._sums
        if processes > 1:
            torch.distributed.all_reduce(sums)
        *parts, never_predicted = sums.tolist()
        scale = factor / processes / len(self._steps)
        self.clear()
        found: dict[str, float] = dict(zip(("nll", "plus", "minus"), (scale * part for part in parts), strict=True))
        return {**found, "never_predicted": int(never_predicted)} if never_predicted else found
