"""However a batch is cut up, padded or packed: the same loss and the same gradient, and they are the dense judge's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_training import EOS, Pad, examples, judge, make_loss, make_model, one_step, same
from transformers import DataCollatorWithFlattening

SLOW = pytest.mark.slow
KINDS = ("opt", pytest.param("gpt2", marks=SLOW), "marian")
LOSSES = ("plain", "token", pytest.param("ngram", marks=SLOW))
WAYS = ("hook", "mixin")


@pytest.mark.parametrize("batch, accumulation", [(8, 1), (4, 2), (1, 8)])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_batch_and_accumulation_do_not_matter(
    kind: str, way: str, loss: str, batch: int, accumulation: int, tmp_path: Path
) -> None:
    log, gradient = one_step(
        kind, way, make_loss(loss), tmp_path,
        per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
    )  # fmt: skip
    expected, truth = judge(kind, loss)
    share = gpt2_share() if (kind, way) == ("gpt2", "hook") else 1.0
    assert log["loss"] == pytest.approx(share * expected, rel=1e-5)
    assert log["nll"] + log["plus"] + log["minus"] == pytest.approx(share * expected, rel=1e-5)
    assert same(gradient, {name: share * part for name, part in truth.items()})


def gpt2_share() -> float:
    """The Trainer does not know that this class shifts its labels, and counts the first token of each row, too."""
    lengths = [len(item["labels"]) for item in examples("gpt2")]
    return (sum(lengths) - len(lengths)) / sum(lengths)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pad", [1, EOS, 17])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_padding_does_not_matter(kind: str, pad: int, side: str, tmp_path: Path) -> None:
    """Not even to the first token, which left padding would have predicted from nothing."""
    model = make_model(kind)
    collator = PositionedPad(pad, side, extra=3) if kind == "gpt2" else Pad(pad, side, extra=3)
    log, gradient = one_step(kind, "mixin", make_loss("token"), tmp_path, model=model, collator=collator)
    expected, truth = judge(kind, "token")
    assert log["loss"] == pytest.approx(expected, rel=1e-5)
    assert same(gradient, truth)


@pytest.mark.parametrize("way, loss", [("hook", "plain"), ("mixin", "plain"), ("mixin", "token"), ("mixin", "ngram")])
def test_packed_equals_padded(way: str, loss: str, tmp_path: Path) -> None:
    """All sentences in one row, kept apart by their position ids.

    The collator masks the first label of each, so the hook, which sees labels only, would lose the sentence start.
    """
    collator = DataCollatorWithFlattening()
    log, gradient = one_step("gpt2", way, make_loss(loss), tmp_path, collator=collator)
    expected, truth = judge("gpt2", loss)
    assert log["loss"] == pytest.approx(expected, rel=1e-5)
    assert same(gradient, truth)


def test_packed_sentences_without_specials_do_not_see_each_other(tmp_path: Path) -> None:
    """No eos between documents: only position ids tell the mixin where a history must end."""
    data = [{"input_ids": item["input_ids"][1:-1], "labels": item["input_ids"][1:-1]} for item in examples("gpt2")]
    packed = one_step("gpt2", "mixin", make_loss("token"), tmp_path, data=data, collator=DataCollatorWithFlattening())
    padded = one_step("gpt2", "mixin", make_loss("token"), tmp_path, data=data)
    assert packed[0]["loss"] == pytest.approx(padded[0]["loss"], rel=1e-5)
    assert same(packed[1], padded[1])


@pytest.mark.parametrize("kind", KINDS[:2])
def test_prompts_are_history_but_not_predicted(kind: str, tmp_path: Path) -> None:
    log, gradient = one_step(kind, "mixin", make_loss("token"), tmp_path, data=examples(kind, prompt=2))
    expected, truth = judge(kind, "token", prompt=2)
    assert log["loss"] == pytest.approx(expected, rel=1e-5)
    assert same(gradient, truth)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_linear_loss_equals_the_loss_on_logits(kind: str, loss: str, tmp_path: Path) -> None:
    log, gradient = one_step(
        kind, "mixin", make_loss(loss, linear=True), tmp_path,
        per_device_train_batch_size=4, gradient_accumulation_steps=2,
    )  # fmt: skip
    expected, truth = judge(kind, loss)
    assert log["loss"] == pytest.approx(expected, rel=1e-5)
    assert same(gradient, truth)


class PositionedPad(Pad):
    """GPT-2 counts positions from the left edge unless told where a row begins."""

    def __call__(self, batch: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        made = super().__call__(batch)
        positions = (made["attention_mask"].cumsum(1) - 1).clamp(min=0)
        return {**made, "position_ids": positions}
