"""A new user's first hour: the README's diff in a script that trains GPT-2 on a packed data set, without downloads."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 64
EOS = "<|endoftext|>"


def readme_program() -> str:
    """What the script looks like after the first diff of the README; its dots are the user's own settings."""
    (diff, *_) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.S)
    lines = [line[1:] for line in diff.splitlines() if not line.startswith("-")]
    return "\n".join(lines).replace("TrainingArguments(...)", "TrainingArguments(**settings)")


def documents() -> list[str]:
    from lidstone.text.corpora import embedded_corpus

    sentences = [" ".join(words) for words in embedded_corpus()]
    return [" ".join(sentences[start : start + 5]) for start in range(0, len(sentences), 5)]


def make_tokenizer(texts: list[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=800, special_tokens=[EOS], initial_alphabet=alphabet)
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=EOS, eos_token=EOS, unk_token=EOS)


def packed(texts: list[str], tokenizer: Any) -> Any:
    """As run_clm.py does: documents joined with eos, cut into blocks; labels are a copy of the inputs."""
    from datasets import Dataset

    stream = [token for ids in tokenizer(texts)["input_ids"] for token in [*ids, tokenizer.eos_token_id]]
    blocks = [stream[start : start + BLOCK] for start in range(0, len(stream) - BLOCK + 1, BLOCK)]
    return Dataset.from_dict({"input_ids": blocks, "labels": [list(block) for block in blocks]})


@pytest.mark.slow
def test_the_diff_of_the_readme_trains_gpt2_on_packed_blocks(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    texts = documents()
    tokenizer = make_tokenizer(texts)
    train, held_out = packed(texts[:-40], tokenizer), packed(texts[-40:], tokenizer)
    torch.manual_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, n_positions=BLOCK,
            bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
        )
    )  # fmt: skip
    settings = {
        "output_dir": str(tmp_path), "max_steps": 40, "per_device_train_batch_size": 8, "learning_rate": 5e-3,
        "logging_steps": 10, "report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no",
        "dataloader_pin_memory": False,
    }  # fmt: skip
    names = {"Trainer": Trainer, "TrainingArguments": TrainingArguments, "settings": settings}
    names |= {"tokenizer": tokenizer, "model": model, "train": train}
    before = nll(model, held_out)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(readme_program(), names)
    trainer: Any = names["trainer"]
    trainer.train()
    counts: Any = names["counts"]
    expected = sum(row.count(tokenizer.eos_token_id) for row in train["input_ids"])
    assert counts.of([tokenizer.eos_token_id]) == expected  # as many sentence ends as the text has
    evaluated = trainer.evaluate(held_out)["eval_loss"]
    assert evaluated == pytest.approx(nll(model, held_out), rel=1e-5)  # exp of it is a perplexity
    assert evaluated < before - 1
    lines = [line for line in trainer.state.log_history if "loss" in line]
    if "SmoothedLossMixin" in readme_program():
        assert all(line["nll"] + line["plus"] + line["minus"] == pytest.approx(line["loss"], 1e-4) for line in lines)
        assert all("never_predicted" not in line for line in lines)
    assert lines[-1]["loss"] < lines[0]["loss"]


@torch.no_grad()
def nll(model: Any, data: Any) -> float:
    """Per predicted token, by torch; all blocks have one length, so their mean is that of the tokens."""
    model.eval()
    ids = torch.tensor(data["input_ids"][:])
    logits = torch.cat([model(part).logits for part in ids.split(8)])
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
