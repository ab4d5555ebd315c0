"""Fitting some histories at a time: what a smoother knows of the whole text, and what it makes of a block of histories.

A smoother with a method `plan` can be fitted to counts that do not fit in memory (`lidstone.ngram.disk.fitting`). It
finds discounts, weights and the unigram distribution first; then every history is fitted by itself. Katz has no plan:
its back-off weights need the finished probabilities of the order below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.counts import Counts
from lidstone.ngram.smoothers.base import Floats, mix_followers, normalise_followers, uniform


@dataclass(frozen=True, eq=False)
class Block:
    """Histories of one length that stand side by side, and all their followers."""

    order: int
    """the length of the n-grams: of the histories, and one more"""
    first: NDArray[np.integer]
    """followers of history i are first[i]:first[i+1], counted from the first follower of the block"""
    counts: NDArray[np.integer]
    """c(hw), one per follower"""
    adjusted: NDArray[np.integer]
    """Kneser-Ney's count, one per follower"""
    totals: NDArray[np.integer]
    """c(h) in the whole text, one per history"""
    adjusted_totals: NDArray[np.integer]
    whole: NDArray[np.bool_]
    """which are whole histories: n-1 words, or fewer after `<s>`"""


Fill = Callable[[Block], tuple[Floats, Floats]]
Weights = Callable[[Block], Floats]


@dataclass(frozen=True, eq=False)
class Plan:
    """A fit that has seen the whole text, but not each history yet."""

    name: str
    """of the smoother"""
    base: Floats
    """the unigram distribution; (V,)"""
    fill: Fill
    """rows and backoffs of a block"""
    notes: dict[str, Any]
    """facts for the signature, such as discounts"""


def make_plan(smoother: Any, name: str, counts: Counts) -> Plan:
    """The plan of a smoother; an error if it has none."""
    require_plan(smoother, name)
    plan: Plan = smoother.plan(counts)
    return plan


def require_plan(smoother: Any, name: str) -> None:
    """Refuse a smoother that cannot be fitted block by block.

    >>> from lidstone.ngram.smoothers.katz import Katz
    >>> require_plan(Katz(), "katz")
    Traceback (most recent call last):
    lidstone.errors.InputError: katz cannot be fitted block by block. hint: ...
    """
    if not can_plan(smoother):
        raise InputError(
            f"{name} cannot be fitted block by block", hint="fit it without --memory and --engine, or use another one"
        )


def can_plan(smoother: Any) -> bool:
    """Whether a smoother can be fitted block by block."""
    return callable(getattr(smoother, "plan", None))


def mix_plan(name: str, base: Floats, share: Weights, notes: dict[str, Any] | None = None) -> Plan:
    """The plan of `mix`; `share` gives that of each history of a block."""
    return Plan(name, base, partial(_mix, share), notes or {})


def _mix(share: Weights, block: Block) -> tuple[Floats, Floats]:
    return mix_followers(block.first, block.counts, block.totals, share(block))


def pseudo_count_plan(name: str, counts: Counts, weights: Weights, unseen: float, notes: dict[str, Any]) -> Plan:
    """The plan of `pseudo_counts`; `weights` gives that of each follower in a block."""
    events = counts.vocab.event_count
    base = uniform(counts) if counts.order > 1 else _unigrams(counts, weights, unseen)
    return Plan(name, base, partial(_normalise, weights, unseen, events), notes)


def _unigrams(counts: Counts, weights: Weights, unseen: float) -> Floats:
    """The words as the followers of one history: the empty one."""
    words = counts.counts[: counts.vocab.size]
    total, first = np.array([counts.tokens]), np.array([0, counts.vocab.size])
    block = Block(1, first, words, words, total, total, np.ones(1, bool))
    base: Floats = np.where(words > 0, weights(block), unseen) * counts.vocab.events
    found: Floats = base / base.sum()
    return found


def _normalise(weights: Weights, unseen: float, events: int, block: Block) -> tuple[Floats, Floats]:
    arrays = block.first, block.counts, block.totals, block.whole
    return normalise_followers(*arrays, weights(block), unseen, events)
