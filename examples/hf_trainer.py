"""Hugging Face's Trainer with SmoothedLossMixin; --hook passes one argument to the plain Trainer instead.

pip install 'lidstone[train]'
python examples/hf_trainer.py [--linear] [--hook] [--smoke]
torchrun --nproc_per_node 2 examples/hf_trainer.py
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import OPTConfig, OPTForCausalLM, Trainer, TrainingArguments

import lidstone as ld


class SmoothedTrainer(ld.SmoothedLossMixin, Trainer):
    """Takes `smoothed_loss=`; put the mixin before Seq2SeqTrainer or TRL's SFTTrainer in the same way."""


def model_of(vocab: ld.Vocabulary, width: int = 128) -> OPTForCausalLM:
    torch.manual_seed(1)
    config = OPTConfig(
        vocab_size=vocab.size,
        hidden_size=width,
        word_embed_proj_dim=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=4 * width,
        max_position_embeddings=256,
        bos_token_id=vocab.eos,
        eos_token_id=vocab.eos,
        pad_token_id=vocab.eos,
    )
    return OPTForCausalLM(config)


def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Pad with the label -100. The labels are the inputs; the loss shifts them."""
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    labels = pad_sequence(ids, batch_first=True, padding_value=-100)
    return {"input_ids": labels.clamp(min=0), "attention_mask": (labels >= 0).long(), "labels": labels}


def trainer_of(options: argparse.Namespace, table: ld.BackoffTable, common: dict) -> Trainer:
    if options.hook:
        hook = ld.trainer_loss(ld.SmoothedCrossEntropy(table, gamma=options.gamma))
        return Trainer(**common, compute_loss_func=hook, callbacks=[hook.callback])
    make = ld.LinearSmoothedCrossEntropy if options.linear else ld.SmoothedCrossEntropy
    return SmoothedTrainer(**common, smoothed_loss=make(table, gamma=options.gamma))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=float, default=0.25)
    parser.add_argument("--hook", action="store_true", help="trainer_loss instead of SmoothedLossMixin")
    parser.add_argument("--linear", action="store_true", help="use the loss that never holds all logits")
    parser.add_argument("--smoke", action="store_true", help="a small part of the text, one epoch")
    options = parser.parse_args()

    corpus = ld.embedded_corpus()[:150] if options.smoke else ld.embedded_corpus()
    training, validation, _ = ld.split_sentences([line for line in corpus if len(line) <= 60])
    frequent = [word for word, times in Counter(word for line in training for word in line).items() if times > 1]
    vocab = ld.Vocabulary.from_words(frequent)
    train, valid = ([vocab.encode(line).tolist() for line in part] for part in (training, validation))
    table = ld.KneserEssenNey().fit(ld.count(train, vocab, order=3))

    rows = [[{"input_ids": [vocab.eos, *line, vocab.eos]} for line in part] for part in (train, valid)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=1 if options.smoke else 6,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=2e-3,
            logging_steps=5 if options.smoke else 100,
            save_strategy="no",
            report_to=[],
            use_cpu=options.smoke,
            remove_unused_columns=False,
            disable_tqdm=True,
        )
        common = {"model": model_of(vocab), "args": arguments, "data_collator": collate}
        trainer = trainer_of(options, table, {**common, "train_dataset": rows[0], "eval_dataset": rows[1]})
        trainer.train()
        found = trainer.evaluate()["eval_loss"]
    print(f"validation perplexity {math.exp(found):.2f}")


if __name__ == "__main__":
    main()
