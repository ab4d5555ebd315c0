"""`smoothed_trainer`: what it counts, which strength it chooses, and that it trains as the lines it stands for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from test_integrations import add_chats, add_translation, names, tokenizer
from tiny_training import arguments
from torch import nn
from transformers import GPT2LMHeadModel, Trainer

import lidstone as ld
from lidstone.errors import InputError
from lidstone.hf.automatic import labels_of, suggested_gamma


@pytest.fixture
def found(tmp_path: Any) -> dict[str, Any]:
    return names(tmp_path)


def padding(found: dict[str, Any]) -> Any:
    return found["DataCollatorForLanguageModeling"](found["tokenizer"], mlm=False)


def test_it_trains_as_the_lines_it_stands_for(found: dict[str, Any], tmp_path: Any, capsys: Any) -> None:
    settings = {"args": arguments(tmp_path, max_steps=2), "data_collator": padding(found)}
    explicit = type("Explicit", (ld.SmoothedLossMixin, Trainer), {})
    table = ld.ModifiedKneserNey(fallback=(0.5, 1.0, 1.5)).fit(ld.count(found["train"], found["vocab"], order=3))
    losses = []
    for make in (
        lambda model: explicit(
            model, train_dataset=found["train"], smoothed_loss=ld.SmoothedCrossEntropy(table, gamma=0.6), **settings
        ),
        lambda model: ld.smoothed_trainer(Trainer)(model, train_dataset=found["train"], **settings),
        lambda model: ld.smoothed_trainer(Trainer, tokenizer=found["tokenizer"], train_dataset=found["train"])(
            model, **settings
        ),
    ):
        torch.manual_seed(4)
        trainer = make(GPT2LMHeadModel(found["model"].config))
        trainer.train()
        losses.append([line["loss"] for line in trainer.state.log_history if "loss" in line])
    assert losses[0] == losses[1] == losses[2] and len(losses[0]) == 2
    said = capsys.readouterr().err
    assert "in 300 sentences; modified-kneser-ney, order 3; gamma 0.6 (less than 100,000 tokens" in said


def test_packed_blocks_are_counted_as_one_stream(found: dict[str, Any], tmp_path: Any) -> None:
    stream = [token for row in found["train"]["input_ids"] for token in row[1:]]
    blocks = [{"input_ids": stream[i : i + 32], "labels": stream[i : i + 32]} for i in range(0, len(stream) - 32, 32)]
    make = ld.smoothed_trainer(Trainer, tokenizer=found["tokenizer"], gamma=0.3, order=2)
    trainer = make(found["model"], arguments(tmp_path), train_dataset=blocks)
    trainer.train()
    table = ld.ModifiedKneserNey(fallback=(0.5, 1.0, 1.5)).fit(ld.count(blocks, found["vocab"], order=2))
    base = trainer.smoothed_loss.targets.constants()["base"]
    np.testing.assert_allclose(base.numpy(), table.base, rtol=1e-6)
    assert "gamma 0.3 (as given)" in trainer.smoothing


def test_pairs_are_counted_on_the_target_side(found: dict[str, Any], tmp_path: Any) -> None:
    add_translation(found)
    collator = found["DataCollatorForSeq2Seq"](found["tokenizer"], model=found["translator"])
    make = ld.smoothed_trainer(found["Seq2SeqTrainer"])
    rows = found["pairs"].map(lambda row: {"labels": row["labels"][-3:]})
    trainer = make(found["translator"], found["seq2seq_arguments"], data_collator=collator, train_dataset=rows)
    trainer.train()
    assert (
        trainer.smoothing.startswith("900 tokens in 300 sentences")
        and "gamma 0.1 (encoder-decoder" in trainer.smoothing
    )
    with pytest.raises(InputError, match="the rows have no labels"):
        make(found["translator"], found["seq2seq_arguments"], data_collator=collator, train_dataset=found["train"])


@pytest.mark.slow
def test_chats_are_counted_as_the_trainer_prepares_them(found: dict[str, Any], tmp_path: Any) -> None:
    add_chats(found)
    make = ld.smoothed_trainer(found["SFTTrainer"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = make(
            found["model"], found["sft_arguments"], train_dataset=found["chats"], processing_class=found["tokenizer"]
        )
        trainer.train()
        rows = [
            found["tokenizer"].apply_chat_template(chat, return_dict=True)["input_ids"]
            for chat in found["chats"]["messages"]
        ]
        turns = found["chats"].map(
            lambda row: {"prompt": row["messages"][:1], "completion": row["messages"][1:]}, remove_columns=["messages"]
        )
        answers = make(found["model"], found["sft_arguments"], train_dataset=turns, processing_class=found["tokenizer"])
        answers.train()
    assert trainer.smoothing.startswith(f"{sum(map(len, rows)):,} tokens in")
    answered = sum(len(row) - row.index(1) - 1 for row in rows)  # what follows the end of the user's turn
    assert answers.smoothing.startswith(f"{answered:,} tokens in 150 sentences")


def test_masked_labels_and_packed_documents_are_parts() -> None:
    rows = [{"input_ids": [5, 6, 7, 8], "labels": [-100, 6, 7, 8], "seq_lengths": [3, 1]}]
    assert [part.tolist() for part in labels_of(rows)] == [[6, 7], [8]]
    whole = [{"input_ids": [5, 6], "labels": [5, 6]}]
    assert labels_of(whole) is whole
    assert [part.tolist() for part in labels_of(whole, has_encoder=True)] == [[5, 6]]


class Sized(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"input_ids": torch.tensor([[3, 4, 1], [5, 1, 1]][place])}


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        yield {"input_ids": [3, 4, 1]}


def test_any_data_set_of_known_length_is_read() -> None:
    counts = ld.count(labels_of(Sized()), ld.Vocabulary.from_tokenizer(tokenizer()), order=2)
    assert counts.tokens == 5  # 3 4 </s> and 5 </s>, padded with </s>
    for data, message in ((Endless(), "Endless has no known end"), (None, "there is no training text to count")):
        with pytest.raises(InputError, match=message):
            labels_of(data)


def test_the_strength_follows_the_text_and_the_model(found: dict[str, Any]) -> None:
    class Counted:
        tokens = 0

    chosen = {}
    for tokens in (99_999, 100_000, 1_999_999, 2_000_000):
        Counted.tokens = tokens
        chosen[tokens] = suggested_gamma(found["model"], Counted)[0]
    assert chosen == {99_999: 0.6, 100_000: 0.4, 1_999_999: 0.4, 2_000_000: 0.2}
    assert suggested_gamma(nn.Linear(1, 1), Counted)[0] == 0.2  # a model without a config
    found["model"].config._name_or_path = "a-checkpoint"
    assert suggested_gamma(found["model"], Counted)[0] == 0.4


def test_what_cannot_be_done_is_one_line(found: dict[str, Any], tmp_path: Any) -> None:
    trainer = Trainer(found["model"], arguments(tmp_path))
    with pytest.raises(InputError, match="Trainer was given where a Trainer class is expected"):
        ld.smoothed_trainer(trainer)
    make = ld.smoothed_trainer(Trainer)
    with pytest.raises(InputError, match="no tokenizer was given"):
        make(found["model"], arguments(tmp_path), train_dataset=found["train"])
    with pytest.raises(InputError, match="makes the loss itself"):
        make(found["model"], arguments(tmp_path), smoothed_loss=ld.SmoothedCrossEntropy())
    found["model"].config.decoder_vocab_size = 7
    with pytest.raises(InputError, match="a vocabulary of its own for its output"):
        make(found["model"], arguments(tmp_path), train_dataset=found["train"], processing_class=found["tokenizer"])
