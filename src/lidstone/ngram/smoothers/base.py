"""What smoothers share: the protocol, the making of a table, and the two plain ways to fill it.

`mix` gives c(hw)/c(h) a share of each history's mass and leaves the rest to the order below; `pseudo_counts` gives
every event a weight and normalises. Discounting stands in `discounting`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import sum_children

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]


@runtime_checkable
class Smoother(Protocol):
    """Anything that turns counts into a table. Settings are the fields of a frozen dataclass."""

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        ...


class FallbackUsed(UserWarning):
    """A smoother was undefined for some order and used the fallback it was given."""


def announce_fallback(name: str, fallback: Any, orders: Sequence[int], *, stacklevel: int = 3) -> None:
    """Warn, where there is need, that these orders were estimated by the fallback."""
    if orders:
        which = ", ".join(map(str, orders))
        warnings.warn(f"{name} uses its fallback {fallback} for order {which}", FallbackUsed, stacklevel=stacklevel)


def make_table(
    smoother: Any, name: str, counts: Counts, base: Floats, rows: Floats, backoffs: Floats, **notes: Any
) -> BackoffTable:
    """A table whose signature says how it was made; `notes` are facts found while fitting, such as discounts."""
    signature: Any = partial(make_signature, smoother, name, _bare(counts), notes)
    return BackoffTable(counts.vocab, counts.trie, base, rows, backoffs, signature)


def _bare(counts: Counts) -> Counts:
    """The counts without what is derived from them, which would stay in memory until the signature is made."""
    return counts if "fingerprint" in vars(counts) or "derived" not in vars(counts) else dataclasses.replace(counts)


def make_signature(smoother: Any, name: str, counts: Counts, notes: Mapping[str, Any]) -> dict[str, Any]:
    """What a table is: the smoother, its settings, the counts, and the facts found while fitting."""
    return {
        "smoother": name,
        "parameters": dataclasses.asdict(smoother),
        "order": counts.order,
        "thresholds": list(counts.thresholds),
        "vocabulary": counts.vocab.fingerprint,
        "counts": counts.fingerprint,
        **notes,
    }


def uniform(counts: Counts) -> Floats:
    """The uniform distribution over the event space; (V,)."""
    return counts.vocab.events / counts.vocab.event_count


def unigrams(counts: Counts) -> Floats:
    """The maximum-likelihood unigram distribution; (V,)."""
    return counts.counts[: counts.vocab.size] / counts.tokens


def empty_level(counts: Counts) -> tuple[Floats, Floats]:
    """Rows of zeros and backoffs of ones: a table that passes everything through to its base."""
    return np.full(counts.trie.size, 0.0), np.ones(
        counts.trie.num_histories
    )  # np.zeros would get its memory page by page


def whole_histories(counts: Counts) -> NDArray[np.bool_]:
    """Which nodes are whole histories: n-1 words, or fewer after `<s>`; (num_histories,)."""
    trie = counts.trie
    mask = np.zeros(trie.num_histories, bool)
    for order in range(1, trie.order):
        mask[trie.sentence_starts(order)] = True
    if trie.order > 1:
        mask[trie.level(trie.order - 1)] = True
    return mask


def to_children(counts: Counts, values: NDArray[Any]) -> NDArray[Any]:
    """The value of each history at every one of its followers, in the order of the nodes from the 2-grams on."""
    return np.repeat(values, np.diff(counts.trie.first))


def mix(counts: Counts, share: Floats) -> tuple[Floats, Floats]:
    """Rows and backoffs of p(w|h) = share(h) c(hw)/c(h) + (1 - share(h)) p(w|h'); `share` is (num_histories,).

    c(h) is of the whole text, so the counts that thresholds dropped go to the order below, like the rest.
    """
    rows, _ = empty_level(counts)
    start = int(counts.trie.levels[1])
    rows[start:], backoffs = mix_followers(counts.trie.first, counts.counts, counts.totals, share)
    return rows, backoffs


def mix_followers(first: Ints, counts: NDArray[Any], totals: Ints, share: Floats) -> tuple[Floats, Floats]:
    """`mix` for some histories: rows of their followers, which are counts[first[0]:first[-1]], and backoffs."""
    totals = np.maximum(totals, 1)
    rows: Floats = counts[first[0] : first[-1]] * np.repeat(share / totals, np.diff(first))
    kept = sum_children(first, counts) / totals
    return rows, 1.0 - share * kept


def pseudo_counts(counts: Counts, weights: NDArray[np.floating], unseen: float) -> tuple[Floats, Floats, Floats]:
    """Base, rows and backoffs of p(w|h) = weight(hw) / (sum over E), where an unseen event weighs `unseen`.

    Only whole histories (n-1 words, or fewer after `<s>`) have rows; the rest is the uniform distribution:
    (weight - unseen)/norm + (unseen |E| / norm) * uniform. Counts that thresholds dropped go to the uniform, too.
    """
    events, start = counts.vocab.event_count, int(counts.trie.levels[1])
    if counts.order == 1:
        seen = counts.counts[: counts.vocab.size] > 0
        base = np.where(seen, weights[: counts.vocab.size], unseen) * counts.vocab.events
        return base / base.sum(), *empty_level(counts)
    rows, _ = empty_level(counts)
    arrays = counts.trie.first, counts.counts, counts.totals, whole_histories(counts)
    rows[start:], backoffs = normalise_followers(*arrays, weights, unseen, events)
    return uniform(counts), rows, backoffs


def normalise_followers(
    first: Ints,
    counts: Ints,
    totals: Ints,
    whole: NDArray[np.bool_],
    weights: NDArray[np.floating],
    unseen: float,
    events: int,
) -> tuple[Floats, Floats]:
    """`pseudo_counts` for some histories: rows of their followers, counts[first[0]:first[-1]], and backoffs."""
    excess = np.asarray(weights - unseen, np.float64)
    spread = unseen * events + (totals - sum_children(first, counts))
    norms = sum_children(first, excess) + spread
    whole = whole & (norms > 0)
    norms[~whole] = 1.0
    rows = excess[first[0] : first[-1]] * np.repeat(whole / norms, np.diff(first))
    backoffs = np.ones(len(totals))
    backoffs[whole] = spread[whole] / norms[whole]
    return rows, backoffs


def check_discount(name: str, value: float | None) -> None:
    """Refuse a discount outside 0..1."""
    if value is not None and not 0 <= value <= 1:
        raise InputError(f"{name} must be between 0 and 1, not {value}", hint="0.75 is usual")
