"""Hash tables from 64-bit keys to entries of 12 or 16 bytes: KenLM's own, and those that `build.py` fills.

KenLM's tables take the key modulo the number of slots and go on from there, entry by entry. Ours (`grouped`) consist
of groups of 64 bytes, one line of the processor's cache, with five entries of 12 bytes or four of 16. One look-up then
reads one line, and compares all its keys without a branch that the processor could guess wrong. In both kinds key 0 is
an empty entry, and a key that finds its place taken is in one of the next.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lidstone.ngram.kenlm.compiled.memory import load_u64, prefetch

GROUP = 64
"""Bytes of a group: a cache line, at an address that is a multiple of 64."""


def entries_per_group(stride: int) -> int:
    """How many entries of this size a group holds.

    >>> entries_per_group(12), entries_per_group(16)
    (5, 4)
    """
    return GROUP // stride


@njit(cache=True, nogil=True)
def group_of(groups, key):  # type: ignore[no-untyped-def]
    """Where in a table of groups the search for a key begins: its upper half, scaled; no division."""
    return np.int64(((key >> np.uint64(32)) * np.uint64(groups)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def ask_for(table, slots, stride, grouped, key):  # type: ignore[no-untyped-def]
    """Begin to bring the memory where the search for a key begins into the cache."""
    if grouped:
        prefetch(table + group_of(slots, key) * GROUP)
    else:
        prefetch(table + np.int64(key % np.uint64(slots)) * stride)


@njit(cache=True, nogil=True)
def find(table, slots, stride, grouped, key):  # type: ignore[no-untyped-def]
    """The address of the entry with this key, or 0. `slots` counts groups, or the entries of KenLM's tables.

    A damaged table may have no empty entry: the search ends after one round.
    """
    if grouped:
        return _find_in_groups(table, slots, stride, key)
    slot = np.int64(key % np.uint64(slots))
    for _ in range(slots):
        at = table + slot * stride
        found = load_u64(at)
        if found == key:
            return at
        if found == 0:
            break
        slot = np.int64(slot + 1 if slot + 1 < slots else 0)
    return np.int64(0)


@njit(cache=True, nogil=True)
def _find_in_groups(table, groups, stride, key):  # type: ignore[no-untyped-def]
    """A group fills from its first entry on: where its last one is empty, the key is not in a later group.

    That comes first in the loop because it is true of most groups: the processor guesses it right. Key 0 would match
    the empty entries.
    """
    group = group_of(groups, key)
    for _ in range(groups if key else 0):
        begin = table + group * GROUP
        at, last = _match_five(begin, key) if stride == 12 else _match_four(begin, key)
        if last == 0:
            return at
        if at != 0:
            return at
        group = np.int64(group + 1 if group + 1 < groups else 0)
    return np.int64(0)


@njit(cache=True, nogil=True)
def _match_five(begin, key):  # type: ignore[no-untyped-def]
    """The address of the entry of 12 bytes with this key, or 0; and the last key of the group."""
    at = _at(begin, key) | _at(begin + 12, key) | _at(begin + 24, key) | _at(begin + 36, key) | _at(begin + 48, key)
    return at, load_u64(begin + 48)


@njit(cache=True, nogil=True)
def _match_four(begin, key):  # type: ignore[no-untyped-def]
    """The same for entries of 16 bytes."""
    at = _at(begin, key) | _at(begin + 16, key) | _at(begin + 32, key) | _at(begin + 48, key)
    return at, load_u64(begin + 48)


@njit(cache=True, nogil=True)
def _at(address, key):  # type: ignore[no-untyped-def]
    """The address if this key stands there, else 0."""
    return address if load_u64(address) == key else np.int64(0)
