"""Training with a teacher through Trainers: padding, packing and prompts, against sentences one by one."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import (
    EOS,
    SIZE,
    TABLE,
    VOCAB,
    Gradients,
    Pad,
    arguments,
    examples,
    make_model,
    make_trainer,
    same,
)
from torch import Tensor

import lidstone as ld
from lidstone.errors import InputError
from lidstone.loss.reference import dense_loss, taught_target
from lidstone.text.history import histories_of

GAMMA, K = 0.6, 4


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of rows that begin and end with eos."""
    rows = [item["input_ids"] for item in examples("opt")]
    return ld.teach(make_model("gpt2").eval(), rows, tmp_path_factory.mktemp("t"), vocab=VOCAB, top=K, as_rows=True)


def loss(linear: bool = False) -> Any:
    return (ld.LinearSparseTargetCrossEntropy if linear else ld.SparseTargetCrossEntropy)(TABLE, gamma=GAMMA)


def judge(teacher: Any, prompt: int = 0) -> tuple[float, float, dict[str, Tensor]]:
    """Total, mean KL and gradient, sentence by sentence in float64."""
    model, total, divergence, tokens = make_model("opt"), torch.zeros((), dtype=torch.float64), 0.0, 0
    for number, item in enumerate(examples("opt", prompt)):
        ids, said = item["input_ids"], teacher[number]
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
        histories = histories_of(ids[:-1], VOCAB, 3)
        for at in [at for at in range(len(ids) - 1) if item["labels"][at + 1] != -100]:
            row = torch.tensor(TABLE.prob([histories[at]])[0])
            words = said.ids[at + 1].tolist(), said.logprobs[at + 1].tolist(), ids[at + 1]
            target, whole = taught_target(*words, row, gamma=GAMMA, size=SIZE)
            total = total + dense_loss(logits[at : at + 1], target[None])
            divergence += float(dense_loss(logits[at : at + 1].detach(), whole[None]) - torch.special.entr(whole).sum())
            tokens += 1
    (total / tokens).backward()
    gradient = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return total.item() / tokens, divergence / tokens, gradient


def stepped(folder: Any, collator: Any, data: Any, **changes: Any) -> tuple[Any, dict[str, Tensor]]:
    made = loss(changes.pop("linear", False))
    trainer, keeper = make_trainer("opt", "mixin", made, folder, collator=collator, data=data, **changes), Gradients()
    trainer.add_callback(keeper)
    trainer.train()
    return trainer, keeper.found


WAYS = {
    "right": {},
    "left": {"side": "left"},
    "more padding": {"extra": 3},
    "hidden states": {"linear": True},
    "two micro-batches": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("prompt", [0, 2])
@pytest.mark.parametrize("way", WAYS)
def test_the_mixin_reads_the_columns_of_the_batch(way: str, prompt: int, teacher: Any, tmp_path: Any) -> None:
    changes = dict(WAYS[way])
    pad = Pad(**{name: changes.pop(name) for name in ("side", "extra") if name in changes})
    collator = ld.TeacherCollator(pad, teacher)
    trainer, found = stepped(tmp_path, collator, examples("opt", prompt), **changes)
    total, divergence, gradient = judge(teacher, prompt)
    log = trainer.state.log_history[0]
    assert log["loss"] == pytest.approx(total, rel=1e-4)
    assert log["kl"] == pytest.approx(divergence, rel=1e-4)
    assert log["nll"] * (1 - GAMMA) + log["cross_entropy"] * GAMMA == pytest.approx(total, rel=1e-4)
    assert same(found, gradient)


def test_packed_rows_with_columns_of_their_own(teacher: Any, tmp_path: Any) -> None:
    """DataCollatorWithFlattening makes one row of all; the columns come from the data set."""
    from datasets import Dataset
    from transformers import DataCollatorWithFlattening

    data = Dataset.from_list([{"input_ids": item["input_ids"]} for item in examples("opt")]).map(teacher.add_columns)
    flat = ld.TeacherCollator(DataCollatorWithFlattening(return_tensors="pt"))
    batch = flat([dict(row) for row in data])
    lengths = [len(item["input_ids"]) for item in examples("opt")]
    assert batch["input_ids"].shape == (1, sum(lengths)) and batch["target_token_ids"].shape == (1, sum(lengths), K)
    second = teacher[1].ids
    assert batch["target_token_ids"][0, lengths[0] : lengths[0] + lengths[1]].tolist() == second.tolist()


def test_the_columns_of_a_data_set_reach_the_loss(teacher: Any, tmp_path: Any) -> None:
    """The Trainer removes the columns that a model does not read, but not these."""
    from datasets import Dataset

    rows = [{**item, **{k: v.tolist() for k, v in teacher.add_columns(item).items()}} for item in examples("opt")]
    trainer, found = stepped(tmp_path, ld.TeacherCollator(Pad()), Dataset.from_list(rows))
    assert trainer.args.remove_unused_columns
    assert same(found, judge(teacher)[2])


def test_evaluation_is_the_plain_loss_without_columns(teacher: Any, tmp_path: Any) -> None:
    trainer = make_trainer("opt", "mixin", loss(), tmp_path, eval_data=examples("opt"))
    plain = make_trainer("opt", "mixin", ld.SmoothedCrossEntropy(), tmp_path, eval_data=examples("opt"))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(plain.evaluate()["eval_loss"], rel=1e-6)


def test_a_plain_loop(teacher: Any) -> None:
    """Logits at t score the token at t + 1, and so do the columns there."""
    model, made = make_model("opt"), loss()
    batch = ld.TeacherCollator(Pad(), teacher)(examples("opt"))
    logits = model(batch["input_ids"], batch["attention_mask"]).logits[:, :-1]
    given = (batch[name][:, 1:] for name in ("labels", "target_token_ids", "target_logprobs"))
    parts = made(logits, *given, histories=batch["input_ids"][:, :-1])
    parts.total.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert same(found, judge(teacher)[2])


@pytest.mark.slow
@pytest.mark.parametrize("packing", [False, True])
def test_trl(packing: bool, teacher: Any, tmp_path: Any) -> None:
    """Masked prompts, and rows that TRL packs, whose sentences the teacher finds."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from datasets import Dataset

    class Distilled(ld.SmoothedLossMixin, trl.SFTTrainer):  # type: ignore[misc]
        pass

    rows = examples("opt", 2)
    for row in rows:
        row["completion_mask"] = [int(label != -100) for label in row.pop("labels")]
    values = {**arguments(tmp_path).to_dict(), "bf16": False}
    options = {"max_length": 40, "packing": packing, "completion_only_loss": True, "eos_token": None, "pad_token": None}
    from test_integrations import tokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packing without flash attention
        trainer = Distilled(
            make_model("opt"), trl.SFTConfig(**values, **options), train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer(), smoothed_loss=loss(),
        )  # fmt: skip
        trainer.data_collator = ld.TeacherCollator(trainer.data_collator, teacher)
        keeper = Gradients()
        trainer.add_callback(keeper)
        trainer.train()
    log = trainer.state.log_history[0]
    if not packing:  # attention across packed rows, without flash attention, is another model
        assert same(keeper.found, judge(teacher, 2)[2])
    assert log["kl"] > 0


def row(**changes: Any) -> dict[str, Any]:
    return {"input_ids": [EOS, 3, EOS], "labels": [EOS, 3, EOS], **changes}


MISTAKES = [
    (lambda: ld.trainer_loss(loss()), "needs the columns of the batch.*SmoothedLossMixin"),
    (lambda: ld.TeacherCollator(Pad())([row()]), r"has no target_token_ids.*TeacherCollator\(collator, teacher\)"),
    (
        lambda: ld.TeacherCollator(Pad())([row(target_token_ids=[[3]], target_logprobs=[[-1.0]])]),
        "a row of 3 tokens has 1 entries of the teacher",
    ),
    (
        lambda: ld.TeacherCollator(lambda rows: {"labels": torch.zeros(1, 2)})(
            [row(target_token_ids=[[3]] * 3, target_logprobs=[[-1.0]] * 3)]
        ),
        r"the collator made labels \(1, 2\) of rows of \[3\] tokens",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes(mistake: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mistake()


def test_a_batch_without_teacher_is_refused(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="the teacher is missing"):
        make_trainer("opt", "mixin", loss(), tmp_path).train()


def test_a_row_of_another_text_is_refused(teacher: Any) -> None:
    with pytest.raises(InputError, match="is no sentence of the teacher"):
        ld.TeacherCollator(Pad(), teacher)([row()])


PAGE = Path(__file__).resolve().parents[2] / "docs" / "distillation.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks one after the other, with tiny things behind the names that a reader has of his own."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from datasets import Dataset
    from test_integrations import WORDS, texts, tokenizer
    from transformers import GPT2Config, GPT2LMHeadModel

    monkeypatch.chdir(tmp_path)
    tok, size = tokenizer(), len(WORDS)
    config = GPT2Config(vocab_size=size, n_embd=8, n_layer=1, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1)
    rows = [[1, *tok(text)["input_ids"], 1] for text in texts(40)]

    def pad(batch: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        return Pad(0)([{**item, "labels": item["input_ids"]} for item in batch])

    values = {**arguments(tmp_path, max_steps=2).to_dict(), "bf16": False}
    found = {
        "tokenizer": tok, "big": GPT2LMHeadModel(config), "small": GPT2LMHeadModel(config), "rows": rows, "pad": pad,
        "arguments": arguments(tmp_path, max_steps=2),
        "sft_arguments": trl.SFTConfig(**values, eos_token=None, pad_token=None, max_length=64),
        "dataset": Dataset.from_list([{"input_ids": row} for row in rows]),
    }  # fmt: skip
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    assert len(code) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the frameworks, about tiny models and CPUs
        for block in code:
            exec(compile(block, PAGE.name, "exec"), found)
    assert found["parts"].kl > 0 and found["trainer"].state.log_history[0]["kl"] > 0
