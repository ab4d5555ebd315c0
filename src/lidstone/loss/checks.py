"""Checks of what a user gives to a loss: settings when it is made, tensors when it is called."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable

Empirical = Literal["token", "ngram"]
Form = Literal["exact", "published"]
ClassWeights = Tensor | Sequence[float]
TEACHER_TOLERANCE = 0.01  # by so much do probabilities from 16-bit logarithms sum to more than one


def strengths_of(
    table: BackoffTable | None, gamma: float | None, plus: float | None, minus: float | None, form: Form
) -> tuple[float, float]:
    """gamma_plus and gamma_minus, checked; zero without a table."""
    if gamma is not None and (plus is not None or minus is not None):
        raise InputError("gamma sets both strengths", hint="give gamma, or gamma_plus and gamma_minus")
    given = [gamma if strength is None else strength for strength in (plus, minus)]
    if table is not None and None in given:
        raise InputError("the strength is missing", hint="give gamma=0.25, or gamma_plus= and gamma_minus=")
    strengths = [float(strength or 0.0) for strength in given]
    for name, value in zip(("gamma_plus", "gamma_minus"), strengths, strict=True):
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{name} must not be negative: {value}", hint="useful strengths are from 0.005 to 0.5")
    if form == "exact" and strengths[1] > 1:
        raise InputError(
            f"gamma_minus = {strengths[1]} > 1 in the exact form makes the target of the label negative",
            hint='use gamma_minus <= 1, or form="published"',
        )
    if table is None and any(strengths):
        raise InputError(
            f"strengths {strengths} without a table have nothing to act on",
            hint="give the table, or leave gamma out for plain cross-entropy",
        )
    if table is not None and not any(strengths):
        warnings.warn("both strengths are 0: this is plain cross-entropy", stacklevel=4)
    return strengths[0], strengths[1]


def check_choices(**choices: tuple[str, Any]) -> None:
    """Refuse a word that is not one of the choices: name=(value, Literal[...])."""
    for name, (value, allowed) in choices.items():
        if value not in get_args(allowed):
            raise InputError(f"{name}={value!r} is unknown", hint=f"choose from {', '.join(get_args(allowed))}")


def check_counts(table: BackoffTable | None, counts: Counts | None, empirical: Empirical, form: Form) -> None:
    """Refuse counts that do not belong to the table, and warn of a loss without lower bound."""
    if table is None:
        return
    if counts is not None:
        table.require_counts(counts)
    if empirical == "ngram":
        if counts is None:
            raise InputError('empirical="ngram" needs the counts of the training text', hint="pass counts=")
        check_identity(table, counts)
        if form == "exact":
            warnings.warn(
                'form="exact" with empirical="ngram" has no lower bound for a model that sees more than the n-gram '
                'history; prefer empirical="token"',
                stacklevel=4,
            )


def check_identity(table: BackoffTable, counts: Counts) -> None:
    """Refuse counts of another text than the table's; a table of ARPA, or of counts with thresholds, cannot tell."""
    fitted = table.signature.get("counts")
    if fitted is not None and not any(table.signature.get("thresholds") or ()) and fitted != counts.fingerprint:
        raise InputError(
            f"the table was fitted to other counts ({fitted}) than these ({counts.fingerprint})",
            hint='pass the counts that the table was fitted to, or empirical="token"',
        )


def checked_weights(weight: ClassWeights, size: int | None) -> NDArray[np.float64]:
    """Class weights as `F.cross_entropy(weight=)` has them, one for each of `size` ids.

    loss = - sum_w weight[w] target(w) log q(w),      the mean divides by the sum of weight[label]

    They act in training alone: in evaluation the loss is the plain negative log-likelihood.
    """
    values: NDArray[np.float64] = torch.as_tensor(weight, dtype=torch.float64).detach().cpu().numpy()
    if values.shape != (len(values) if size is None else size,):
        raise InputError(f"weight has shape {values.shape}, the table {size} ids", hint="give one weight per id")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise InputError("class weights must be finite and not negative", hint="0 leaves a word out of the loss")
    return values


def check_kinds(table: Any, counts: Any) -> None:
    """Refuse arguments in each other's place."""
    if table is not None and not isinstance(table, BackoffTable):
        fit = "fit a smoother: table = ld.ModifiedKneserNey().fit(counts)"
        hint = (
            "read the file first: ld.load(path), or ld.read_arpa(path, vocab)"
            if isinstance(table, (str, os.PathLike))
            else fit
        )
        raise InputError(f"{type(table).__name__} was given where a table is expected", hint=hint)
    if isinstance(counts, (int, float)):
        raise InputError(f"{counts} was given where counts are expected", hint=f"name the strength: gamma={counts}")
    if counts is not None and not isinstance(counts, Counts):
        raise InputError(
            f"{type(counts).__name__} was given where counts are expected", hint="counts come from ld.count(...)"
        )


def check_call(given: Any, others: dict[str, Any], remedy: str) -> None:
    """Refuse a model's outputs instead of tensors, as when the Trainer calls the loss itself."""
    check_transforms()
    if not isinstance(given, Tensor):
        raise InputError(
            f"the loss was given {type(given).__name__}, not logits",
            hint=f"pass outputs.logits; with a Trainer: {remedy}",
        )
    check_numbers(given)
    if others:
        raise InputError(f"unknown argument {next(iter(others))}", hint=f"num_items divides the sum; or use {remedy}")


def check_numbers(*tensors: Tensor) -> None:
    """Refuse tensors that have a shape alone."""
    if any(tensor.device.type == "meta" for tensor in tensors):
        hint = "move the model and the batch to a device"
        raise InputError("a tensor is on the meta device, which holds no numbers", hint=hint)


def check_transforms() -> None:
    """Refuse torch.func and forward mode: grad and vmap would fail obscurely, and jvp would give zero."""
    if torch.compiler.is_compiling():
        return
    if torch.autograd.forward_ad._current_level >= 0:
        raise InputError("the loss has no forward-mode derivative", hint="use backward() or torch.autograd.grad")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise InputError(
            "the loss does not work under torch.func (grad, vmap, jvp)",
            hint='use torch.autograd.grad or backward(); reduction="none" gives one loss per position',
        )


def check_histories(labels: Tensor, histories: Tensor | None, order: int) -> None:
    """Refuse histories of another shape or type, and labels that do not show where rows begin."""
    check_numbers(*([] if histories is None else [histories]))
    if histories is not None and (histories.is_floating_point() or histories.dtype == torch.bool):
        raise InputError(f"histories are {histories.dtype}, not ids", hint="give the token before each label")
    if histories is not None and histories.shape != labels.shape:
        raise InputError(
            f"histories of shape {tuple(histories.shape)} do not fit labels of shape {tuple(labels.shape)}",
            hint="give for each label the token before it (the model's input at that position)",
        )
    if histories is None and labels.dim() == 1 and len(labels) > 1 and order > 1:
        raise InputError(
            f"labels of shape {tuple(labels.shape)} do not say where a sequence begins, so histories would cross it",
            hint="pass logits (batch, time, V) and labels (batch, time), or `histories`, the token before each label",
        )


def check_shapes(logits: Tensor, labels: Tensor) -> None:
    """Refuse logits that do not score the labels."""
    if (
        labels.dim() > 1
        and (*logits.shape[:1], *logits.shape[2:]) == labels.shape
        and logits.shape[:-1] != labels.shape
    ):
        raise InputError(
            f"logits of shape {tuple(logits.shape)} are transposed: labels of shape {tuple(labels.shape)} need "
            "(batch, time, V)",
            hint="pass logits.transpose(1, 2): the vocabulary comes last, unlike in F.cross_entropy",
        )
    if logits.shape[:-1] != labels.shape:
        raise InputError(
            f"logits of shape {tuple(logits.shape)} do not fit labels of shape {tuple(labels.shape)}",
            hint="logits are (batch, time, V) and labels (batch, time), aligned: shift a causal model's first",
        )


def check_label_type(labels: Tensor) -> None:
    """Refuse labels that are not signed integers: others cannot hold ids and the mark of what is ignored."""
    check_numbers(labels)
    if labels.dtype not in (torch.int64, torch.int32, torch.int16):
        raise InputError(f"labels are {labels.dtype}, not integers with a sign", hint="pass labels.long()")


def at_least_one_item(num_items: Tensor | int | float, device: torch.device) -> Tensor:
    """What divides the sum of a batch: the number of its items, or 1 where there are none.

    A number on another device is not checked: that would wait for the device.
    """
    here = not isinstance(num_items, Tensor) or num_items.device.type == "cpu"
    if not torch.compiler.is_compiling() and here and not 0 <= float(num_items) < math.inf:
        raise InputError(f"num_items is {num_items}", hint="give the number of labels that are predicted in the batch")
    number = torch.as_tensor(num_items, device=device)
    return torch.where(number > 0, number, torch.ones_like(number))


def check_ids(ids: Tensor, what: str, highest: int, lowest: int | None = None) -> None:
    """Refuse ids outside the vocabulary."""
    if not ids.numel():
        return
    least, most = ids.aminmax()
    if most > highest or (lowest is not None and least < lowest):
        wrong = int(most if most > highest else least)
        raise InputError(f"{what} hold the id {wrong}, which is outside 0 to {highest}", hint="check the tokenizer")


def check_teacher(ids: Tensor, logprobs: Tensor, size: int) -> None:
    """Refuse words and log-probabilities (..., k) that no distribution over `size` words has; -1 is no word."""
    check_ids(ids, "the teacher's ids", size - 1, lowest=-1)
    ascending = ids.sort(-1).values
    twice = (ascending[..., 1:] == ascending[..., :-1]) & (ascending[..., 1:] >= 0)
    if bool(twice.any()):
        word = int(ascending[..., 1:][twice][0])
        raise InputError(f"the teacher has the id {word} twice at a position", hint="give each word once, -1 for none")
    logs = torch.where(ids >= 0, logprobs.double(), -torch.inf)
    if bool(logs.isnan().any()):
        raise InputError("the teacher's log-probabilities hold NaN", hint="check the model that wrote them")
    most = float(logs.exp().sum(-1).max()) if logs.numel() else 0.0
    if most > 1 + TEACHER_TOLERANCE:
        raise InputError(
            f"the teacher's probabilities sum to {most:.4g} at a position",
            hint=f"give natural logarithms of probabilities; at most {1 + TEACHER_TOLERANCE} is taken for rounding",
        )


def report_overflow(losses: Tensor, dtype: torch.dtype) -> None:
    """Warn of losses that are not finite; they are passed on as they are."""
    if not bool(torch.isfinite(losses).all()):
        where = f" at {int((~torch.isfinite(losses)).sum())} of {losses.numel()} positions" if losses.dim() else ""
        warnings.warn(
            f"the loss is not finite{where}: the logits ({dtype}) hold NaN or infinities; "
            "lower the learning rate, clip gradients, or use bfloat16 instead of float16",
            stacklevel=3,
        )
