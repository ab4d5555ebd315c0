"""`SmoothedLossMixin`: a Trainer whose loss sees the inputs, and so the true histories.

    class MyTrainer(SmoothedLossMixin, Trainer): ...            or Seq2SeqTrainer, or TRL's SFTTrainer
    MyTrainer(model, args, ..., smoothed_loss=loss)

Tokens of a prompt that is masked with -100 are history too. Padding on either side is neither predicted nor history.
Documents packed with `position_ids` do not see each other. A model's own auxiliary losses are not added.

A loss with a teacher (`SparseTargetCrossEntropy`) reads it from the columns of the batch that `TeacherCollator` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lidstone.errors import InputError, RunError
from lidstone.hf.alignment import Aligned, align_causal, align_decoder
from lidstone.hf.hook import PartsMeter, check_arguments, check_loss, check_model, logits_of, move_to, without_labels
from lidstone.hf.projection import Projection
from lidstone.hf.stored_teacher import COLUMNS, IDS
from lidstone.hf.teacher_columns import teacher_columns
from lidstone.loss.losses import LinearSmoothedCrossEntropy, SmoothedLoss
from lidstone.loss.teacher import LinearSparseTargetCrossEntropy

if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = object


class SmoothedLossMixin(Trainer):
    """Put this before a Trainer class and pass `smoothed_loss=`.

    The loss is a `SmoothedCrossEntropy`, without a table for the plain baseline, or a `LinearSmoothedCrossEntropy`,
    which does not store all logits.

    >>> class SmoothedTrainer(SmoothedLossMixin, Trainer): ...
    >>> SmoothedTrainer(model, arguments, train_dataset=train, smoothed_loss=loss).train()  # doctest: +SKIP
    """

    loss_is_scaled_for_ga = True
    _signature_columns: Any

    def __init__(self, *args: Any, smoothed_loss: SmoothedLoss, **kwargs: Any) -> None:
        if kwargs.get("compute_loss_func") is not None:
            raise InputError("compute_loss_func and smoothed_loss exclude each other", hint="pass smoothed_loss only")
        check_loss(smoothed_loss)
        super().__init__(*args, **kwargs)
        check_arguments(self.args)
        check_model(self.model)
        self.smoothed_loss = smoothed_loss
        self.meter = PartsMeter()
        self.projection = Projection(self.model)
        self.compute_loss_func = self.compute_loss  # not called: it makes the Trainer count the tokens of a batch

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, with sums of the parts that begin at zero."""
        self.meter.clear()
        return super().train(*args, **kwargs)

    def compute_loss(
        self, model: Any, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The smoothed loss of one micro-batch, scaled so that accumulated and averaged gradients are right."""
        if inputs.get("labels") is None and inputs.get("shift_labels") is None:
            raise without_labels()
        check_synchronised(self, model)
        inputs = self._with_decoder_inputs(inputs)
        self.smoothed_loss.progress = self.state.global_step / max(self.state.max_steps, 1)
        before = self.smoothed_loss.training
        self.smoothed_loss.train(model.training)
        try:
            parts, outputs = self._parts(model, inputs, num_items_in_batch)
        finally:
            self.smoothed_loss.train(before)  # the user's own calls, after evaluate(), are in the user's mode
        parts = parts._make(part * self._share(num_items_in_batch) for part in parts)
        if model.training and torch.is_grad_enabled():
            self.meter.add(parts, self.state.global_step, self._never_predicted)
        return (parts.total, outputs) if return_outputs else parts.total

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add nll and the other parts of the loss to the lines of the training log."""
        if "loss" in logs:
            logs.update(self.meter.read(self.args.world_size))
        super().log(logs, *args, **kwargs)

    def _parts(self, model: Any, inputs: Mapping[str, Any], num_items: Any) -> tuple[Any, Any]:
        labels, histories = self._align(inputs)
        move_to(self.smoothed_loss, labels)
        self._never_predicted = self.smoothed_loss.never_predicted(labels)
        own = {"labels", "shift_labels", "folds", *COLUMNS}
        rest = {name: value for name, value in inputs.items() if name not in own}
        given = {"labels": labels, "histories": histories, "num_items": num_items, **self._columns(inputs)}
        if isinstance(self.smoothed_loss, (LinearSmoothedCrossEntropy, LinearSparseTargetCrossEntropy)):
            return self.projection(
                model, rest, lambda hidden, weight, bias: self.smoothed_loss(hidden, weight, bias=bias, **given)
            )
        outputs = model(**rest)
        logits = logits_of(outputs)
        move_to(self.smoothed_loss, logits)
        return self.smoothed_loss(logits, **given), outputs

    def _columns(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What only some losses take from a batch: folds, and the columns of a teacher."""
        shift = not self._has_encoder and inputs.get("shift_labels") is None
        ids, logprobs = teacher_columns(inputs, shift) if inputs.get(IDS) is not None else (None, None)
        found = {"folds": inputs.get("folds"), "ids": ids, "logprobs": logprobs}
        return {name: value for name, value in found.items() if value is not None}

    def _set_signature_columns_if_needed(self) -> None:
        """Keep the columns of a teacher when the Trainer removes those that the model does not read."""
        super()._set_signature_columns_if_needed()
        self._signature_columns = list(dict.fromkeys([*self._signature_columns, *COLUMNS]))

    def _align(self, inputs: Mapping[str, Any]) -> Aligned:
        if self._has_encoder:
            return align_decoder(inputs["labels"], inputs["decoder_input_ids"], self._bos)
        shifted = inputs.get("shift_labels")
        labels = inputs["labels"] if shifted is None else shifted
        return align_causal(
            labels,
            inputs.get("input_ids"),
            inputs.get("attention_mask"),
            inputs.get("position_ids"),
            shifted=shifted is not None,
        )

    def _with_decoder_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Make the decoder's inputs from the labels, because the model does not get the labels."""
        if not self._has_encoder or inputs.get("decoder_input_ids") is not None:
            return dict(inputs)
        if not hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
            raise InputError(
                f"{type(self.model).__name__} cannot make decoder_input_ids from labels",
                hint="put decoder_input_ids into the batch",
            )
        made = self.model.prepare_decoder_input_ids_from_labels(labels=inputs["labels"])
        return {**inputs, "decoder_input_ids": made}

    @property
    def _has_encoder(self) -> bool:
        return bool(getattr(getattr(self.model, "config", None), "is_encoder_decoder", False))

    @property
    def _bos(self) -> int:
        targets = self.smoothed_loss.targets
        return 0 if targets is None else targets.vocab.bos

    def _share(self, num_items: Any) -> float:
        """The factor that makes gradients right which are averaged over processes or summed over micro-batches."""
        if num_items is None:  # then the loss of a micro-batch is its own mean
            return 1 / getattr(self, "current_gradient_accumulation_steps", 1) if self.model.training else 1
        if self.args.average_tokens_across_devices:  # num_items counts all processes, whose gradients are averaged
            return float(self.accelerator.num_processes // self.get_tp_size())
        return 1

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Tensor | int | None:
        """Count the labels that the loss sums over: not the first of a row, nor those predicted from padding."""
        if not self._has_encoder and all(
            batch.get("labels") is not None or batch.get("shift_labels") is not None for batch in batch_samples
        ):
            targets = [self._align(batch).labels for batch in batch_samples]
            batch_samples = [{"labels": labels, "shift_labels": labels} for labels in targets]
        found: Tensor | int | None = super()._get_num_items_in_batch(batch_samples, device)
        return found


def check_synchronised(trainer: Any, model: Any) -> None:
    """Raise an error if several processes would not share gradients.

    Accelerate does not wrap a model for training that it has prepared for evaluation before.
    """
    several = str(trainer.accelerator.distributed_type.value).startswith("MULTI_") and trainer.get_tp_size() == 1
    if several and trainer.args.world_size > 1 and model.training and model is trainer.model:
        raise RunError(
            f"{trainer.args.world_size} processes would train without sharing gradients: "
            "evaluate() or predict() was called before train()",
            hint="call train() first, or evaluate with another Trainer",
        )
