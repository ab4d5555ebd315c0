"""Hidden states instead of logits: what `LinearSmoothedCrossEntropy` needs from a Hugging Face model.

The model runs as it is, so that wrappers for several processes see an ordinary forward pass, but its output matrix gets
one position per row only. The loss is computed when the model calls its output layer: at that time wrappers that shard
parameters (FSDP, ZeRO) have gathered the matrix. At the first batch of training the one position is also used to check
that logits are exactly `hidden @ weight.T + bias`: the output layer returns large known numbers, and the model's logits
must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lidstone.errors import InputError
from lidstone.loss.losses import LossParts

Compute = Callable[[Tensor, Tensor, Tensor | None], LossParts]


class Projection:
    """The output layer of a model, taken out of its forward pass."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.proven = False
        self._call: _HeadCall | None = None
        self._around: Callable[..., Tensor] | None = None

    def __call__(self, model: Any, inputs: Mapping[str, Any], compute: Compute) -> tuple[LossParts, Any]:
        """The result of `compute` for hidden states, output matrix and bias, and the outputs of `model`.

        `model` is the core or its wrapper. In training the outputs have only the logits of the first position of each
        row.
        """
        head = self.core.get_output_embeddings()
        if not isinstance(head, torch.nn.Linear):
            raise _unsupported(self.core, f"its output layer is {type(head).__name__}, not Linear")
        extra = getattr(self.core, "final_logits_bias", None)  # what Marian and BART add to the logits
        call = _HeadCall(compute, extra, training=model.training, probe=model.training and not self.proven)
        outputs = self._run(call, head, model, inputs)
        if call.times != 1 or call.parts is None or call.projected is None:
            raise _unsupported(self.core, f"it calls its output layer {call.times} times")
        self._check_logits(call.projected, extra, outputs)
        self.proven = self.proven or model.training
        total = _Tied.apply(call.parts.total, outputs["logits"])  # type: ignore[no-untyped-call]
        return call.parts._replace(total=total), outputs

    def _run(self, call: _HeadCall, head: torch.nn.Linear, model: Any, inputs: Mapping[str, Any]) -> Any:
        """Call the model with `call` around its output layer, at which torch.compile breaks the graph."""
        before = vars(head).get("forward")
        if self._around is None:
            self._around = self._surround(head, head.forward)
        self._call, vars(head)["forward"] = call, self._around
        try:
            return model(**inputs)
        finally:
            self._call = None
            vars(head).pop("forward") if before is None else vars(head).update(forward=before)

    def _surround(self, head: torch.nn.Linear, forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The forward pass of the output layer with the present call around it; one function for all calls."""

        def around(*arguments: Tensor) -> Tensor:
            if self._call is None:
                return forward(*arguments)
            given = self._call.before(arguments)
            return self._call.after(head, forward(*given))

        undisturbed: Callable[..., Tensor] = torch.compiler.disable(around)  # type: ignore[no-untyped-call]
        return undisturbed

    @torch.no_grad()
    def _check_logits(self, projected: Tensor, extra: Tensor | None, outputs: Any) -> None:
        """Raise an error for a model that scales or caps the results of its output layer."""
        if self.proven:
            return
        expected = projected if extra is None else projected + extra
        tolerance = 1e-5 if expected.dtype == torch.float32 else 1e-2
        found, expected = outputs["logits"][:, :1].float(), expected[:, :1].float()
        if not torch.allclose(found, expected, rtol=tolerance, atol=tolerance):
            raise _unsupported(self.core, "it changes its logits after the output layer")


class _HeadCall:
    """One forward pass of a model, with the loss computed at its output layer."""

    def __init__(self, compute: Compute, extra: Tensor | None, *, training: bool, probe: bool) -> None:
        self.compute, self.extra, self.training, self.probe = compute, extra, training, probe
        self.times = 0
        self.hidden: Tensor | None = None
        self.projected: Tensor | None = None
        self.parts: LossParts | None = None

    def before(self, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Keep the hidden states; in training give the output layer one position per row."""
        self.times += 1
        self.hidden = arguments[0]
        return (arguments[0][:, :1], *arguments[1:]) if self.training else arguments

    def after(self, head: torch.nn.Linear, output: Tensor) -> Tensor:
        """Compute the loss; in a probe replace the output by known numbers."""
        if self.probe:
            output = output * 0 + torch.linspace(-1e4, 1e4, output.shape[-1], dtype=output.dtype, device=output.device)
        if self.hidden is not None:
            self.parts = self.compute(self.hidden, head.weight, _bias(head, self.extra))
        self.projected = output
        return output


class _Tied(torch.autograd.Function):
    """The total as it is, with a gradient of zero for the logits: FSDP starts its backward pass at the outputs."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, logits: Tensor) -> Tensor:
        ctx.like = logits.shape, logits.dtype, logits.device
        return total.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        shape, dtype, device = ctx.like
        return gradient, torch.zeros(shape, dtype=dtype, device=device)


def _bias(head: torch.nn.Linear, extra: Tensor | None) -> Tensor | None:
    """The output layer's bias plus `extra`, if any."""
    if extra is None:
        return head.bias
    return extra.view(-1) if head.bias is None else head.bias + extra.view(-1)


def _unsupported(core: Any, reason: str) -> InputError:
    return InputError(
        f"LinearSmoothedCrossEntropy does not fit {type(core).__name__}: {reason}",
        hint="use SmoothedCrossEntropy, which takes any model's logits",
    )
