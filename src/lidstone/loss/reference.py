"""The dense reference: the same loss written out as a matrix of targets, slow and obvious.

Nothing here shares code with the kernels: histories are those of `text.history.histories_of`, the empirical
distribution is counted with a dictionary, the target is a (positions, V) tensor in float64, and autograd does the
gradient.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from lidstone.loss.targets import holds_all_ngrams
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary

Ids = Sequence[int]


def empirical_row(sentences: Sequence[Ids], history: tuple[int, ...], vocab: Vocabulary, order: int) -> Tensor | None:
    """c(h, w) / c(h) over the vocabulary, counted from the sentences; None where h is cut short or never occurs."""
    if len(history) < order - 1 and history[:1] != (vocab.bos,):
        return None
    followers: Counter[int] = Counter()
    for sentence in sentences:
        text = (vocab.bos, *sentence, vocab.eos)
        for end in range(1, len(text)):
            if text[max(0, end - order + 1) : end] == history or (order == 1 and not history):
                followers[text[end]] += 1
    if not followers:
        return None
    row = torch.zeros(vocab.size, dtype=torch.float64)
    for word, times in followers.items():
        row[word] = times / followers.total()
    return row


def dense_target(
    table: BackoffTable,
    sentences: Sequence[Ids],
    history: tuple[int, ...],
    label: int,
    *,
    gamma_plus: float,
    gamma_minus: float,
    form: str,
    empirical: str,
) -> Tensor:
    """Onehot + gamma_plus (p~ - p)_+  -/+ gamma_minus (p - p~)_+, minus in the exact form; (V,) float64.

    The onehot alone for a label that the table never predicts.
    """
    onehot = torch.zeros(table.vocab.size, dtype=torch.float64)
    onehot[label] = 1
    row = onehot if empirical == "token" else empirical_row(sentences, history, table.vocab, table.order)
    if row is None or not is_predicted(table, label):
        return onehot
    delta = torch.tensor(table.prob([history])[0]) - row
    sign = 1 if form == "published" else -1  # the table of docs/theory.md, section 5
    return onehot + gamma_plus * delta.clamp(min=0) + sign * gamma_minus * (-delta).clamp(min=0)


def taught_target(
    ids: Ids,
    logprobs: Sequence[float],
    label: int,
    tail: Tensor | str,  # a distribution (V,), "drop" or "renormalize"
    *,
    gamma: float,
    size: int,
) -> tuple[Tensor, Tensor]:
    """The target (1 - gamma) onehot + gamma teacher, and the completed teacher; each (V,) float64.

    A teacher of nothing leaves the onehot.
    """
    onehot, teacher = (torch.zeros(size, dtype=torch.float64) for _ in range(2))
    onehot[label] = 1
    others = torch.ones(size, dtype=torch.bool)
    for word, logprob in zip(ids, logprobs, strict=True):
        if word >= 0:
            teacher[word], others[word] = math.exp(logprob), False
    if isinstance(tail, Tensor) and tail[others].sum() > 1e-3:
        teacher[others] = (1 - teacher.sum()) * tail[others] / tail[others].sum()
    elif not isinstance(tail, str) or tail == "renormalize":
        teacher /= teacher.sum().clamp(min=1e-300)
    return (1 - gamma) * onehot + gamma * teacher if teacher.sum() > 0 else onehot, teacher


def is_predicted(table: BackoffTable, label: int) -> bool:
    """Does the table know this word? Not if it has no probability, or if the text never had it."""
    alone = table.prob([()])[0]
    if not holds_all_ngrams(table.signature):
        return bool(alone[label] > 0)  # the n-grams that are left do not tell which words the text had
    in_ngrams = {table.trie.ngram(node)[-1] for node in range(table.vocab.size + 1, table.trie.size)}
    rarer = all(alone[label] < alone[word] for word in in_ngrams) and bool(in_ngrams)
    return bool(alone[label] > 0) and (label in in_ngrams or not rarer)


def dense_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with given targets, summed over positions; logits and targets (positions, V)."""
    return -(targets * torch.log_softmax(logits.double(), -1)).sum()
