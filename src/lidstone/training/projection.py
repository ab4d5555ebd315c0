"""Hidden states instead of logits: what `LinearSmoothedCrossEntropy` needs from a Hugging Face model.

The model runs as it is, so that wrappers for several processes see an ordinary forward pass, but its output matrix gets
one position per row only. At the first batch of training that one position also proves that logits are nothing but
`hidden @ weight.T + bias` here: the output layer gives large known numbers, and they must come out as they are.
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
        hidden, projected, outputs = _run(head, model, inputs, probe=model.training and not self.proven)
        if len(hidden) != 1:
            raise _unfit(self.core, f"it calls its output layer {len(hidden)} times")
        extra = getattr(self.core, "final_logits_bias", None)  # what Marian and BART add to the logits
        self._prove(projected[0], extra, outputs)
        self.proven = self.proven or model.training
        return hidden[0], head.weight, _bias(head, extra), outputs

    @torch.no_grad()
    def _prove(self, projected: Tensor, extra: Tensor | None, outputs: Any) -> None:
        """Refuse a model that scales or caps what its output layer gives."""
        if self.proven:
            return
        expected = projected if extra is None else projected + extra
        tolerance = 1e-5 if expected.dtype == torch.float32 else 1e-2
        found, expected = outputs["logits"][:, :1].float(), expected[:, :1].float()
        if not torch.allclose(found, expected, rtol=tolerance, atol=tolerance):
            raise _unfit(self.core, "it changes its logits after the output layer")


def _run(
    head: torch.nn.Linear, model: Any, inputs: Mapping[str, Any], *, probe: bool
) -> tuple[list[Tensor], list[Tensor], Any]:
    """Call the model; what its output layer is given, what it gives (if `probe`, large numbers), and the outputs."""
    given: list[Tensor] = []
    taken: list[Tensor] = []

    def before(module: Any, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        given.append(arguments[0])
        return (arguments[0][:, :1], *arguments[1:]) if model.training else None

    def after(module: Any, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if probe:
            output = output * 0 + torch.linspace(-1e4, 1e4, output.shape[-1], dtype=output.dtype, device=output.device)
        taken.append(output)
        return output

    handles = head.register_forward_pre_hook(before), head.register_forward_hook(after)
    try:
        return given, taken, model(**inputs)
    finally:
        for handle in handles:
            handle.remove()


def _bias(head: torch.nn.Linear, extra: Tensor | None) -> Tensor | None:
    """The output layer's own bias and what is added to it, if anything."""
    if extra is None:
        return head.bias
    return extra.view(-1) if head.bias is None else head.bias + extra.view(-1)


def _unfit(core: Any, reason: str) -> InputError:
    return InputError(
        f"LinearSmoothedCrossEntropy does not fit {type(core).__name__}: {reason}",
        hint="use SmoothedCrossEntropy, which takes any model's logits",
    )
