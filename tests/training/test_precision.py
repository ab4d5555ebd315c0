"""Under torch.compile the loss gives the same; under autocast it computes in float32 and gives back what it got."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_training import EOS, SIZE, TEXT, VOCAB, Pad, examples, judge, make_loss, make_model, one_step, targets
from torch.nn import functional as F

import lidstone as ld
from lidstone.loss.reference import dense_loss
from lidstone.text.history import histories_of


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_torch_compile_runs_and_agrees() -> None:
    model, loss, batch = make_model("opt"), make_loss("token"), Pad()(examples("opt"))
    hook = ld.trainer_loss(loss)

    def value(input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return hook(model(input_ids=input_ids, attention_mask=attention_mask), labels)

    found = torch.compile(value, backend="aot_eager")(**batch)
    expected = value(**batch)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(loss, list(model.parameters())) for loss in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["plain", "token", "ngram"])
def test_autocast_is_no_worse_than_cross_entropy(kind: str) -> None:
    """Against the float64 truth of the float32 logits; the label's own distance is that of F.cross_entropy."""
    words = [word for sentence in TEXT for word in [*sentence, EOS]]
    labels = torch.tensor([words])
    hidden = torch.randn(1, len(words), 32, generator=torch.manual_seed(1))
    weight = torch.randn(SIZE, 32, generator=torch.manual_seed(2))
    before = [VOCAB.bos, *words[:-1]]
    true = dense_loss(F.linear(hidden, weight)[0], targets(kind, histories_of(before, VOCAB, 3), words)) / len(words)
    plain = dense_loss(F.linear(hidden, weight)[0], targets("plain", [], words)) / len(words)
    with torch.autocast("cpu", torch.bfloat16):
        logits = F.linear(hidden, weight).requires_grad_()
        parts = make_loss(kind)(logits, labels)
        other = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    parts.total.backward()
    assert logits.dtype == logits.grad.dtype == torch.bfloat16
    assert parts.total.dtype == torch.float32
    assert abs(parts.nll - plain) <= abs(other - plain) + 1e-6
    assert abs(parts.total - true) <= 1e-3 * true


@pytest.mark.parametrize("linear", [False, True])
def test_trainer_under_bf16_autocast_stays_close_to_float32(linear: bool, tmp_path: Path) -> None:
    log, gradient = one_step("opt", "mixin", make_loss("token", linear=linear), tmp_path, bf16=True)
    assert log["loss"] == pytest.approx(judge("opt", "token")[0], rel=2e-2)
    assert {part.dtype for part in gradient.values()} == {torch.float32}
