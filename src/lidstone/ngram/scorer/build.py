"""From the n-grams of a model (ARPA sections, tables, KenLM's tries) to the block of bytes that compiled code reads.

`levels_of_...` give every n-gram its key and flags; `pack` puts them into hash tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.closure import close
from lidstone.ngram.formats.arpa import LOG_ZERO
from lidstone.ngram.formats.arpa_reader import NgramSection
from lidstone.ngram.formats.kenlm import DecodedTrie, parents_of
from lidstone.ngram.scorer.step import (
    GROUPED,
    MIDDLE_VALUE,
    ORDER,
    TABLES,
    UNIGRAM_BYTES,
    UNIGRAMS,
    VOCAB,
    VOCAB_BUCKETS,
    extend_key,
)
from lidstone.ngram.table import BackoffTable
from lidstone.text.hash_tables import GROUP, empty_groups, entries_per_group, fill

ROOM = 2.5
"""Entries per n-gram, taken or empty: with more of them fewer groups overflow. A look-up that reads a second group
waits for memory that was not asked for in advance."""

MOST_GROUPS = 2**32 - 1
"""`group_of` multiplies 32 bits by their number."""

_WORD = np.dtype([("id", "<u4")])
_UNIGRAM = _MIDDLE = np.dtype([("logprob", "<f4"), ("backoff", "<f4")])
_LONGEST = np.dtype([("logprob", "<f4")])


@dataclass(frozen=True, eq=False)
class HashedLevel:
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


def pack(
    words: NDArray[np.uint64], ids: NDArray[np.integer], levels: list[HashedLevel], special: dict[int, int]
) -> Packed:
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
        data[start : start + table.nbytes] = table.reshape(-1).view(np.uint8)
        data[start + table.nbytes : end] = 0  # equal models have equal bytes
    return data, [int(data.ctypes.data + start) for start in starts[:-1]]


def _ngrams(level: HashedLevel, top: bool) -> NDArray[Any]:
    columns = {"logprob": _marked(level), "backoff": _marked_backoffs(level)}
    if top:
        return _table(level.keys, _LONGEST, {"logprob": columns["logprob"]})
    return _table(level.keys, _MIDDLE, columns)


def _unigrams(level: HashedLevel) -> NDArray[Any]:
    table = np.zeros(len(level.keys), _UNIGRAM)
    table["logprob"], table["backoff"] = _marked(level), _marked_backoffs(level)
    return table


def _marked(level: HashedLevel) -> NDArray[np.float32]:
    """log10 p, which is never positive, without its sign where a longer n-gram ends in this one."""
    return np.copysign(level.logprobs, np.where(level.extends_left, np.float32(1), np.float32(-1)))


def _marked_backoffs(level: HashedLevel) -> NDArray[np.float32]:
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
    values = np.empty(len(keys), value)
    for name, column in columns.items():
        values[name] = column
    table = empty_groups(groups)
    fill(table.ctypes.data, groups, value.itemsize, keys, values.view(np.uint32 if value.itemsize == 4 else np.uint64))
    return table.reshape(groups, -1)


MISSING_UNK = -100.0
"""log10 p of unknown words where the model has no `<unk>`; KenLM's choice too"""


def levels_of_sections(sections: list[NgramSection], extra: int = 0) -> list[HashedLevel]:
    """The sections as they are, in float32; an n-gram that a longer one needs and the file lacks gets its backed-off p.

    The ids are the words' places among the unigrams, and `extra` more words after them have `MISSING_UNK`.
    """
    first = sections[0]
    logprobs = [np.append(first.logprobs, [MISSING_UNK] * extra).astype(np.float32)]
    backoffs = [np.append(first.backoffs, [0.0] * extra).astype(np.float32)]
    keys = [np.arange(len(logprobs[0]), dtype=np.uint64)]
    closed = close([section.ngrams for section in sections[1:]])
    for section, level in zip(sections[1:], closed, strict=True):
        keys.append(_keys(level.ngrams))
        inserted = slice(len(section.logprobs), len(level.ngrams))
        lower = logprobs[-1][level.suffixes[inserted]] + backoffs[-1][level.prefixes[inserted]]
        logprobs.append(np.concatenate([section.logprobs.astype(np.float32), lower]))
        backoffs.append(np.concatenate([section.backoffs.astype(np.float32), np.zeros(len(lower), np.float32)]))
    links = [(level.suffixes, level.prefixes) for level in closed]
    return _marked_levels(keys, logprobs, backoffs, links)


def levels_of_table(table: BackoffTable, extra: int = 0) -> list[HashedLevel]:
    """The n-grams of a table's trie with their full probabilities; ids are the table's, `<s>` is its `vocab.bos`."""
    trie = table.trie
    keys = _trie_keys(trie.suffixes, trie.parents)
    logprobs = _log10(table.ngram_probs)
    backoffs = np.append(_log10(table.backoffs), np.zeros(trie.size - trie.num_histories, np.float32))
    by_order = [
        [array[trie.level(order)] for order in range(1, trie.order + 1)] for array in (keys, logprobs, backoffs)
    ]
    if extra:
        for orders, value in zip(by_order, (np.uint64(trie.vocab_size + 1), MISSING_UNK, 0.0), strict=True):
            orders[0] = np.append(orders[0], np.asarray(value, orders[0].dtype))
    links = [_links(table, order) for order in range(2, trie.order + 1)]
    return _marked_levels(by_order[0], by_order[1], by_order[2], links)


def levels_of_trie(trie: DecodedTrie) -> list[HashedLevel]:
    """The n-grams of KenLM's trie, which knows its links and flags: nothing has to be looked up."""
    levels: list[HashedLevel] = []
    for order, section in enumerate(trie.sections, start=1):
        oldest = section.ngrams[:, 0].astype(np.uint64)
        keys = _extended(levels[-1].keys[parents_of(trie.begins[order - 2])], oldest) if levels else oldest
        top = order == len(trie.sections)
        left = np.zeros(len(keys), np.bool_) if top else trie.begins[order - 1][1:] > trie.begins[order - 1][:-1]
        right = (section.backoffs != 0) | ~np.signbit(section.backoffs)
        values = (section.logprobs.astype(np.float32), section.backoffs.astype(np.float32))
        levels.append(HashedLevel(keys, *values, left, right))
    return levels


def _links(table: BackoffTable, order: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Suffixes and prefixes of one order, as places within the order below."""
    trie = table.trie
    level, below = trie.level(order), trie.levels[order - 2]
    return trie.suffixes[level] - below, trie.parents[level] - below


def _marked_levels(
    keys: list[NDArray[Any]],
    logprobs: list[NDArray[Any]],
    backoffs: list[NDArray[Any]],
    links: list[tuple[NDArray[Any], NDArray[Any]]],
) -> list[HashedLevel]:
    """Levels, marked by what the level above links to."""
    levels = []
    for k, (key, logprob, backoff) in enumerate(zip(keys, logprobs, backoffs, strict=True)):
        left, right = np.zeros(len(key), np.bool_), np.zeros(len(key), np.bool_)
        if k < len(links):
            left[links[k][0]] = True
            right[links[k][1]] = True
        levels.append(HashedLevel(key, logprob, backoff, left, right))
    return levels


def _log10(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """As in an ARPA file: zero has the log -99."""
    logs = np.full(len(values), LOG_ZERO)
    return np.log10(values, out=logs, where=values > 0).astype(np.float32)


@njit(cache=True, nogil=True)
def _keys(ngrams):  # type: ignore[no-untyped-def]
    """The keys of n-grams given as rows of ids, oldest first."""
    keys = np.empty(len(ngrams), np.uint64)
    for i in range(len(ngrams)):
        key = np.uint64(ngrams[i, -1])
        for k in range(ngrams.shape[1] - 2, -1, -1):
            key = extend_key(key, ngrams[i, k])
        keys[i] = key
    return keys


@njit(cache=True, nogil=True)
def _extended(keys, words):  # type: ignore[no-untyped-def]
    """The keys of n-grams with one more word each at their old end."""
    longer = np.empty(len(keys), np.uint64)
    for i in range(len(keys)):
        longer[i] = extend_key(keys[i], words[i])
    return longer


@njit(cache=True, nogil=True)
def _trie_keys(suffixes, parents):  # type: ignore[no-untyped-def]
    """The keys of all nodes: that of the suffix, extended by the oldest word, which is the parent's oldest word too."""
    keys = np.empty(len(suffixes), np.uint64)
    oldest = np.empty(len(suffixes), np.int32)
    for node in range(len(suffixes)):
        if suffixes[node] < 0:
            keys[node], oldest[node] = node, node
        else:
            oldest[node] = oldest[parents[node]]
            keys[node] = extend_key(keys[suffixes[node]], oldest[node])
    return keys
