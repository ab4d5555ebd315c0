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
from lidstone.hf.alignment import Aligned, align_causal, evaluation_items
from lidstone.loss.losses import LinearSmoothedCrossEntropy, LossParts, SmoothedCrossEntropy, SmoothedLoss
from lidstone.loss.targets import ConstantTensors
from lidstone.loss.teacher import SparseTargetLoss
from lidstone.text.datasets import IGNORED

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
        if isinstance(loss, SparseTargetLoss):
            raise InputError(
                "a loss with a teacher needs the columns of the batch", hint="use SmoothedLossMixin with it"
            )
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
            raise without_labels()
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
    """Sums the parts of a loss over micro-batches; reads their mean per optimizer step, as the Trainer's loss is.

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

    def add(self, parts: Any, step: int, never_predicted: Tensor) -> None:
        """Add one micro-batch of this optimizer step; does not wait for the device."""
        self._names = parts._fields[1:]
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
        found: dict[str, float] = dict(zip(self._names, (scale * part for part in parts), strict=True))
        return {**found, "never_predicted": int(never_predicted)} if never_predicted else found


def check_loss(loss: SmoothedLoss) -> None:
    """Raise an error for settings of the loss that do not agree with how the Trainer counts tokens."""
    if loss.ignore_index != IGNORED:
        raise InputError(
            f"the Trainer ignores the label {IGNORED}, the loss {loss.ignore_index}",
            hint=f"leave ignore_index at {IGNORED} and mask labels with it",
        )
    if loss.reduction != "mean":
        raise InputError(f"reduction={loss.reduction!r} gives no loss to train on", hint='use reduction="mean"')


def check_arguments(arguments: Any) -> None:
    """Raise an error for TrainingArguments with which the loss would silently be wrong."""
    if arguments.label_smoothing_factor:
        raise InputError(
            f"label_smoothing_factor={arguments.label_smoothing_factor} and a smoothed loss exclude each other",
            hint="set label_smoothing_factor=0",
        )
    if arguments.n_gpu > 1:
        raise _data_parallel(arguments.n_gpu)


def check_model(model: Any) -> None:
    """Raise an error for a masked language model, whose labels must not be shifted."""
    from transformers.models.auto import modeling_auto

    causal, masked = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    name, config = type(model).__name__, getattr(model, "config", None)
    if name in masked.values() and name not in causal.values() and not getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"{name} is a masked language model, which predicts no next word",
            hint="the smoothed losses are for causal language models and encoder-decoders",
        )


def without_labels() -> InputError:
    """The error for a batch that nothing can be learnt from."""
    return InputError("the batch has no labels", hint="use a collator that makes labels, -100 where unpredicted")


def logits_of(outputs: Any) -> Tensor:
    """The logits of a model's outputs."""
    logits = outputs.get("logits") if isinstance(outputs, dict) else outputs[0]
    if not isinstance(logits, Tensor):
        raise InputError(
            "the model returned no logits, so no other loss can be computed from it",
            hint="switch off fused losses (liger's fused_linear_cross_entropy), or use LinearSmoothedCrossEntropy",
        )
    return logits


def move_to(loss: SmoothedLoss, like: Tensor) -> None:
    """Move tables, tails and class weights to the device of the logits, once."""
    parts = (part for part in loss.modules() if isinstance(part, ConstantTensors))
    if any(tensor.device != like.device for part in parts for tensor in part.constants().values()):
        loss.to(like.device)


_GIVE_THE_MODEL = (
    "give the collator the model: DataCollatorForSeq2Seq(tokenizer, model=model), or use SmoothedLossMixin"
)


def require_decoder_inputs(model: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Raise an error for a batch without the decoder's inputs: the model would fail, or decode its own source."""
    made_from = ("decoder_input_ids", "decoder_inputs_embeds", "labels")  # the Trainer keeps the labels for the loss
    if all(kwargs.get(name) is None for name in made_from):
        raise InputError(
            f"{type(model).__name__} gets no labels beside a compute_loss_func, and the batch has no decoder_input_ids",
            hint=_GIVE_THE_MODEL,
        )


def check_decoder_length(logits: Tensor, labels: Tensor) -> None:
    """Raise an error if the outputs of an encoder-decoder have other positions than the labels."""
    if logits.shape[:-1] != labels.shape:
        raise InputError(
            f"the decoder gave logits of shape {tuple(logits.shape)} for labels of shape {tuple(labels.shape)}: "
            "it did not read the labels",
            hint=_GIVE_THE_MODEL,
        )


def is_encoder_decoder(outputs: Any) -> bool:
    """Whether these outputs come from a model with an encoder."""
    if not isinstance(outputs, dict):
        raise InputError("outputs without names do not tell which model made them", hint="give shift=True or False")
    return outputs.get("encoder_last_hidden_state") is not None


def one_number(num_items: Any) -> Any:
    """The number of tokens of the batch; several numbers, for several devices of one process, are an error."""
    if isinstance(num_items, Tensor) and num_items.numel() > 1:
        raise _data_parallel("several")
    return num_items


def _data_parallel(number: Any) -> InputError:
    return InputError(
        f"one process uses {number} devices (nn.DataParallel), where losses are not summed correctly",
        hint="start one process per device: torchrun --nproc_per_node ..., or make one device visible only",
    )
