"""Good-Turing: what was seen r times is as likely as what was seen r+1 times makes it, r* = (r+1) n_{r+1} / n_r.

`simple_good_turing` is Gale & Sampson's (1995) Simple Good-Turing: the n_r of rare counts as they are, and a line
through log n_r for the rest. It adjusts the counts r to r* and reserves the mass P_0 = n_1 / N for the unseen. As
printed in the paper that is a joint probability; the smoother makes it conditional:

    p(w|h) = r*(c(hw)) / norm(h),      r*(0) = n_1 / N_0,      norm(h) makes the sum over E one                 (1)

The n_r are those of the n-grams that have a whole history. N_0 is how many of these were not seen: |E| times the
histories, less the distinct n-grams; if it is zero, nothing is reserved. An unseen history: uniform.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lidstone.errors import InputError, SmoothingUndefined
from lidstone.ngram.adjusted import LARGEST
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import BlockFit, BlockSmoother, Floats, Ints, copy_fit, pseudo_counts
from lidstone.ngram.smoothers.registry import get_smoother, smoother_class
from lidstone.ngram.trie import chunks

CHUNK = 1 << 20
"""Nodes that are looked at together, so that nothing of the size of the counts is copied."""


@dataclass(frozen=True, eq=False)
class Adjusted:
    """The outcome of Simple Good-Turing."""

    frequencies: NDArray[np.int64]
    """r, ascending"""
    adjusted: NDArray[np.float64]
    """r* of each, such that they and the unseen mass sum to N"""
    total: int
    """N, the size of the sample"""
    unseen: float
    """P_0 = n_1 / N, the mass of all that was not seen"""
    slope: float
    """of the line through log n_r; the theory requires a slope below -1"""
    switch: int
    """the first r that is taken from the line"""


def simple_good_turing(frequencies: ArrayLike, counts_of_counts: ArrayLike, confidence: float = 1.65) -> Adjusted:
    """Adjust counts by Simple Good-Turing: n_r things were seen r times.

    >>> found = simple_good_turing([1, 2, 3, 4, 6], [10, 4, 2, 1, 1])
    >>> found.total, found.unseen, found.adjusted.round(3).tolist()
    (34, 0.294..., [0.556, 1.392, 2.289, 3.21, 5.081])
    """
    r, n = (np.asarray(values, np.int64) for values in (frequencies, counts_of_counts))
    if len(r) < 2 or r.shape != n.shape or r[0] < 1 or (np.diff(r) <= 0).any() or (n < 1).any():
        raise SmoothingUndefined(
            f"Simple Good-Turing needs two or more ascending frequencies with their counts, not {len(r)}",
            hint="use more text",
        )
    total = int(r @ n)
    unseen = float(n[0] / total) if r[0] == 1 else 0.0
    slope = _slope(r, n)
    linear = r * (1 + 1 / r) ** (slope + 1)
    turing, deviation = _turing(r, n)
    plain = (turing > 0) & (abs(turing - linear) > confidence * deviation)
    first_linear = int(np.argmin(np.append(plain, False)))  # from the first r taken from the line on, all are
    raw = np.where(np.arange(len(r)) < first_linear, turing, linear)
    switch = int(r[min(first_linear, len(r) - 1)])
    return Adjusted(r, raw * (1 - unseen) * total / (raw @ n), total, unseen, slope, switch)


def _slope(r: NDArray[np.int64], n: NDArray[np.int64]) -> float:
    """Of log Z_r on log r, where Z_r spreads n_r over the gap to its neighbours."""
    before = np.append(0, r[:-1])
    after = np.append(r[1:], 2 * r[-1] - before[-1])
    return float(np.polyfit(np.log(r), np.log(2 * n / (after - before)), 1)[0])


def _turing(r: NDArray[np.int64], n: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turing's r* = (r+1) n_{r+1} / n_r and its standard deviation; both zero where n_{r+1} = 0."""
    follows = np.append(np.diff(r) == 1, False)
    ratio = np.where(follows, np.append(n[1:], 0), 0) / n
    return (r + 1) * ratio, np.asarray((r + 1) * np.sqrt(ratio / n * (1 + ratio)), np.float64)


@dataclass(frozen=True)
class GoodTuring(BlockSmoother):
    """Simple Good-Turing smoothing of the n-grams, made conditional.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[1, 1, 1, 2, 2, 3, 4]], Vocabulary(size=7, eos=0), order=1)
    >>> GoodTuring().fit(counts).prob([[]]).round(3).tolist()    # P_0 = 3/8, shared by the unseen 5 and 6
    [[0.077, 0.237, 0.157, 0.077, 0.077, 0.188, 0.188]]
    >>> GoodTuring().fit(count([[1, 2]], Vocabulary(size=3, eos=0), order=1))
    Traceback (most recent call last):
    lidstone.errors.SmoothingUndefined: good-turing is undefined for order 1: ... counts of counts are {1: 3}. ...
    """

    name: ClassVar[str] = "good-turing"
    confidence: float = 1.65
    """Turing's estimate is used while it is this many standard deviations off the line; 1.65 or 1.96"""
    fallback: str | None = None
    """the smoother, such as add-lambda, to use where the counts of counts leave this one undefined"""

    def __post_init__(self) -> None:
        if not self.confidence > 0:
            raise InputError(f"confidence must be positive, not {self.confidence}", hint="1.65 or 1.96")
        if self.fallback == "good-turing":
            raise InputError("good-turing cannot be its own fallback", hint="fallback='add-lambda'")
        if self.fallback is not None:
            smoother_class(self.fallback)  # a wrong name is refused at once

    def prepare(self, counts: Counts) -> BlockFit:
        """Every event weighs r* of its count."""
        r, n = _frequencies(counts)
        if self._undefined(counts, r, n):
            return replace(self._fallback_fit(counts), notes={"fallback_orders": [counts.order]})
        found, unseen_types = simple_good_turing(r, n, self.confidence), _unseen_types(counts)
        unseen = n[0] / unseen_types if unseen_types else 0.0  # r*(0) of (1)
        notes = {"slope": found.slope, "unseen": float(unseen)}
        return pseudo_counts(counts, partial(_weights, found, unseen), unseen, notes)

    def _fallback_fit(self, counts: Counts) -> BlockFit:
        other = get_smoother(str(self.fallback))
        return other.prepare(counts) if isinstance(other, BlockSmoother) else copy_fit(other.fit(counts))

    def _undefined(self, counts: Counts, r: NDArray[np.int64], n: NDArray[np.int64]) -> bool:
        """Without two frequencies there is no line; without n_1, or with nothing else, there is no P_0."""
        some = dict(zip(r[:4].tolist(), n[:4].tolist(), strict=True))
        undefined = 1 not in some or len(some) < 2
        if undefined and self.fallback is None:
            raise SmoothingUndefined(
                f"good-turing is undefined for order {counts.order}: it needs n-grams that occur once and others that "
                f"occur more often, and the counts of counts are {some}",
                hint="use more text, or fallback='add-lambda'",
            )
        return undefined


def _weights(found: Adjusted, unseen: float, counts: Ints, whole: NDArray[np.bool_]) -> Floats:
    """r* of the n-grams with a whole history that occur; the rest does not matter."""
    weights = np.where(counts > 0, counts, unseen)
    seen = whole & (counts > 0)
    place = np.searchsorted(found.frequencies, counts[seen]).clip(max=len(found.frequencies) - 1)
    weights[seen] = found.adjusted[place]
    return weights


def _frequencies(counts: Counts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """R and n_r of all n-grams with a whole history: the top order, and shorter ones that begin with `<s>`."""
    top = counts.counts_of_counts(counts.order)[:LARGEST]
    *others, whole_order = _parts_with_whole_histories(counts)
    parts = [(piece, 1) for part in others for piece in chunks(part, CHUNK)]
    parts += [(piece, LARGEST) for piece in chunks(whole_order, CHUNK)]
    values, weights = zip((np.arange(len(top)), top), *counts.over(_frequent, parts), strict=True)
    r, place = np.unique(np.concatenate(values), return_inverse=True)
    n = np.zeros(len(r), np.int64)
    np.add.at(n, place, np.concatenate(weights))
    some = (r > 0) & (n > 0)
    return r[some].astype(np.int64), n[some]


def _frequent(counts: Counts, part: tuple[slice, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The counts in a part from some r on, and how often each is there."""
    piece, least = part
    chunk = counts.counts[piece]
    found, often = np.unique(chunk[chunk >= least], return_counts=True)
    return found.astype(np.int64), often.astype(np.int64)


def _parts_with_whole_histories(counts: Counts) -> list[slice]:
    """The nodes of n-grams with a whole history: words where there are no longer ones; else as in `_frequencies`."""
    return [slice(0, counts.vocab.size)] if counts.order == 1 else counts.trie.after_whole_histories()


def _unseen_types(counts: Counts) -> int:
    """How many n-grams with a whole history do not occur."""
    seen = sum(counts.over(_occurring, _pieces(_parts_with_whole_histories(counts))))
    if counts.order == 1:
        return counts.vocab.event_count - seen
    histories = sum(counts.over(_followed, _pieces(counts.trie.whole_histories())))
    return counts.vocab.event_count * histories - seen


def _pieces(parts: list[slice]) -> list[slice]:
    return [piece for part in parts for piece in chunks(part, CHUNK)]


def _occurring(counts: Counts, part: slice) -> int:
    return int(np.count_nonzero(counts.counts[part] > 0))


def _followed(counts: Counts, part: slice) -> int:
    return int(np.count_nonzero(counts.totals[part] > 0))
