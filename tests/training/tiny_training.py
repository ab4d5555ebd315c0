"""Tiny models, eight sentences and one step of plain gradient descent through the real Trainer."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    OPTConfig,
    OPTForCausalLM,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import lidstone as ld
from lidstone.loss.reference import dense_loss, dense_target
from lidstone.text.history import histories_of

SIZE, BOS, PAD, EOS = 50, 0, 1, 2
VOCAB = ld.Vocabulary(size=SIZE, eos=EOS, unpredictable=(BOS, PAD))


def sentences(number: int = 40) -> list[list[int]]:
    """Words without specials; a chain with few followers per word, so that trigrams repeat."""
    dice = random.Random(5)
    return [[dice.choice((3, 4, 7, 12)) + dice.randint(0, 4) for _ in range(dice.randint(2, 7))] for _ in range(number)]


TEXT = sentences()
COUNTS = ld.count(TEXT, VOCAB, order=3)
TABLE = ld.KneserEssenNey(discount=0.6).fit(COUNTS)
SETTINGS: dict[str, dict[str, Any]] = {
    "token": {"gamma_plus": 0.3, "gamma_minus": 0.2, "form": "exact", "empirical": "token"},
    "ngram": {"gamma_plus": 0.1, "gamma_minus": 0.5, "form": "published", "empirical": "ngram"},
}


def make_loss(kind: str, linear: bool = False) -> Any:
    """Kinds: plain, token, ngram."""
    make = ld.LinearSmoothedCrossEntropy if linear else ld.SmoothedCrossEntropy
    return make() if kind == "plain" else make(TABLE, COUNTS, **SETTINGS[kind])


def make_model(kind: str) -> Any:
    torch.manual_seed(3)
    if kind == "opt":
        return OPTForCausalLM(
            OPTConfig(
                vocab_size=SIZE, hidden_size=16, word_embed_proj_dim=16, num_hidden_layers=2, num_attention_heads=2,
                ffn_dim=32, dropout=0.0, max_position_embeddings=64, init_std=0.4,
                bos_token_id=BOS, pad_token_id=PAD, eos_token_id=EOS,
            )
        )  # fmt: skip
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=SIZE, n_embd=16, n_layer=2, n_head=2, n_positions=128, initializer_range=0.4,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=EOS, eos_token_id=EOS,
            )
        )  # fmt: skip
    return MarianMTModel(
        MarianConfig(
            vocab_size=SIZE, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, dropout=0.0, attention_dropout=0.0,
            max_position_embeddings=64, init_std=0.4, pad_token_id=PAD, eos_token_id=EOS,
            bos_token_id=BOS, decoder_start_token_id=PAD, forced_eos_token_id=None,
        )
    )  # fmt: skip


def examples(kind: str, prompt: int = 0) -> list[dict[str, list[int]]]:
    """Eight sentences of different lengths; the first `prompt` words of each are not predicted."""
    chosen = TEXT[:8]
    if kind == "marian":
        sources = [[*reversed(words), EOS] for words in chosen]
        return [{"input_ids": s, "labels": [*w, EOS]} for s, w in zip(sources, chosen, strict=True)]
    whole = [[EOS, *words, EOS] for words in chosen]
    masked = prompt + 1 if prompt else 0  # the first token, eos, is no target but tells the hook of the sentence start
    return [{"input_ids": ids, "labels": [-100] * masked + ids[masked:]} for ids in whole]


class Pad:
    """A collator; `pad` is the id of the padding, `side` where it stands, `extra` how much more there is of it."""

    def __init__(self, pad: int = PAD, side: str = "right", extra: int = 0) -> None:
        self.pad, self.side, self.extra = pad, side, extra

    def __call__(self, batch: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        masks = [[1] * len(item["input_ids"]) for item in batch]
        return {
            "input_ids": self._fill([item["input_ids"] for item in batch], self.pad),
            "attention_mask": self._fill(masks, 0),
            "labels": self._fill([item["labels"] for item in batch], -100),
        }

    def _fill(self, rows: list[list[int]], value: int) -> torch.Tensor:
        width = max(map(len, rows)) + self.extra
        empty = [[value] * (width - len(row)) for row in rows]
        pairs = zip(rows, empty, strict=True)
        return torch.tensor([row + rest if self.side == "right" else rest + row for row, rest in pairs])


class SeqPad(Pad):
    """Pads, and makes the decoder's inputs as DataCollatorForSeq2Seq(model=...) does."""

    def __call__(self, batch: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        made = super().__call__(batch)
        before = [[PAD, *item["labels"][:-1]] for item in batch]
        return {**made, "decoder_input_ids": self._fill(before, self.pad)}


class Smoothed(ld.SmoothedLossMixin, Trainer):
    pass


class SmoothedSeq2Seq(ld.SmoothedLossMixin, Seq2SeqTrainer):
    pass


class Gradients(TrainerCallback):
    """Keeps the gradient of the first step as it is given to the optimizer."""

    def __init__(self) -> None:
        self.found: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if not self.found:
            parameters = getattr(model, "module", model).named_parameters()
            self.found = {name: p.grad.clone() for name, p in parameters if p.grad is not None}


def arguments(folder: Any, seq2seq: bool = False, **changes: Any) -> TrainingArguments:
    values: dict[str, Any] = {
        "output_dir": str(folder), "max_steps": 1, "per_device_train_batch_size": 8, "learning_rate": 0.1,
        "optim": "sgd", "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "logging_steps": 1, "report_to": [],
        "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "dataloader_pin_memory": False,
    }  # fmt: skip
    return (Seq2SeqTrainingArguments if seq2seq else TrainingArguments)(**{**values, **changes})


def make_trainer(kind: str, way: str, loss: Any, folder: Any, **changes: Any) -> Any:
    """Ways: hook (trainer_loss), mixin."""
    model = changes.pop("model", None) or make_model(kind)
    seq2seq = kind == "marian"
    default = SeqPad() if seq2seq and way == "hook" else Pad()
    common: dict[str, Any] = {
        "model": model,
        "data_collator": changes.pop("collator", default),
        "train_dataset": changes.pop("data", None) or examples(kind),
        "eval_dataset": changes.pop("eval_data", None),
    }
    common["args"] = arguments(folder, seq2seq, **changes)
    if way == "mixin":
        return (SmoothedSeq2Seq if seq2seq else Smoothed)(**common, smoothed_loss=loss)
    hook = ld.trainer_loss(loss)
    return (Seq2SeqTrainer if seq2seq else Trainer)(**common, compute_loss_func=hook, callbacks=[hook.callback])


def one_step(*args: Any, **kwargs: Any) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """The first line of the log, and the gradient, of one step."""
    trainer, keeper = make_trainer(*args, **kwargs), Gradients()
    trainer.add_callback(keeper)
    trainer.train()
    return trainer.state.log_history[0], keeper.found


@cache
def judge(kind: str, loss_kind: str, prompt: int = 0) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of the same step, sentence by sentence without any padding, by the dense reference."""
    model = make_model(kind)
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for item in examples(kind, prompt):
        labels = [label for label in item["labels"][kind != "marian" :] if label != -100]
        ids = torch.tensor([item["input_ids"]])
        if kind == "marian":
            before = [VOCAB.bos, *labels[:-1]]
            logits = model(input_ids=ids, decoder_input_ids=torch.tensor([[PAD, *labels[:-1]]])).logits[0]
        else:
            before = item["input_ids"][:-1]
            logits = model(input_ids=ids).logits[0, :-1]
        histories = histories_of(before, VOCAB, 3)[-len(labels) :]
        total = total + dense_loss(logits[-len(labels) :], targets(loss_kind, histories, labels))
        tokens += len(labels)
    mean = total / tokens
    mean.backward()
    return mean.item(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def targets(loss_kind: str, histories: list[tuple[int, ...]], labels: list[int]) -> torch.Tensor:
    if loss_kind == "plain":
        return torch.nn.functional.one_hot(torch.tensor(labels), SIZE).double()
    pairs = zip(histories, labels, strict=True)
    return torch.stack([dense_target(TABLE, TEXT, h, y, **SETTINGS[loss_kind]) for h, y in pairs])


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    """Gradients equal up to float32 noise, and none of them nothing."""
    assert found.keys() == expected.keys()
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-2
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=2e-6, msg=lambda m, name=name: f"{name}: {m}")
    return True
