"""How far a model's probabilities are from summing to one.

Smoothers give sums of one to 1e-12. Models from files may not: pruned or damaged ARPA files, filtered vocabularies,
backoffs of another model. The sum after a history follows from sums over sparse rows, without a dense row:

    S(h) = sum of rows[h w] over the followers of h + backoffs[h] * S(h'),        S(()) = sum of base
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from lidstone.errors import InputError
from lidstone.ngram.compact.access import at, row_of, size_of
from lidstone.ngram.storage.checked_tensors import is_mapped

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable

LIMIT = 1e-3
"""Sums further from one than this are reported, and refused by the loss."""
SAMPLES = 1000
_LOG = logging.getLogger("lidstone")


def normalisation_error(table: BackoffTable, samples: int | None = SAMPLES) -> float:
    """The largest |1 - sum of p(w | h)| over some histories, evenly spread, or over all; inf where one is no number."""
    inner = table.trie.num_histories
    spread = np.arange(inner) if samples is None else np.linspace(0, inner, min(samples, inner), False).astype(np.int64)
    states = np.append(spread, [-1, table.vocab.bos] if table.order > 1 else [-1])
    first, words, suffixes, rows, backoffs, base = table.stored_arrays
    sums = _row_sums(first, words, suffixes, rows, backoffs, base, float(base.sum()), states)
    error = np.abs(sums - 1).max()
    return float(error) if np.isfinite(error) else float("inf")


def check_normalised(table: BackoffTable, limit: float = LIMIT) -> None:
    """Refuse a model whose probabilities do not sum to one: it scales gradients and mixtures by an unknown factor."""
    error = normalisation_error(table, 25 if is_mapped(table.base) else SAMPLES)  # each history reads pages of a file
    if error > limit:
        raise InputError(
            f"the table is not normalised: after some history its probabilities sum to one only within {error:.3g}",
            hint="make the model again, or pass allow_unnormalised=True",
        )


def report_normalisation(table: BackoffTable, name: str) -> None:
    """Warn, on the logger `lidstone`, of a model whose probabilities do not sum to one."""
    error = normalisation_error(table)
    if error > LIMIT:
        _LOG.warning(
            "%s is not normalised: after some history the probabilities sum to one only within %.3g; "
            "its perplexities cannot be compared with those of other models",
            name,
            error,
        )


@njit(cache=True, nogil=True)
def _row_sums(first, words, suffixes, rows, backoffs, base, total, states):  # type: ignore[no-untyped-def]
    sums = np.empty(len(states))
    for i in range(len(states)):
        weight, found, state = 1.0, 0.0, np.int64(states[i])
        while 0 <= state < size_of(backoffs):
            level = 0.0
            for child in range(at(first, state), at(first, state + 1)):
                level += row_of(rows, base, first, words, suffixes, backoffs, state, child)
            found += weight * level
            weight *= at(backoffs, state)
            state = np.int64(at(suffixes, state))
        sums[i] = found + weight * total
    return sums
