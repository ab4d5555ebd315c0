"""Hidden states instead of logits: what `LinearSmoothedCrossEntropy` needs from a Hugging Face model.

The model runs as it is, so that wrappers for several processes see an ordinary forward pass, but its output matrix gets
one position per row only. That one position also proves that logits are nothing but `hidden @ weight.T + bias` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lidstone.errors import InputError


class Projection:
    """The output layer of a model, taken out of its forward pass."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.proven = False

    def __call__(self, model: Any, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor | None, Any]:
        """Hidden states, output matrix and bias, and the outputs of `model`, which is the core or its wrapper.

        In training the outputs hold the logits of the first position of each row alone.
        """
        head = self.core.get_output_embeddings()
        if not isinstance(head, torch.nn.Linear):
            raise _unfit(self.core, f"its output layer is {type(head).__name__}, not Linear")
        hidden, outputs = _run(head, model, inputs)
        if len(hidden) != 1:
            raise _unfit(self.core, f"it calls its output layer {len(hidden)} times")
        bias = _bias(self.core, head)
        self._prove(hidden[0], head.weight, bias, outputs)
        return hidden[0], head.weight, bias, outputs

    @torch.no_grad()
    def _prove(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, outputs: Any) -> None:
        """Refuse, at the first batch, a model that scales or caps its logits after the output matrix."""
        if self.proven:
            return
        found, expected = outputs["logits"][:, :1], torch.nn.functional.linear(hidden[:, :1], weight, bias)
        tolerance = 1e-4 if found.dtype == torch.float32 else 5e-2
        if not torch.allclose(found.float(), expected.float(), rtol=tolerance, atol=tolerance):
            raise _unfit(self.core, "it changes its logits after the output layer")
        self.proven = True


def _run(head: torch.nn.Linear, model: Any, inputs: Mapping[str, Any]) -> tuple[list[Tensor], Any]:
    """Call the model; what its output layer is given, and the outputs."""
    seen: list[Tensor] = []

    def keep(module: Any, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        seen.append(arguments[0])
        return (arguments[0][:, :1], *arguments[1:]) if model.training else None

    handle = head.register_forward_pre_hook(keep)
    try:
        return seen, model(**inputs)
    finally:
        handle.remove()


def _bias(core: Any, head: torch.nn.Linear) -> Tensor | None:
    """The output layer's own bias, or the one that Marian and BART add to the logits."""
    extra = getattr(core, "final_logits_bias", None)
    if extra is None:
        return head.bias
    return extra.view(-1) if head.bias is None else head.bias + extra.view(-1)


def _unfit(core: Any, reason: str) -> InputError:
    return InputError(
        f"LinearSmoothedCrossEntropy does not fit {type(core).__name__}: {reason}",
        hint="use SmoothedCrossEntropy, which takes any model's logits",
    )
