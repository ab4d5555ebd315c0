"""Perplexity of neural models from token sums, sentence by sentence.

    perplexity = exp(sum of -log q(token | the tokens before it in its sentence) / number of tokens)

Every token counts, and one end per sentence: tokens = pieces + sentences, as for n-gram models. The model reads eos,
then the sentence; it never sees the sentence before, so the value does not depend on how training text was packed. A
sentence longer than the model's window is scored in pieces; each but the first has half the window as context. Per
word, the same sum is divided by words + sentences: use that to compare tokenizations.

The window is the longest row that the network was trained on, not the longest that it could read: at positions that it
has never seen, a network is worse, and by different amounts for different methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.text.datasets import IGNORED, Ids, length_batches, padded, pair_inputs, pieces

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Advance = Callable[[float], None]


def window_of(model: Any) -> int | None:
    """The longest row that a causal model should read: the longest it was trained on, else what its configuration says.

    A run saves the length of its longest training row with the model, as `trained_window`; None if nothing is known.
    """
    config = getattr(model, "config", None)
    return getattr(config, "trained_window", None) or getattr(config, "max_position_embeddings", None)


@dataclass(frozen=True, eq=False)
class SentenceScores:
    """Negative log-likelihood (natural log) and tokens of each sentence, its end included.

    >>> scores = SentenceScores(np.array([2.0, 4.0]), np.array([1, 2]))
    >>> round(scores.loss, 4), round(scores.perplexity, 4), scores.tokens
    (2.0, 7.3891, 3)
    """

    nll: Floats
    lengths: NDArray[np.int64]
    token_nll: Floats | None = None
    """of each token, sentence after sentence; None if it was not requested"""

    @property
    def total(self) -> float:
        """The sum of all negative log-likelihoods."""
        return float(self.nll.sum())

    @property
    def tokens(self) -> int:
        """The denominator: tokens and ends of sentences."""
        return int(self.lengths.sum())

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood per token."""
        return self.total / self.tokens

    @property
    def perplexity(self) -> float:
        """Perplexity per token."""
        return perplexity_of(self.loss)

    def word_perplexity(self, words: int) -> float:
        """Perplexity per word, given the words of the text without ends of sentences."""
        return perplexity_of(self.total / (words + len(self.nll)))

    def summary(self, words: int) -> dict[str, Any]:
        """All of it as plain values, with the denominators."""
        return {
            "perplexity": self.perplexity,
            "loss": self.loss,
            "nll": self.total,
            "tokens": self.tokens,
            "words": words + len(self.nll),
            "word_perplexity": self.word_perplexity(words),
        }


def score_sentences(
    model: Any,
    sentences: Sequence[Ids],
    *,
    eos: int,
    limit: int | None = None,
    batch_tokens: int = 4096,
    advance: Advance = lambda amount: None,
) -> SentenceScores:
    """Score sentences of ids, given without eos, under a causal model that reads `limit` tokens, or its window."""
    lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
    nll, tokens = np.zeros(len(sentences)), np.zeros(int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths
    for rows, inputs, labels in text_batches(sentences, eos, limit or window_of(model), batch_tokens):
        losses = _losses(model, inputs, labels)
        np.add.at(nll, [row.sentence for row in rows], losses.sum(-1).numpy())
        for row, values in zip(rows, losses.numpy(), strict=True):
            first = starts[row.sentence] + row.start
            tokens[first + row.new : first + len(row.labels)] = values[row.new : len(row.labels)]
        advance(len(rows))
    return SentenceScores(nll, lengths, tokens)


def score_pairs(
    model: Any,
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    *,
    eos: int,
    pad: int,
    batch_tokens: int = 4096,
    advance: Advance = lambda amount: None,
) -> SentenceScores:
    """Score targets, given without eos, under a translation model that reads their sources."""
    nll = np.zeros(len(targets))
    for batch, inputs, labels in pair_batches(sources, targets, eos, pad, batch_tokens):
        nll[batch] = _losses(model, inputs, labels).sum(-1).numpy()
        advance(len(batch))
    return SentenceScores(nll, np.array([len(target) + 1 for target in targets], dtype=np.int64))


Inputs = dict[str, NDArray[np.int64]]


def text_batches(
    sentences: Sequence[Ids], eos: int, limit: int | None, batch_tokens: int = 4096
) -> Iterator[tuple[list[ScoredPiece], Inputs, NDArray[np.int64]]]:
    """Sentences in batches, long ones in pieces: the pieces, what a causal model reads, and the labels; by length."""
    rows = _pieces(sentences, eos, limit)
    for batch in length_batches([len(row.inputs) for row in rows], tokens=batch_tokens):
        chosen = [rows[number] for number in batch]
        inputs = padded([row.inputs for row in chosen], eos)
        yield chosen, {"input_ids": inputs}, padded([row.labels for row in chosen], IGNORED)


def pair_batches(
    sources: Sequence[Ids], targets: Sequence[Ids], eos: int, pad: int, batch_tokens: int = 4096
) -> Iterator[tuple[NDArray[np.int64], Inputs, NDArray[np.int64]]]:
    """Pairs in batches: their numbers, what a translation model reads, and the labels; by length."""
    if len(sources) != len(targets) or not len(targets):
        raise InputError(
            f"{len(sources)} sources and {len(targets)} targets cannot be scored",
            hint="pass one source for each target",
        )
    for batch in length_batches([len(target) + 1 for target in targets], tokens=batch_tokens):
        yield batch, *pair_inputs([sources[i] for i in batch], [targets[i] for i in batch], eos, pad)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch gradients and dropout off, and restore the model's mode afterwards."""
    import torch

    training = model.training
    try:
        with torch.inference_mode():
            if training:
                model.eval()
            yield
    finally:
        if training:
            model.train()


class ScoredPiece(NamedTuple):
    """A part of a sentence that the model reads at once."""

    sentence: int
    start: int
    """where in the sentence it begins"""
    new: int
    """how many of its first labels are context only, scored in the piece before"""
    inputs: Ids
    labels: Ids


def _pieces(sentences: Sequence[Ids], eos: int, limit: int | None) -> list[ScoredPiece]:
    if not len(sentences):
        raise InputError("there are no sentences to score", hint="pass a text that is not empty")
    found = []
    for number, sentence in enumerate(sentences):
        whole = np.concatenate([[eos], sentence, [eos]])
        length = len(sentence) + 1
        for start, new, end in pieces(length, limit or length, (limit or 0) // 2):
            labels = whole[start + 1 : end + 1].copy()
            labels[: new - start] = IGNORED
            found.append(ScoredPiece(number, start, new - start, whole[start:end], labels))
    return found


def _losses(model: Any, inputs: Inputs, labels: NDArray[np.int64]) -> Tensor:
    """Negative log-likelihoods in float64 on the CPU, zero where the label is ignored; (batch, time)."""
    import torch

    logits = logits_of(model, inputs)
    with torch.inference_mode():
        return _token_nll(logits, torch.from_numpy(labels).to(logits.device)).double().cpu()


def logits_of(model: Any, inputs: Inputs) -> Tensor:
    """The logits of a model that is only used, on its device; (batch, time, V)."""
    import torch

    device = next(model.parameters()).device
    with evaluating(model):
        logits: Tensor = model(**{name: torch.from_numpy(array).to(device) for name, array in inputs.items()}).logits
    return logits


def _token_nll(logits: Tensor, labels: Tensor) -> Tensor:
    """Per position, zero where the label is ignored; (batch, time)."""
    from torch.nn.functional import cross_entropy

    flat = cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return flat.view(labels.shape)


def perplexity_of(loss: float) -> float:
    """Exp of a mean negative log-likelihood; infinite where that is too large."""
    return math.exp(loss) if loss < 700 else math.inf
