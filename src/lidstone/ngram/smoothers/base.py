"""What smoothers share: the protocol, the unigram level, discounting, and the making of a table."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import sum_children


@runtime_checkable
class Smoother(Protocol):
    """Anything that turns counts into a table. Settings are the fields of a frozen dataclass."""

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        ...


def make_table(
    smoother: Any,
    name: str,
    counts: Counts,
    base: NDArray[np.float64],
    rows: NDArray[np.float64],
    backoffs: NDArray[np.float64],
    **notes: Any,
) -> BackoffTable:
    """A table whose signature says how it was made; `notes` are facts found while fitting, such as discounts."""
    signature = {
        "smoother": name,
        "parameters": dataclasses.asdict(smoother),
        "order": counts.order,
        "thresholds": list(counts.thresholds),
        "vocabulary": counts.vocab.fingerprint,
        "counts": counts.fingerprint,
        **notes,
    }
    return BackoffTable(counts.vocab, counts.trie, base, rows, backoffs, signature)


def uniform(counts: Counts) -> NDArray[np.float64]:
    """The uniform distribution over the event space; (V,)."""
    return counts.vocab.events / counts.vocab.event_count


def empty_level(counts: Counts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows of zeros and backoffs of ones: a table that passes everything through to its base."""
    return np.zeros(counts.trie.size), np.ones(counts.trie.inner)


def full_histories(counts: Counts) -> NDArray[np.bool_]:
    """Which nodes are whole histories: n-1 words, or fewer after `<s>`; (inner,)."""
    trie = counts.trie
    mask = np.zeros(trie.inner, bool)
    for order in range(1, trie.order):
        mask[trie.sentence_starts(order)] = True
    if trie.order > 1:
        mask[trie.level(trie.order - 1)] = True
    return mask


@njit(cache=True, nogil=True)
def discount_children(first, counts, totals, discounts, start, stop, rows, backoffs):  # type: ignore[no-untyped-def]
    """For the histories start..stop: rows = (c - D[min(c, 3)]) / total, and what is taken away becomes the backoff.

    `totals` may exceed the sum of the counts (thresholds dropped some): that mass, too, goes to the backoff.
    """
    for history in range(start, stop):
        total, kept = totals[history], 0.0
        if total == 0:
            continue
        for child in range(first[history], first[history + 1]):
            count = counts[child]
            if count > 0:
                rows[child] = max(count - discounts[min(count, 3)], 0.0) / total
                kept += max(count - discounts[min(count, 3)], 0.0)
        backoffs[history] = (total - kept) / total


def discounted_unigrams(
    weights: NDArray[np.int64], discounts: NDArray[np.float64], floor: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(c - D(c)) / total + (mass taken away) * floor, over the whole vocabulary."""
    total = weights.sum()
    kept = np.maximum(weights - discounts[np.minimum(weights, 3)], 0.0) * (weights > 0)
    return kept / total + (total - kept.sum()) / total * floor


def interpolate(
    counts: Counts,
    weights: NDArray[np.int64],
    totals: NDArray[np.int64],
    discounts: NDArray[np.float64],  # (order, 4): D for counts 0, 1, 2 and 3 or more
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Base, rows and backoffs of interpolated discounting at every order; unigrams rest on the uniform."""
    rows, backoffs = empty_level(counts)
    for order in range(2, counts.order + 1):
        histories = counts.trie.level(order - 1)
        discount_children(
            counts.trie.first,
            weights,
            totals,
            discounts[order - 1],
            histories.start,
            histories.stop,
            rows,
            backoffs,
        )
    base = discounted_unigrams(weights[: counts.vocab.size], discounts[0], uniform(counts))
    return base, rows, backoffs


def pseudo_counts(
    counts: Counts, weights: NDArray[np.floating], unseen: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Base, rows and backoffs of p(w|h) = weight(hw) / (sum over E), where an unseen event weighs `unseen`.

    Only whole histories (n-1 words, or fewer after `<s>`) have rows; the rest is the uniform distribution:
    (weight - unseen)/norm + (unseen |E| / norm) * uniform.
    """
    events = counts.vocab.event_count
    if counts.order == 1:
        seen = counts.counts[: counts.vocab.size] > 0
        base = np.where(seen, weights[: counts.vocab.size], unseen) * counts.vocab.events
        return base / base.sum(), *empty_level(counts)
    rows, backoffs = empty_level(counts)
    excess = weights - unseen
    excess[: counts.trie.levels[1]] = 0
    whole = full_histories(counts)
    norms = np.where(whole, sum_children(counts.trie.first, excess) + unseen * events, 1.0)
    children = np.repeat(whole / norms, np.diff(counts.trie.first))
    rows[counts.trie.levels[1] :] = excess[counts.trie.levels[1] :] * children
    backoffs[whole] = unseen * events / norms[whole]
    return uniform(counts), rows, backoffs
