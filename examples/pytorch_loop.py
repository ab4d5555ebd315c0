"""A plain PyTorch loop: the line that computes the loss is the only one that changes.

pip install 'lidstone[torch]'
python examples/pytorch_loop.py            a few minutes on two cores
python examples/pytorch_loop.py --smoke    a few seconds, too short to tell the losses apart
"""

from __future__ import annotations

import argparse
import math
from collections import Counter

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import lidstone as ld


class WordModel(nn.Module):
    """Embedding, GRU, tied output matrix."""

    def __init__(self, words: int, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.recurrence = nn.GRU(width, width, batch_first=True)
        self.dropout = nn.Dropout(0.2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrence(self.dropout(self.embedding(inputs)))
        return self.dropout(states) @ self.embedding.weight.T  # (batch, time, words)


def batches(sentences: list[torch.Tensor], eos: int, size: int, shuffle: bool):
    """Inputs `</s> x1 .. xT` and labels `x1 .. xT </s>`; padding has the label -100."""
    order = torch.randperm(len(sentences)) if shuffle else torch.arange(len(sentences))
    mark = torch.tensor([eos])
    for chosen in order.split(size):
        rows = [sentences[number] for number in chosen]
        inputs = pad_sequence([torch.cat([mark, row]) for row in rows], batch_first=True, padding_value=eos)
        labels = pad_sequence([torch.cat([row, mark]) for row in rows], batch_first=True, padding_value=-100)
        yield inputs, labels


def train(loss: ld.SmoothedCrossEntropy, vocab: ld.Vocabulary, texts, epochs: int) -> float:
    """Train a new model; its perplexity on the validation text."""
    torch.manual_seed(1)
    model = WordModel(vocab.size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        loss.progress = epoch / epochs  # only a schedule reads it
        for inputs, labels in batches(texts["train"], vocab.eos, 32, shuffle=True):
            # was: F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), label_smoothing=0.1)
            parts = loss(model(inputs), labels, histories=inputs)
            optimizer.zero_grad()
            parts.total.backward()
            optimizer.step()
    return perplexity(model.eval(), loss, vocab, texts["valid"])


@torch.no_grad()
def perplexity(model: nn.Module, loss: ld.SmoothedCrossEntropy, vocab: ld.Vocabulary, sentences) -> float:
    """Without a gradient the loss is the plain negative log-likelihood."""
    total, tokens = 0.0, 0
    for inputs, labels in batches(sentences, vocab.eos, 64, shuffle=False):
        total += loss(model(inputs), labels, num_items=1).total.item()
        tokens += int((labels != -100).sum())
    return math.exp(total / tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--smoke", action="store_true", help="a small part of the text, one epoch")
    options = parser.parse_args()

    corpus = ld.embedded_corpus()[:150] if options.smoke else ld.embedded_corpus()
    training, validation, _ = ld.split_sentences([line for line in corpus if len(line) <= 60])
    frequent = [word for word, times in Counter(word for line in training for word in line).items() if times > 1]
    vocab = ld.Vocabulary.from_words(frequent)
    ids = {"train": [vocab.encode(line) for line in training], "valid": [vocab.encode(line) for line in validation]}

    counts = ld.count(ids["train"], vocab, order=3)
    table = ld.KneserEssenNey().fit(counts)
    losses = {"plain": ld.SmoothedCrossEntropy(), "smoothed": ld.SmoothedCrossEntropy(table, gamma=options.gamma)}

    texts = {name: [torch.from_numpy(line).long() for line in lines] for name, lines in ids.items()}
    for name, loss in losses.items():
        found = train(loss, vocab, texts, 1 if options.smoke else options.epochs)
        print(f"{name:9} validation perplexity {found:.2f}", flush=True)


if __name__ == "__main__":
    main()
