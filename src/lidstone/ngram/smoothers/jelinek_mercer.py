"""Jelinek-Mercer: a fixed weight for each order, the rest for the orders below.

    p_k(w|h) = lam_k c(hw)/c(h) + (1 - lam_k) p_{k-1}(w|h'),      p_0 uniform over E                            (1)

An unseen history passes through to h'. Grounded in the unigram, lam_1 is 1: then a word that the text lacks has the
probability zero after every history. The weights are given, or learnt from held-out text by expectation-maximisation.

Read the model as a walk: at each order from the top, stop with the weight lam_k and draw the word from c(hw)/c(h), or
go on to the order below. Given the word, the share of walks that stopped at k is known; averaged over the held-out
text it is the next lam_k. No step can make the text less likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.jit import kernel
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import BlockFit, BlockSmoother, Floats, HistoryBlock, uniform, unigrams
from lidstone.ngram.trie import find_child, sum_children
from lidstone.text.datasets import Sentences, id_stream


@dataclass(frozen=True)
class JelinekMercer(BlockSmoother):
    """Jelinek-Mercer interpolation.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> JelinekMercer(weights=0.5).fit(counts).prob([[], [1]]).round(4).tolist()   # (2/5, 2/5, 1/5)/2 + (1/3)/2, ...
    [[0.3667, 0.3667, 0.2667], [0.4333, 0.1833, 0.3833]]
    """

    name: ClassVar[str] = "jelinek-mercer"
    weights: float | tuple[float, ...] = 0.75
    """lam_k from 0 to 1: one number for every order, or one for each, lowest first"""
    base: Literal["uniform", "unigram"] = "uniform"
    """what the recursion ends in; unigram means lam_1 = 1, and a sequence of weights may begin with that of order 2"""

    def __post_init__(self) -> None:
        plain = float(self.weights) if np.ndim(self.weights) == 0 else tuple(map(float, self.weights))  # type: ignore
        object.__setattr__(self, "weights", plain)
        if self.base not in ("uniform", "unigram"):
            raise InputError(f"base must be 'uniform' or 'unigram', not {self.base!r}")
        if not all(0 <= weight <= 1 for weight in np.atleast_1d(self.weights)):
            raise InputError(f"weights must be from 0 to 1, not {self.weights}", hint="the paper uses 0.25, 0.5, 0.75")

    def prepare(self, counts: Counts) -> BlockFit:
        """The share of c(hw)/c(h) is that of its order."""
        lam = self.per_order(counts.order)[0]
        return BlockFit.interpolated(lam * unigrams(counts) + (1 - lam) * uniform(counts), self._share)  # (1)

    def _share(self, block: HistoryBlock) -> Floats:
        lam = self.per_order(block.source.order)[block.order - 1]  # a history of k words belongs to order k + 1
        return np.full(block.stop - block.start, lam)

    def per_order(self, order: int) -> tuple[float, ...]:
        """lam_1 .. lam_n.

        >>> JelinekMercer(0.6).per_order(3), JelinekMercer(0.6, base="unigram").per_order(3)
        ((0.6, 0.6, 0.6), (1.0, 0.6, 0.6))
        """
        grounded = self.base == "unigram"
        if not isinstance(self.weights, tuple):
            return (1.0 if grounded else self.weights, *[self.weights] * (order - 1))
        if grounded and len(self.weights) == order - 1:
            return (1.0, *self.weights)
        if len(self.weights) != order or (grounded and self.weights[0] != 1):
            raise InputError(
                f"{len(self.weights)} weights {self.weights} do not fit order {order} with base='{self.base}'",
                hint="give one per order, lowest first; with base='unigram', begin with that of the bigrams",
            )
        return self.weights

    @classmethod
    def learn(
        cls,
        counts: Counts,
        held_out: Sentences,
        *,
        base: Literal["uniform", "unigram"] = "uniform",
        start: float | Sequence[float] = 0.5,
        tolerance: float = 1e-9,
        iterations: int = 1000,
    ) -> JelinekMercer:
        """The weights that make held-out text most likely, found by EM; the text must not be part of the counts.

        >>> from lidstone.ngram.counts import count
        >>> from lidstone.text.vocabulary import Vocabulary
        >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
        >>> [round(weight, 3) for weight in JelinekMercer.learn(counts, [[1, 2], [2]]).weights]
        [0.0, 0.662]
        """
        begin = cls(weights=start, base=base)  # type: ignore[arg-type]
        seen = observe(counts, held_out)
        found = learn_weights(seen, begin.per_order(counts.order), tolerance=tolerance, iterations=iterations)
        return cls(weights=found.weights, base=base)


@dataclass(frozen=True, eq=False)
class Observed:
    """What each order says of every held-out word; all arrays are (order, words)."""

    known: NDArray[np.bool_]
    """whether the text has this history of k-1 words"""
    likely: Floats
    """c(hw)/c(h), 0 where not known"""
    dropped: Floats
    """the part of c(h) that thresholds dropped: a walk that stops there continues all the same"""
    floor: float
    """the uniform probability"""


@dataclass(frozen=True)
class LearntWeights:
    """Weights, lowest order first, and the mean log-likelihood before each step and after the last."""

    weights: tuple[float, ...]
    trace: tuple[float, ...]


def observe(counts: Counts, held_out: Sentences) -> Observed:
    """Look every word of the held-out sentences up at all orders."""
    vocab = counts.vocab
    stream = id_stream(held_out, vocab)
    if not len(stream):
        raise InputError("there is no held-out text to learn from", hint="give sentences that were not counted")
    trie, totals = counts.trie, counts.totals
    kept = sum_children(trie.first, counts.counts)
    arrays = trie.first, trie.words, trie.suffixes, counts.counts, totals, kept
    known, likely, dropped = _observe(*arrays, counts.tokens, stream, vocab.bos, counts.order)
    return Observed(known, likely, dropped, 1 / vocab.event_count)


def learn_weights(
    seen: Observed, start: Sequence[float], *, tolerance: float = 1e-9, iterations: int = 1000
) -> LearntWeights:
    """Repeat `step` until the mean log-likelihood grows by less than `tolerance`; a weight of 1 at order 1 stays."""
    lam = np.array(start)
    possible = mixture(seen, lam)[-1] > 0
    if not possible.any():
        raise InputError("no held-out word has a probability above zero", hint="use base='uniform'")
    seen = Observed(seen.known[:, possible], seen.likely[:, possible], seen.dropped[:, possible], seen.floor)
    trace = [_mean_log(seen, lam)]
    for _ in range(iterations):
        lam = step(seen, lam)
        trace.append(_mean_log(seen, lam))
        if trace[-1] - trace[-2] < tolerance:
            break
    return LearntWeights(tuple(lam.tolist()), tuple(trace))


def mixture(seen: Observed, lam: Floats) -> Floats:
    """p_0 .. p_n of every word: (order + 1, words)."""
    below = np.full(seen.known.shape[1], seen.floor)
    out = [below]
    for k in range(len(lam)):
        stop = seen.known[k] * lam[k]
        out.append(stop * seen.likely[k] + (1 - stop * (1 - seen.dropped[k])) * out[-1])
    return np.array(out)


def step(seen: Observed, lam: Floats) -> Floats:
    """One round of EM: the weights from the share of walks that stop at each order."""
    probability = mixture(seen, lam)
    new = lam.copy()
    arrived = np.ones(seen.known.shape[1])  # share of walks, given the word, that come as far down as order k
    for k in reversed(range(len(lam))):
        stop = seen.known[k] * lam[k]
        drawn = arrived * stop * seen.likely[k] / probability[k + 1]
        further = arrived - drawn
        on = 1 - stop * (1 - seen.dropped[k])  # > 0 where anything goes further
        stopped = drawn + further * np.divide(stop * seen.dropped[k], on, out=np.zeros_like(on), where=on > 0)
        reached = arrived[seen.known[k]].sum()
        if reached > 0:
            new[k] = min(stopped[seen.known[k]].sum() / reached, 1.0)
        arrived = further
    return new


def _mean_log(seen: Observed, lam: Floats) -> float:
    return float(np.log(mixture(seen, lam)[-1]).mean())


@kernel
def _observe(first, words, suffixes, counts, totals, kept, tokens, stream, bos, order):  # type: ignore[no-untyped-def]
    known = np.zeros((order, len(stream)), np.bool_)
    likely, dropped = np.zeros((order, len(stream))), np.zeros((order, len(stream)))
    end, state, depth = 0, np.int64(-1), 0  # depth: how many words the state's history has
    for word in stream:
        if word == bos:
            state, depth = (np.int64(bos), 1) if order > 1 else (np.int64(-1), 0)
            continue
        child = longest = np.int64(-1)
        length = 1
        while state >= 0:
            child = suffixes[child] if child >= 0 else find_child(first, words, state, word)
            if child >= 0 and longest < 0:
                longest, length = child, depth + 1
            if totals[state] > 0:
                known[depth, end] = True
                likely[depth, end] = counts[child] / totals[state] if child >= 0 else 0.0
                dropped[depth, end] = 1 - kept[state] / totals[state]
            state, depth = np.int64(suffixes[state]), depth - 1
        known[0, end], likely[0, end] = True, counts[word] / tokens
        end += 1
        longest = longest if longest >= 0 else np.int64(word)
        state, depth = (longest, length) if length < order else (np.int64(suffixes[longest]), length - 1)
    return known[:, :end], likely[:, :end], dropped[:, :end]
