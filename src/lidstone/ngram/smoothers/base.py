"""What smoothers share: the protocol, fitting in blocks of histories, and the two plain ways to fill a block.

A smoother first looks at all counts (`prepare`: discounts, weights, the unigram distribution). Then every block of
histories becomes rows and back-off weights by itself (`BlockFit.fill`):

    p(w|h) = rows[h w] + backoffs[h] p(w|h'),      p(w|()) = base[w]                                           (1)

In memory there is a block for each order and thread (`BlockSmoother.fit`), with limited memory there are many
(`lidstone.ngram.disk.fit`), on a cluster many at once: the same code, and the same bits. `BlockFit.interpolated` gives
c(hw)/c(h) a share of each history's mass and leaves the rest to the order below; `pseudo_counts` gives every event a
weight and normalises. Discounting stands in `discounting`.
"""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie, sum_children
from lidstone.parallel import over_ranges, threads_for

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]
NONE: Floats = np.empty(0)


@runtime_checkable
class Smoother(Protocol):
    """Anything that turns counts into a table. Settings are the fields of a frozen dataclass."""

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        ...


class FallbackUsed(UserWarning):
    """A smoother was undefined for some order and used the fallback it was given."""


@dataclass(frozen=True, eq=False)
class HistoryBlock:
    """Histories of one length that stand side by side, the nodes start..stop of a trie, and all their followers."""

    order: int
    """the length of the n-grams: of the histories, and one more"""
    start: int
    stop: int
    source: Counts
    probs: Floats = field(default_factory=lambda: NONE)
    """p(w|h) of all shorter n-grams hw by their node, where the fit `backs_off`"""

    @property
    def first(self) -> Ints:
        """Followers of history i are the nodes first[i]:first[i+1]."""
        return self.source.trie.first[self.start : self.stop + 1]

    @cached_property
    def followers(self) -> slice:
        """The nodes of all followers."""
        return slice(int(self.first[0]), int(self.first[-1]))

    @property
    def counts(self) -> Ints:
        """c(hw), one per follower."""
        return self.source.counts[self.followers]

    @property
    def adjusted(self) -> Ints:
        """Kneser-Ney's count, one per follower."""
        return self.source.derived.adjusted[self.followers]

    @property
    def suffixes(self) -> Ints:
        """The node of h'w, one per follower."""
        return self.source.trie.suffixes[self.followers]

    @property
    def totals(self) -> Ints:
        """c(h) in the whole text, one per history."""
        return self.source.derived.totals[self.start : self.stop]

    @property
    def adjusted_totals(self) -> Ints:
        """The sum of the adjusted counts in the whole text, one per history."""
        return self.source.derived.adjusted_totals[self.start : self.stop]

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """Which are whole histories: n-1 words, or fewer after `<s>`."""
        trie = self.source.trie
        begin = self.start if self.order == trie.order else trie.sentence_starts(self.order - 1).start
        return np.arange(self.start, self.stop) >= begin

    def sum_followers(self, values: NDArray[Any]) -> NDArray[Any]:
        """For each history, the sum of `values`, which are one per follower."""
        return sum_children(self.first - self.first[0], values)

    def to_followers(self, values: NDArray[Any]) -> NDArray[Any]:
        """The value of each history at every one of its followers."""
        return np.repeat(values, np.diff(self.first))


@dataclass(frozen=True, eq=False)
class FilledBlock:
    """What a block becomes; `fill` writes to these arrays."""

    rows: Floats
    """one per follower"""
    backoffs: Floats
    """one per history"""
    probs: Floats = field(default_factory=lambda: NONE)
    """p(w|h), one per follower; empty unless a longer n-gram's fit will look it up"""

    @classmethod
    def empty(cls, block: HistoryBlock, *, keep: bool) -> FilledBlock:
        """New arrays for a block; with room for probabilities if these are to be kept."""
        size = block.followers.stop - block.followers.start
        return cls(np.empty(size), np.empty(block.stop - block.start), np.empty(size if keep else 0))


Fill = Callable[[HistoryBlock, FilledBlock], None]
Share = Callable[[HistoryBlock], Floats]
PseudoCounts = Callable[[Ints, NDArray[np.bool_]], NDArray[np.floating]]
"""The weight of each follower from its count, and from whether its history is whole."""


@dataclass(frozen=True, eq=False)
class BlockFit:
    """A fit that has seen all counts, but not each history yet.

    >>> from lidstone import Vocabulary, count
    >>> counts = count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)
    >>> fit = BlockFit.interpolated(uniform(counts), lambda block: np.full(len(block.totals), 0.5))
    >>> fit.base.round(3).tolist()
    [0.333, 0.333, 0.333]
    """

    base: Floats
    """the unigram distribution; (V,)"""
    fill: Fill
    """computes rows and backoffs of a block"""
    notes: dict[str, Any] = field(default_factory=dict)
    """facts for the signature, such as discounts"""
    backs_off: bool = False
    """whether `fill` needs p(w|h'), and so writes p(w|h) for the order above"""
    derived: bool = True
    """whether `fill` needs totals or adjusted counts of the whole text"""

    @classmethod
    def interpolated(cls, base: Floats, share: Share) -> BlockFit:
        """The fit of p(w|h) = share(h) c(hw)/c(h) + (1 - share(h)) p(w|h'); `share` gives that of each history.

        c(h) is of the whole text, so the counts that thresholds dropped go to the order below, like the rest.
        """
        return cls(base, partial(_interpolate, share))


class BlockSmoother(ABC):
    """A smoother that is fitted block by block, in memory, on disk and on a cluster alike.

    >>> from lidstone import Vocabulary, count
    >>> class Half(BlockSmoother):  # half of the mass follows the counts, half the order below
    ...     name = "half"
    ...     def prepare(self, counts):
    ...         return BlockFit.interpolated(uniform(counts), lambda block: np.full(len(block.totals), 0.5))
    >>> Half = dataclass(frozen=True)(Half)
    >>> Half().fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2)).prob([[1]])[0].round(3).tolist()
    [0.417, 0.167, 0.417]
    """

    name: ClassVar[str]
    """as in the registry"""

    @abstractmethod
    def prepare(self, counts: Counts) -> BlockFit:
        """What is derived from all counts, and how a block of histories is filled."""

    def fit(self, counts: Counts) -> BackoffTable:
        """The smoothed distribution of these counts."""
        found = prepare_fit(self, counts)
        return make_table(self, self.name, counts, found.base, *_fill_all(found, counts), **found.notes)


def prepare_fit(smoother: BlockSmoother, counts: Counts) -> BlockFit:
    """The fit of a smoother, which warns where a fallback is used."""
    found = smoother.prepare(counts)
    if orders := found.notes.get("fallback_orders"):
        which = ", ".join(map(str, orders))
        fallback = getattr(smoother, "fallback", None)
        message = f"{smoother.name} uses its fallback {fallback} for order {which}"
        warnings.warn(message, FallbackUsed, stacklevel=3)
    return found


def require_blocks(smoother: Any, name: str) -> None:
    """Refuse a smoother that cannot be fitted block by block: one of another package that has `fit` alone."""
    if not isinstance(smoother, BlockSmoother):
        raise InputError(
            f"{name} cannot be fitted block by block", hint="fit it without --memory and --engine, or use another one"
        )


def copy_fit(table: BackoffTable) -> BlockFit:
    """A fit that copies a table."""
    return BlockFit(table.base, partial(_copy, table), derived=False)


def _copy(table: BackoffTable, block: HistoryBlock, out: FilledBlock) -> None:
    out.rows[:], out.backoffs[:] = table.rows[block.followers], table.backoffs[block.start : block.stop]


def _fill_all(fit: BlockFit, counts: Counts) -> tuple[Floats, Floats]:
    """Rows and backoffs of all orders, in memory: a block for each order and thread."""
    trie = counts.trie
    rows, backoffs, probs = np.empty(trie.size), np.empty(trie.num_histories), NONE
    rows[: trie.levels[1]] = 0.0
    if fit.backs_off and trie.order > 1:
        probs = np.append(fit.base, np.empty(trie.num_histories - len(fit.base)))
    if fit.derived:
        _ = counts.derived  # once, before several threads ask for it
    for order in range(2, trie.order + 1):
        bounds = _equal_shares(trie, order)

        def fill_share(part: int, _: int, order: int = order, bounds: list[int] = bounds) -> None:
            block = HistoryBlock(order, bounds[part], bounds[part + 1], counts, probs)
            kept = probs[block.followers] if order < trie.order else NONE  # empty, too, where there are no `probs`
            fit.fill(block, FilledBlock(rows[block.followers], backoffs[block.start : block.stop], kept))

        over_ranges(fill_share, len(bounds) - 1, len(bounds) - 1)
    return rows, backoffs


def _equal_shares(trie: Trie, order: int) -> list[int]:
    """Histories of order - 1 words at which shares of about equally many followers begin, a share for each thread."""
    level, first = trie.level(order - 1), trie.first
    low, high = int(first[level.start]), int(first[level.stop])
    threads = threads_for(high - low)
    targets = (low + (high - low) * np.arange(1, threads) // threads).astype(first.dtype)  # else numpy copies `first`
    return [level.start, *(level.start + np.searchsorted(first[level], targets)).tolist(), level.stop]


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
    return np.full(counts.trie.size, 0.0), np.ones(counts.trie.num_histories)  # np.zeros would come page by page


def _interpolate(share: Share, block: HistoryBlock, out: FilledBlock) -> None:
    totals, shares = np.maximum(block.totals, 1), share(block)
    np.multiply(block.counts, block.to_followers(shares / totals), out=out.rows)
    kept = block.sum_followers(block.counts) / totals
    out.backoffs[:] = 1.0 - shares * kept


def pseudo_counts(
    counts: Counts, weights: PseudoCounts, unseen: float, notes: dict[str, Any] | None = None
) -> BlockFit:
    """The fit of p(w|h) = weight(hw) / (sum over E), where an unseen event weighs `unseen`.

    Only whole histories (n-1 words, or fewer after `<s>`) have rows; the rest is the uniform distribution:
    (weight - unseen)/norm + (unseen |E| / norm) * uniform. Counts that thresholds dropped go to the uniform, too.
    """
    base = uniform(counts)
    if counts.order == 1:  # the words are the followers of one history: the empty one
        words = counts.counts[: counts.vocab.size]
        base = np.where(words > 0, weights(words, np.ones(len(words), bool)), unseen) * counts.vocab.events
        base /= base.sum()
    return BlockFit(base, partial(_normalise, weights, unseen, counts.vocab.event_count), notes or {})


def _normalise(weights: PseudoCounts, unseen: float, events: int, block: HistoryBlock, out: FilledBlock) -> None:
    excess = np.asarray(weights(block.counts, block.to_followers(block.whole)) - unseen, np.float64)
    spread = unseen * events + (block.totals - block.sum_followers(block.counts))
    norms = block.sum_followers(excess) + spread
    whole = block.whole & (norms > 0)
    norms[~whole] = 1.0
    np.multiply(excess, block.to_followers(whole / norms), out=out.rows)
    out.backoffs[:] = np.where(whole, spread / norms, 1.0)


def check_discount(name: str, value: float | None) -> None:
    """Refuse a discount outside 0..1."""
    if value is not None and not 0 <= value <= 1:
        raise InputError(f"{name} must be between 0 and 1, not {value}", hint="0.75 is usual")
