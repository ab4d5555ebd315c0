"""Theorem 4: the exact token form with a uniform p~ is label smoothing, in each toolkit's convention of its strength.

With V ids, strength g and label y the target is (1 - g) onehot(y) + g u. Toolkits spread their eps differently:

    torch, transformers   1 - eps + eps/V on y, eps/V elsewhere                    g = eps
    fairseq               1 - eps on y, eps/(V-1) elsewhere                        g = eps V/(V-1)
    JoeyNMT               1 - eps on y, 0 on padding, eps/(V-2) elsewhere          g = eps (V-1)/(V-2), padding not in E
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lidstone.loss.losses import SmoothedCrossEntropy
from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.base import empty_level
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary

SIZE, PAD = 11, 10
WHOLE = Vocabulary(size=SIZE, eos=0)
PADDED = Vocabulary(size=SIZE, eos=0, unpredictable=(PAD,))
STRENGTHS = (0.0001, 0.1, 0.5, 0.9)


def uniform_table(vocab, order=2):
    """A table that gives every event the same probability after every history."""
    counts = count([[1, 2, 3], [2, 2]], vocab, order)
    return BackoffTable(
        vocab, counts.trie, vocab.events / vocab.event_count, *empty_level(counts), {"smoother": "uniform"}
    )


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(3, 6, SIZE, generator=generator)
    labels = torch.randint(0, PAD, (3, 6), generator=generator)
    labels[1, 4:] = -100
    return logits, labels


def value_and_gradient(function, logits):
    z = logits.clone().requires_grad_()
    value = function(z)
    value.backward()
    return value.detach(), z.grad


def agree(one, other):
    torch.testing.assert_close(one[0], other[0], rtol=2e-6, atol=0)
    torch.testing.assert_close(one[1], other[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("g", STRENGTHS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_torch(g, order, reduction):
    logits, labels = batch()
    loss = SmoothedCrossEntropy(uniform_table(WHOLE, order), gamma=g, reduction=reduction)
    ours = value_and_gradient(lambda z: loss(z, labels).total, logits)
    theirs = value_and_gradient(
        lambda z: F.cross_entropy(z.reshape(-1, SIZE), labels.reshape(-1), label_smoothing=g, reduction=reduction),
        logits,
    )
    agree(ours, theirs)


@pytest.mark.parametrize("g", STRENGTHS)
def test_position_by_position(g):
    logits, labels = batch(1)
    loss = SmoothedCrossEntropy(uniform_table(WHOLE), gamma=g, reduction="none")
    ours = loss(logits.requires_grad_(), labels).total
    theirs = F.cross_entropy(logits.reshape(-1, SIZE), labels.reshape(-1), label_smoothing=g, reduction="none")
    torch.testing.assert_close(ours, theirs.reshape(3, 6), rtol=1e-5, atol=2e-6)


def fairseq(logits, labels, eps):
    """fairseq's label_smoothed_nll_loss in our words: eps/(V-1) to every id, and the rest of 1 - eps to the label."""
    log_q = F.log_softmax(logits, -1)
    kept = labels >= 0
    nll = -log_q.gather(-1, labels.clamp(min=0)[..., None])[..., 0][kept].sum()
    everything = -log_q.sum(-1)[kept].sum()
    share = eps / (SIZE - 1)
    return (1 - eps - share) * nll + share * everything


@pytest.mark.parametrize("eps", [0.1, 0.3])
def test_fairseq(eps):
    logits, labels = batch(2)
    loss = SmoothedCrossEntropy(uniform_table(WHOLE), gamma=eps * SIZE / (SIZE - 1), reduction="sum")
    agree(
        value_and_gradient(lambda z: loss(z, labels).total, logits),
        value_and_gradient(lambda z: fairseq(z, labels, eps), logits),
    )


def joeynmt_target(labels, eps):
    """JoeyNMT's XentLoss target in our words: eps/(V-2) everywhere but on the label and on padding."""
    target = torch.full((len(labels), SIZE), eps / (SIZE - 2))
    target[:, PAD] = 0
    target[torch.arange(len(labels)), labels] = 1 - eps
    return target


@pytest.mark.parametrize("eps", [0.1, 0.3])
def test_joeynmt(eps):
    """Its KL divergence and our cross-entropy differ by the entropy of the target, which has no gradient."""
    logits, labels = batch(3)
    kept = labels >= 0
    target = joeynmt_target(labels[kept], eps)
    entropy = -torch.special.xlogy(target, target).sum()
    loss = SmoothedCrossEntropy(uniform_table(PADDED), gamma=eps * (SIZE - 1) / (SIZE - 2), reduction="sum")
    agree(
        value_and_gradient(lambda z: loss(z, labels).total - entropy, logits),
        value_and_gradient(lambda z: F.kl_div(F.log_softmax(z[kept], -1), target, reduction="sum"), logits),
    )


def test_padding_outside_the_event_space_gets_nothing():
    """torch's own label smoothing gives eps/V to padding too; with padding declared, ours does not."""
    logits, labels = batch(4)
    loss = SmoothedCrossEntropy(uniform_table(PADDED), gamma=0.3, reduction="sum")
    _, ours = value_and_gradient(lambda z: loss(z, labels).total, logits)
    q = torch.softmax(logits, -1)
    kept = labels >= 0
    torch.testing.assert_close(ours[kept][:, PAD], q[kept][:, PAD], rtol=1e-5, atol=1e-7)
    assert np.isclose(uniform_table(PADDED).prob([[1]])[0, :PAD], 0.1).all()
