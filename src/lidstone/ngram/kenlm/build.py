"""From the n-grams of a model to the block of bytes that `compiled` reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.kenlm.compiled.hash_tables import GROUP, entries_per_group, group_of
from lidstone.ngram.kenlm.compiled.step import (
    GROUPED,
    MIDDLE_VALUE,
    ORDER,
    TABLES,
    UNIGRAM_BYTES,
    UNIGRAMS,
    VOCAB,
    VOCAB_BUCKETS,
)

ROOM = 2.5
"""Entries per n-gram, taken or empty: with more of them fewer groups overflow. A look-up that reads a second group
waits for memory that was not asked for in advance."""

MOST_GROUPS = 2**32 - 1
"""`group_of` multiplies 32 bits by their number."""

_WORD = np.dtype([("id", "<u4")])
_UNIGRAM = _MIDDLE = np.dtype([("logprob", "<f4"), ("backoff", "<f4")])
_LONGEST = np.dtype([("logprob", "<f4")])


@dataclass(frozen=True, eq=False)
class Level:
    """The n-grams of one order."""

    keys: NDArray[np.uint64]
    logprobs: NDArray[np.float32]
    """log10 p"""
    backoffs: NDArray[np.float32]
    """log10 of the backoff; of no account in the highest order"""
    extends_left: NDArray[np.bool_]
    """whether a longer n-gram ends in this one"""
    extends_right: NDArray[np.bool_]
    """whether a longer n-gram begins with this one"""


@dataclass(frozen=True, eq=False)
class Packed:
    """A model as compiled code reads it."""

    data: NDArray[np.uint8]
    layout: NDArray[np.int64]
    """holds addresses within `data`, so the two belong together and to this process"""

    def __reduce__(self) -> Any:
        raise TypeError("a scorer cannot be pickled or copied: load it again where it is needed")


def pack(words: NDArray[np.uint64], ids: NDArray[np.integer], levels: list[Level], special: dict[int, int]) -> Packed:
    """One block for a model: hashes and ids of its words, its n-grams of orders 1, 2, ..., and special ids."""
    tables = [_unigrams(levels[0]), _table(words, _WORD, {"id": ids})]
    tables += [_ngrams(level, top=level is levels[-1]) for level in levels[1:]]
    data, addresses = _joined(tables)
    layout = np.zeros(TABLES + 2 * len(levels), np.int64)
    layout[[ORDER, GROUPED, UNIGRAM_BYTES, MIDDLE_VALUE]] = len(levels), 1, _UNIGRAM.itemsize, _MIDDLE.itemsize
    layout[list(special)] = list(special.values())
    layout[[UNIGRAMS, VOCAB, VOCAB_BUCKETS]] = addresses[0], addresses[1], len(tables[1])
    for k, (address, table) in enumerate(zip(addresses[2:], tables[2:], strict=True)):
        layout[TABLES + 2 * k : TABLES + 2 * k + 2] = address, len(table)
    return Packed(data, layout)


def _joined(tables: list[NDArray[Any]]) -> tuple[NDArray[np.uint8], list[int]]:
    """The tables one after the other, and the address of each, a multiple of the size of a group."""
    starts = np.cumsum([0, *(-(-table.nbytes // GROUP) * GROUP for table in tables)])
    room = np.empty(starts[-1] + GROUP, np.uint8)  # numpy asks for large pages here, not for zeros
    data = room[-room.ctypes.data % GROUP :][: starts[-1]]
    for start, end, table in zip(starts, starts[1:], tables, strict=False):
        data[start : start + table.nbytes] = table.view(np.uint8)
        data[start + table.nbytes : end] = 0  # equal models have equal bytes
    return data, [int(data.ctypes.data + start) for start in starts[:-1]]


def _ngrams(level: Level, top: bool) -> NDArray[Any]:
    columns = {"logprob": _marked(level), "backoff": _marked_backoffs(level)}
    if top:
        return _table(level.keys, _LONGEST, {"logprob": columns["logprob"]})
    return _table(level.keys, _MIDDLE, columns)


def _unigrams(level: Level) -> NDArray[Any]:
    table = np.zeros(len(level.keys), _UNIGRAM)
    table["logprob"], table["backoff"] = _marked(level), _marked_backoffs(level)
    return table


def _marked(level: Level) -> NDArray[np.float32]:
    """log10 p, which is never positive, without its sign where a longer n-gram ends in this one."""
    return np.copysign(level.logprobs, np.where(level.extends_left, np.float32(1), np.float32(-1)))


def _marked_backoffs(level: Level) -> NDArray[np.float32]:
    """A backoff of zero is -0.0 where no longer n-gram begins with this one, else 0.0."""
    zero = np.where(level.extends_right, np.float32(0.0), np.float32(-0.0))
    return np.where(level.backoffs == 0, zero, level.backoffs)


def _table(keys: NDArray[np.uint64], value: np.dtype, columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Groups: the keys of their entries, the values of these, and what remains of 64 bytes."""
    each = entries_per_group(value.itemsize)
    groups = max(int(len(keys) * ROOM) // each, 0) + 1
    if groups > MOST_GROUPS:
        raise InputError(
            f"a scorer cannot hold {len(keys)} n-grams of one order",
            hint=f"the limit is {int(MOST_GROUPS * each / ROOM)}",
        )
    fields: Any = {"names": ["keys", "values"], "formats": [("<u8", each), (value, each)], "itemsize": GROUP}
    table: NDArray[Any] = np.zeros(groups, np.dtype(fields))
    at, place = _place(keys, groups, each)
    table["keys"][at, place] = keys
    for name, column in columns.items():
        table["values"][name][at, place] = column
    return table


@njit(cache=True, nogil=True)
def _place(keys, groups, each):  # type: ignore[no-untyped-def]
    """A group and a place in it for each key: the first group with room from where the search for it begins."""
    taken, passed = np.zeros(groups, np.int8), np.zeros(groups, np.bool_)
    at, place = np.empty(len(keys), np.int64), np.empty(len(keys), np.int8)
    for i in range(len(keys)):
        group = group_of(groups, keys[i])
        while taken[group] == each:
            passed[group] = True
            group = group + 1 if group + 1 < groups else 0
        at[i], place[i] = group, taken[group]
        taken[group] += 1
    _mark_passed(keys, passed, each, at, place)
    return at, place


@njit(cache=True, nogil=True)
def _mark_passed(keys, passed, each, at, place):  # type: ignore[no-untyped-def]
    """The last two keys of a full group fall where keys have passed it, and rise where none have."""
    before = np.empty(len(passed), np.int64)
    for i in range(len(keys)):
        if place[i] == each - 2:
            before[at[i]] = i
    for i in range(len(keys)):
        if place[i] == each - 1:
            other = before[at[i]]
            if (keys[other] > keys[i]) != passed[at[i]]:
                place[i], place[other] = each - 2, each - 1
