"""Compiled loops over whole tables that are packed or quantised."""

from __future__ import annotations

import numpy as np
from numba import njit

from lidstone.ngram.compact.access import find_child


@njit(cache=True, nogil=True)
def find_suffixes(first, words, suffixes, start, stop):  # type: ignore[no-untyped-def]
    """Fill in the suffixes of all nodes that follow the histories start:stop; -1 where one is missing."""
    for history in range(start, stop):
        shorter = np.int64(suffixes[history])
        for node in range(first[history], first[history + 1]):
            suffixes[node] = words[node] if shorter < 0 else find_child(first, words, shorter, words[node])


@njit(cache=True, nogil=True)
def rows_of(first, suffixes, probs, backoffs, rows):  # type: ignore[no-untyped-def]
    """rows[hw] = p(w | h) - backoffs[h] * p(w | h without its oldest word)."""
    for history in range(len(backoffs)):
        for node in range(first[history], first[history + 1]):
            rows[node] = probs[node] - backoffs[history] * probs[suffixes[node]]
