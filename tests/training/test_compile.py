"""torch.compile and torch.export: the loss is part of the graph, gives what eager code gives, and is compiled once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import VOCAB, Pad, examples, judge, make_loss, make_model, one_step, same
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.library import opcheck

from lidstone.loss import operators
from lidstone.loss.kernels.protocol import PlannedBatch, using
from lidstone.loss.schedule import Schedule

IDS = torch.tensor([[2, 5, 6, 9, 12], [2, 4, 13, 8, 2], [5, 5, 7, 2, 9]])
LABELS = torch.tensor([[5, 6, -100, 12, 2], [4, 13, 8, 2, 5], [5, 7, 2, 9, 4]])
KINDS = [("token", False), ("ngram", False), ("token", True), ("ngram", True), ("plain", True)]


class Model(nn.Module):
    """A language model that computes its own loss."""

    def __init__(self, kind: str, linear: bool, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.middle, self.head = nn.Embedding(50, 6), nn.Linear(6, 6), nn.Linear(6, 50)
        self.loss, self.linear = make_loss(kind, linear=linear), linear

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        hidden = torch.tanh(self.middle(self.embedding(ids)))
        if self.linear:
            return self.loss(hidden, self.head.weight, labels, ids, bias=self.head.bias).total
        return self.loss(self.head(hidden), labels, ids).total


def step(model: Model, call: Any, width: int = 5) -> list[Tensor]:
    """Value and gradients."""
    model.zero_grad()
    value = call(IDS[:, :width].contiguous(), LABELS[:, :width].contiguous())
    value.backward()
    return [value.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("kind", "linear"), KINDS)
def test_a_compiled_step_is_the_eager_one_in_one_graph(kind: str, linear: bool, backend: str) -> None:
    torch._dynamo.reset()
    model = Model(kind, linear)
    expected, counter = step(model, model), CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    torch.testing.assert_close(step(model, compiled), expected, rtol=1e-6, atol=1e-7)
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch's own use
@pytest.mark.parametrize("linear", [False, True])
def test_inductor(linear: bool) -> None:
    torch._dynamo.reset()
    model = Model("token", linear)
    expected = step(model, model)
    torch.testing.assert_close(step(model, torch.compile(model, fullgraph=True)), expected, rtol=1e-5, atol=1e-6)


def test_nothing_is_compiled_again_when_shapes_repeat_or_the_schedule_moves() -> None:
    torch._dynamo.reset()
    model = Model("token", linear=False)
    model.loss.schedule = Schedule("linear", start=1.0, end=0.0)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    values = []
    for done, width in ((0.0, 5), (0.2, 5), (0.4, 4), (0.6, 5), (0.8, 4), (1.0, 3)):
        model.loss.progress = done
        values.append(step(model, compiled, width)[0])
        torch.testing.assert_close(values[-1], step(model, model, width)[0])
    assert counter.frame_count == 2  # the first width, then any
    assert values[0] != values[1]


@pytest.mark.parametrize("linear", [False, True])
def test_tensor_code_compiles_too(linear: bool) -> None:
    """What runs on devices without kernels: its list of n-grams has a size that only the data tell."""
    torch._dynamo.reset()
    model = Model("ngram", linear)
    expected = step(model, model)
    with using("tensors"), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):  # torch 2.9 has it off
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(step(model, compiled), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernels", ["cpu", "tensors"])
@pytest.mark.parametrize("kind", ["token", "ngram"])
def test_opcheck(kind: str, kernels: str) -> None:
    """torch's own check: schema, fake kernels, registration of the gradient, tracing with dynamic shapes."""
    targets = make_loss(kind).targets
    with using(kernels):
        opcheck(operators.gold, (LABELS, -100, 50))
        gold = operators.gold(LABELS, -100, 50)
        batch = PlannedBatch(gold.reshape(-1), torch.rand(15), table=targets.table, facts=targets.facts)
        opcheck(operators.plan, (IDS, *batch.packed()))
        planned = operators.planned(IDS, batch)
        batch = operators.with_rows(planned)
        assert (batch.rows is not None) == (kernels == "tensors")
        if kernels == "tensors":
            opcheck(operators.rows, planned.packed())
        logits, total = torch.randn(3, 5, 50, requires_grad=True), torch.rand(15)
        opcheck(operators.losses, (logits, *batch.packed(), False))
        saved = operators.losses(logits, *batch.packed(), False)[2].detach()
        for operator in (operators.gradient, operators.gradient_):
            opcheck(operator, (logits.detach().clone(), saved, total, *batch.packed()))
        leaves = [torch.randn(shape, requires_grad=True) for shape in ((15, 3), (50, 3), (50,))]
        rest = (*planned.packed(), torch.float32)
        opcheck(operators.linear_losses, (*leaves, *rest, [True, True, True]))
        opcheck(operators.linear_losses, (leaves[0], leaves[1].detach(), None, *rest, [True, False, False]))


@pytest.mark.parametrize("linear", [False, True])
def test_a_model_that_holds_the_loss_can_be_exported(linear: bool) -> None:
    model = Model("token", linear)
    exported = torch.export.export(model, (IDS, LABELS))
    torch.testing.assert_close(exported.module()(IDS, LABELS), model(IDS, LABELS))


@pytest.mark.slow
@pytest.mark.parametrize(("way", "linear"), [("hook", False), ("mixin", False), ("mixin", True)])
@pytest.mark.filterwarnings("ignore:.*")  # torch's own, of the compiler
def test_the_trainer_with_torch_compile(way: str, linear: bool, tmp_path: Path) -> None:
    torch._dynamo.reset()
    loss = make_loss("token", linear=linear)
    log, gradient = one_step("opt", way, loss, tmp_path, torch_compile=True, torch_compile_backend="aot_eager")
    value, expected = judge("opt", "token")
    assert log["loss"] == pytest.approx(value, rel=1e-4)
    assert same({name.removeprefix("_orig_mod."): found for name, found in gradient.items()}, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*")
def test_a_compiled_model_is_compiled_once_with_the_linear_loss() -> None:
    from lidstone.hf.projection import Projection

    torch._dynamo.reset()
    model, loss, batch = make_model("opt"), make_loss("token", linear=True), Pad()(examples("opt"))
    labels, counter = batch.pop("labels"), CompileCounterWithBackend("eager")
    compiled, projection = torch.compile(model, backend=counter), Projection(model)

    def compute(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        return loss(hidden[:, :-1], weight, labels[:, 1:], batch["input_ids"][:, :-1], bias=bias)

    values, frames = [], []
    for _ in range(3):
        values.append(projection(compiled, batch, compute)[0].total)
        frames.append(counter.frame_count)
    assert frames[0] == frames[2]
    torch.testing.assert_close(values[0], values[2])
    assert VOCAB.size == 50
