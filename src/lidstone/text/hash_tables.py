"""Hash tables from 64-bit keys to values of 4 or 8 bytes: words of a text, n-grams of a scorer, and KenLM's own.

KenLM's tables, as its binary files hold them, take the key modulo the number of slots and go on from there, entry by
entry: a key and its value. Ours (`grouped`) consist of groups of 64 bytes, one line of the processor's cache: five keys
and their values of 4 bytes, or four and their values of 8. One look-up then reads one line, and compares all its keys
at once. In both kinds key 0 is an empty entry, and a key that finds its place taken is in one of the next. A full group
that such keys have passed says so by the order of its last two keys: a key that is in no group is seen to be missing in
the first one. Our tables hold key 0 as key 1; KenLM's hold it as it is, in a slot that looks empty.
"""

from __future__ import annotations

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros
from numpy.typing import NDArray

from lidstone.jit import helper, inlined, kernel
from lidstone.text.memory import address_of, equal_u64, load_u32, load_u64, prefetch, store_u32, store_u64

GROUPED = np.bool_(True)
"""That a table is one of ours."""
GROUP = 64
"""Bytes of a group: a cache line, at an address that is a multiple of 64."""


def entries_per_group(value: int) -> int:
    """How many keys with values of this size a group holds.

    >>> entries_per_group(4), entries_per_group(8)
    (5, 4)
    """
    return GROUP // (8 + value)


def empty_groups(groups: int) -> NDArray[np.uint64]:
    """So many groups without keys, 8 numbers each, at an address that is a multiple of 64."""
    room = np.zeros(8 * groups + 8, np.uint64)
    start = -room.ctypes.data % GROUP // 8
    return room[start : start + 8 * groups]


@inlined
def group_of(groups, key):  # type: ignore[no-untyped-def]
    """Where in a table of groups the search for a key begins: its upper half, scaled; no division."""
    return np.int64(((key >> np.uint64(32)) * np.uint64(groups)) >> np.uint64(32))


@inlined
def ask_for(table, slots, value, grouped, key):  # type: ignore[no-untyped-def]
    """Begin to bring the memory where the search for a key begins into the cache."""
    if grouped:
        prefetch(table + group_of(slots, key) * GROUP)
    else:
        prefetch(table + np.int64(key % np.uint64(slots)) * (8 + value))


@inlined
def find(table, slots, value, grouped, key):  # type: ignore[no-untyped-def]
    """The address of the value of this key, or 0. `slots` counts groups, or the entries of KenLM's tables.

    `value` is the size of the values. Most keys are found, or seen to be missing, in the group where the search begins:
    that is the part without a call.
    """
    if grouped:
        return find_grouped(table, slots, value, key)
    return find_in_slots(table, slots, value, key)


@inlined
def find_grouped(table, slots, value, key):  # type: ignore[no-untyped-def]
    """`find` in our tables."""
    key |= np.uint64(key == 0)
    group = group_of(slots, key)
    at, going_on = find_in_group(table + group * GROUP, value, key)
    return find_later(table, slots, value, group, key) if going_on else at


@inlined
def find_in_group(begin, value, key):  # type: ignore[no-untyped-def]
    """The address of the key's value in this group, or 0; and whether it may be in a later group.

    A later group has keys of this one if the last of its keys is smaller than the one before it, and not 0.
    """
    each = 5 if value == 4 else 4  # entries_per_group
    matching = equal_u64(begin, key) & ((1 << each) - 1)
    at = begin + 8 * each + value * np.int64(trailing_zeros(matching | 128))
    missing = matching == 0
    last, before = load_u64(begin + 8 * each - 8), load_u64(begin + 8 * each - 16)
    return (np.int64(0) if missing else at), missing & (last != 0) & (last < before)


@helper
def find_later(table, groups, value, group, key):  # type: ignore[no-untyped-def]
    """The address of the key's value in a group after this one, or 0: once around at most."""
    for _ in range(groups):
        group = np.int64(group + 1 if group + 1 < groups else 0)
        at, going_on = find_in_group(table + group * GROUP, value, key)
        if not going_on:
            return at
    return np.int64(0)


@helper
def find_in_slots(table, slots, value, key):  # type: ignore[no-untyped-def]
    """KenLM's tables. A damaged one may have no empty entry: the search ends after one round."""
    slot = np.int64(key % np.uint64(slots))
    for _ in range(slots):
        at = table + slot * (8 + value)
        found = load_u64(at)
        if found == key:
            return at + 8
        if found == 0:
            break
        slot = np.int64(slot + 1 if slot + 1 < slots else 0)
    return np.int64(0)


@kernel
def insert_in_slots(table, slots, size, keys, places):  # type: ignore[no-untyped-def]
    """Enter keys into an empty table of KenLM, bytes of so many slots of this size, and say which slot each has."""
    address = address_of(table)
    for i in range(len(keys)):
        slot = np.int64(keys[i] % np.uint64(slots))
        while load_u64(address + slot * size) != 0:
            slot = np.int64(slot + 1 if slot + 1 < slots else 0)
        store_u64(address + slot * size, keys[i])
        places[i] = slot


@kernel
def fill(table, groups, value, keys, values):  # type: ignore[no-untyped-def]
    """Enter all keys with their values, numbers of 4 or 8 bytes at the address `values`."""
    for i in range(len(keys)):
        at = insert(table, groups, value, keys[i])
        if value == 4:
            store_u32(at, load_u32(values + 4 * i))
        else:
            store_u64(at, load_u64(values + 8 * i))


@helper
def insert(table, groups, value, key):  # type: ignore[no-untyped-def]
    """Enter a key that is not there into the first group with room; the address of its value, which is to be written.

    The last two keys of a full group fall once a key has passed it, and rise before.
    """
    each = 5 if value == 4 else 4  # entries_per_group
    key |= np.uint64(key == 0)
    group = group_of(groups, key)
    begin = table + group * GROUP
    while load_u64(begin + 8 * each - 8) != 0:
        if load_u64(begin + 8 * each - 8) > load_u64(begin + 8 * each - 16):
            _swap_last(begin, each, value)
        group = np.int64(group + 1 if group + 1 < groups else 0)
        begin = table + group * GROUP
    place = 0
    while load_u64(begin + 8 * place) != 0:
        place += 1
    store_u64(begin + 8 * place, key)
    if place == each - 1 and key < load_u64(begin + 8 * place - 8):
        _swap_last(begin, each, value)
        place -= 1
    return begin + 8 * each + value * place


@helper
def _swap_last(begin, each, value):  # type: ignore[no-untyped-def]
    """Exchange the last two entries of a group."""
    keys, values = begin + 8 * each - 16, begin + 8 * each + value * (each - 2)
    one, other = load_u64(keys), load_u64(keys + 8)
    store_u64(keys, other)
    store_u64(keys + 8, one)
    if value == 4:
        low, high = load_u32(values), load_u32(values + 4)
        store_u32(values, high)
        store_u32(values + 4, low)
    else:
        first, second = load_u64(values), load_u64(values + 8)
        store_u64(values, second)
        store_u64(values + 8, first)
