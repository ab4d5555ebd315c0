"""A Lightning module: the loss is a submodule, so it moves and changes mode with the model and is in no checkpoint.

pip install 'lidstone[torch]' lightning
python examples/lightning_module.py [--smoke]
"""

from __future__ import annotations

import argparse
import logging
import math
from collections import Counter

import lightning
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import lidstone as ld


class SmoothedLanguageModel(lightning.LightningModule):
    def __init__(self, words: int, loss: ld.SmoothedCrossEntropy, width: int = 128) -> None:
        super().__init__()
        self.loss = loss
        self.embedding = nn.Embedding(words, width)
        self.recurrence = nn.GRU(width, width, batch_first=True)
        self.output = nn.Linear(width, words)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.output(self.recurrence(self.embedding(inputs))[0])

    def training_step(self, batch, _) -> torch.Tensor:
        inputs, labels = batch
        self.loss.progress = self.global_step / self.trainer.estimated_stepping_batches
        parts = self.loss(self(inputs), labels, histories=inputs)
        self.log_dict({"loss": parts.total, "nll": parts.nll, "plus": parts.plus, "minus": parts.minus})
        return parts.total

    def validation_step(self, batch, _) -> None:
        inputs, labels = batch
        parts = self.loss(self(inputs), labels, histories=inputs)  # in evaluation: the plain negative log-likelihood
        self.log("valid_nll", parts.total, batch_size=int((labels != -100).sum()))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def loader(sentences, eos: int, shuffle: bool) -> DataLoader:
    mark = torch.tensor([eos])

    def collate(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = pad_sequence([torch.cat([mark, row]) for row in rows], batch_first=True, padding_value=eos)
        labels = pad_sequence([torch.cat([row, mark]) for row in rows], batch_first=True, padding_value=-100)
        return inputs, labels

    return DataLoader(sentences, batch_size=32, shuffle=shuffle, collate_fn=collate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a small part of the text, one epoch")
    options = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)

    corpus = ld.embedded_corpus()[:150] if options.smoke else ld.embedded_corpus()
    training, validation, _ = ld.split_sentences([line for line in corpus if len(line) <= 60])
    frequent = [word for word, times in Counter(word for line in training for word in line).items() if times > 1]
    vocab = ld.Vocabulary.from_words(frequent)
    train, valid = ([torch.from_numpy(vocab.encode(line)).long() for line in part] for part in (training, validation))

    table = ld.KneserEssenNey().fit(ld.count([row.numpy() for row in train], vocab, order=3))
    loss = ld.SmoothedCrossEntropy(table, gamma=0.3, schedule=ld.Schedule("linear", start=1.0, end=0.3))
    trainer = lightning.Trainer(
        max_epochs=1 if options.smoke else 6,
        accelerator="cpu" if options.smoke else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    lightning.seed_everything(1, verbose=False)
    model = SmoothedLanguageModel(vocab.size, loss)
    trainer.fit(model, loader(train, vocab.eos, shuffle=True), loader(valid, vocab.eos, shuffle=False))
    print(f"validation perplexity {math.exp(trainer.callback_metrics['valid_nll']):.2f}")


if __name__ == "__main__":
    main()
