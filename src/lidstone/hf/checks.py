"""Functions that hook and mixin share: reading outputs, moving the loss, errors for what would give wrong numbers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lidstone.errors import InputError, RunError
from lidstone.hf.alignment import IGNORED
from lidstone.loss.loss import SmoothedLoss


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
        raise InputError(
            f"one process uses {arguments.n_gpu} devices (nn.DataParallel), where losses are not summed correctly",
            hint="start one process per device: torchrun --nproc_per_node ..., or make one device visible only",
        )


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


def one_number(num_items: Any) -> Any:
    """The number of tokens of the batch; several numbers, for several devices of one process, are an error."""
    if isinstance(num_items, Tensor) and num_items.numel() > 1:
        raise InputError(
            "one process uses several devices (nn.DataParallel), where losses are not summed correctly",
            hint="start one process per device: torchrun --nproc_per_node ..., or make one device visible only",
        )
    return num_items


def logits_of(outputs: Any) -> Tensor:
    """The logits of a model's outputs."""
    logits = outputs.get("logits") if isinstance(outputs, dict) else outputs[0]
    if not isinstance(logits, Tensor):
        raise InputError(
            "the model returned no logits, so no other loss can be computed from it",
            hint="switch off fused losses (liger's fused_linear_cross_entropy), or use LinearSmoothedCrossEntropy",
        )
    return logits


_GIVE_THE_MODEL = (
    "give the collator the model: DataCollatorForSeq2Seq(tokenizer, model=model), or use SmoothedLossMixin"
)


def check_model(model: Any) -> None:
    """Raise an error for a masked language model, whose labels must not be shifted."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL,
    )
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED,
    )

    name, config = type(model).__name__, getattr(model, "config", None)
    if name in MASKED.values() and name not in CAUSAL.values() and not getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"{name} is a masked language model, which predicts no next word",
            hint="the smoothed losses are for causal language models and encoder-decoders",
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


def move_to(loss: SmoothedLoss, like: Tensor) -> None:
    """Move table and class weights to the device of the logits, once."""
    tensors = (tensor for part in (loss.targets, loss.weighted) if part is not None for tensor in [part.base])
    if any(tensor.device != like.device for tensor in tensors):
        loss.to(like.device)
