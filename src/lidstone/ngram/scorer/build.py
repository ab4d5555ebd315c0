"""From the n-grams of a model (ARPA sections, tables) to the block of bytes that compiled code reads.

`model_of_...` give every n-gram its suffix and flags; `pack` puts them into hash tables. `write.py` writes the same
models as KenLM's binaries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError, InputError
from lidstone.ngram.closure import close
from lidstone.ngram.formats.arpa import LOG_ZERO
from lidstone.ngram.formats.arpa_reader import NgramSection
from lidstone.ngram.scorer.step import extend_key
from lidstone.ngram.scorer.tries import (
    BOS,
    EOS,
    GROUPS,
    IDS,
    KIND,
    MIDDLE_VALUE,
    ORDER,
    TABLES,
    UNIGRAM_BYTES,
    UNIGRAMS,
    UNK,
    VOCAB,
    VOCAB_BUCKETS,
    WIDE,
)
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.hash_tables import GROUP, empty_groups, entries_per_group, fill
from lidstone.text.tokens import hash_words

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
    """The n-grams of one order, first those that the model lists, then those that longer ones need."""

    oldest: NDArray[np.integer]
    """the oldest word of each; all words, in the lowest order"""
    suffixes: NDArray[np.integer]
    """the place in the level below of each without its oldest word"""
    logprobs: NDArray[np.float32]
    """log10 p"""
    backoffs: NDArray[np.float32]
    """log10 of the backoff; of no account in the highest order"""
    extends_left: NDArray[np.bool_]
    """whether a longer n-gram ends in this one"""
    extends_right: NDArray[np.bool_]
    """whether a longer n-gram begins with this one"""
    listed: int

    @property
    def marked_logprobs(self) -> NDArray[np.float32]:
        """log10 p, which is never positive, without its sign where a longer n-gram ends in this one."""
        return np.copysign(self.logprobs, np.where(self.extends_left, np.float32(1), np.float32(-1)))

    @property
    def marked_backoffs(self) -> NDArray[np.float32]:
        """A backoff of zero is -0.0 where no longer n-gram begins with this one, else 0.0."""
        zero = np.where(self.extends_right, np.float32(0.0), np.float32(-0.0))
        return np.where(self.backoffs == 0, zero, self.backoffs)


@dataclass(frozen=True, eq=False)
class NgramModel:
    """A model as KenLM sees it: words, and n-grams in float32 with all suffixes and prefixes."""

    words: list[bytes]
    """those that a text can have; `<unk>` is not among them"""
    ids: NDArray[np.integer]
    """of the words"""
    levels: list[Level]
    unk: int
    bos: int
    eos: int
    has_unk: bool
    """whether the model itself gives a probability to unknown words"""


@dataclass(frozen=True, eq=False)
class Packed:
    """A model as compiled code reads it."""

    data: NDArray[np.uint8]
    layout: NDArray[np.int64]
    """holds addresses within `data`, so the two belong together and to this process"""

    @property
    def address(self) -> int:
        """Where the layout stands; numbers are quicker to give to compiled code than arrays."""
        return self.layout.ctypes.data

    def __reduce__(self) -> Any:
        return _placed, (np.asarray(self.data), self.layout, self.data.ctypes.data)


def _placed(data: NDArray[np.uint8], layout: NDArray[np.int64], before: int) -> Packed:
    """A model whose data stood at the address `before`, in another process."""
    if (data.ctypes.data - before) % GROUP:  # groups of entries lie within lines of the cache
        room = np.empty(len(data) + GROUP, np.uint8)
        start = (before - room.ctypes.data) % GROUP
        room[start : start + len(data)] = data
        data = room[start : start + len(data)]
    inside = (before <= layout) & (layout <= before + len(data))  # no number of entries is as large as an address
    return Packed(data, np.where(inside, layout + (data.ctypes.data - before), layout))


def pack(model: NgramModel) -> Packed:
    """One block for a model: hashes and ids of its words, its n-grams of orders 1, 2, ..., and special ids."""
    keys, levels = keys_of(model.levels), model.levels
    tables = [_unigrams(levels[0]), _table(hash_words(model.words), _WORD, {"id": model.ids})]
    tables += [_ngrams(key, level, top=level is levels[-1]) for key, level in zip(keys[1:], levels[1:], strict=True)]
    data, addresses = _joined(tables)
    layout = np.zeros(TABLES + WIDE * len(levels), np.int64)
    layout[[ORDER, KIND, UNIGRAM_BYTES, MIDDLE_VALUE]] = len(levels), GROUPS, _UNIGRAM.itemsize, _MIDDLE.itemsize
    layout[[UNK, BOS, EOS, IDS]] = model.unk, model.bos, model.eos, len(keys[0])
    layout[[UNIGRAMS, VOCAB, VOCAB_BUCKETS]] = addresses[0], addresses[1], len(tables[1])
    for k, (address, table) in enumerate(zip(addresses[2:], tables[2:], strict=True)):
        layout[TABLES + WIDE * k : TABLES + WIDE * k + 2] = address, len(table)
    return Packed(data, layout)


def keys_of(levels: list[Level]) -> list[NDArray[np.uint64]]:
    """The keys of all n-grams, by order: that of the suffix, extended by the oldest word."""
    keys = [levels[0].oldest.astype(np.uint64)]
    for level in levels[1:]:
        keys.append(extend_key.py_func(keys[-1][level.suffixes], level.oldest))  # once: numpy does, uncompiled
    return keys


def _joined(tables: list[NDArray[Any]]) -> tuple[NDArray[np.uint8], list[int]]:
    """The tables one after the other, and the address of each, a multiple of the size of a group."""
    starts = np.cumsum([0, *(-(-table.nbytes // GROUP) * GROUP for table in tables)])
    room = np.empty(starts[-1] + GROUP, np.uint8)  # numpy asks for large pages here, not for zeros
    data = room[-room.ctypes.data % GROUP :][: starts[-1]]
    for start, end, table in zip(starts, starts[1:], tables, strict=False):
        data[start : start + table.nbytes] = table.reshape(-1).view(np.uint8)
        data[start + table.nbytes : end] = 0  # equal models have equal bytes
    return data, [int(data.ctypes.data + start) for start in starts[:-1]]


def _ngrams(keys: NDArray[np.uint64], level: Level, top: bool) -> NDArray[Any]:
    columns = {"logprob": level.marked_logprobs, "backoff": level.marked_backoffs}
    if top:
        return _table(keys, _LONGEST, {"logprob": columns["logprob"]})
    return _table(keys, _MIDDLE, columns)


def _unigrams(level: Level) -> NDArray[Any]:
    table = np.zeros(len(level.oldest), _UNIGRAM)
    table["logprob"], table["backoff"] = level.marked_logprobs, level.marked_backoffs
    return table


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
    fill(table.ctypes.data, groups, value.itemsize, keys, values.ctypes.data)
    return table.reshape(groups, -1)


MISSING_UNK = -100.0
"""log10 p of unknown words where the model has no `<unk>`; KenLM's choice too"""


UNKNOWN = ("<unk>", "<UNK>")
"""How models spell the unknown word."""


def model_of_sections(words: list[str], sections: list[NgramSection], name: str) -> NgramModel:
    """The sections as they are, in float32; an n-gram that a longer one needs and the file lacks gets its backed-off p.

    The ids are the places of the words in the list; without `<unk>`, one more is that of unknown words.
    """
    places = {word: place for place, word in enumerate(words)}
    unknown = next((places[word] for word in UNKNOWN if word in places), len(words))
    for word in ("<s>", "</s>"):
        if word not in places:
            raise FileFormatError(f"{name} has no {word}", hint="a model of sentences lists <s> and </s> as unigrams")
    known = np.array([place for place in range(len(words)) if words[place] not in UNKNOWN])
    spelled, has_unk = [words[place].encode() for place in known], unknown < len(words)
    levels = _levels_of_sections(sections, extra=int(not has_unk))
    return NgramModel(spelled, known, levels, unknown, places["<s>"], places["</s>"], has_unk)


def model_of_table(table: BackoffTable) -> NgramModel:
    """The same probabilities in float32; the table's vocabulary must have strings. Ids are the table's."""
    vocab = table.vocab
    if vocab.tokens is None:
        raise InputError(
            "the table knows ids but no words, so it cannot score text",
            hint="make its vocabulary with tokens=, or use table.advance and table.logprob with ids",
        )
    strings = [*vocab.tokens, "<s>"]
    strings[vocab.eos] = "</s>"
    has_unk = vocab.unk is not None
    unknown = vocab.bos + 1 if vocab.unk is None else vocab.unk
    never = {unknown, *vocab.unpredictable}
    known = np.array([number for number in range(len(strings)) if number not in never])
    spelled = [strings[number].encode("utf-8", "surrogatepass") for number in known]
    levels = _levels_of_table(table, extra=int(not has_unk))
    return NgramModel(spelled, known, levels, unknown, vocab.bos, vocab.eos, has_unk)


def _levels_of_sections(sections: list[NgramSection], extra: int) -> list[Level]:
    first = sections[0]
    logprobs = [np.append(first.logprobs, [MISSING_UNK] * extra).astype(np.float32)]
    backoffs = [np.append(first.backoffs, [0.0] * extra).astype(np.float32)]
    closed = close([section.ngrams for section in sections[1:]])
    for section, level in zip(sections[1:], closed, strict=True):
        inserted = slice(len(section.logprobs), len(level.ngrams))
        lower = logprobs[-1][level.suffixes[inserted]] + backoffs[-1][level.prefixes[inserted]]
        logprobs.append(np.concatenate([section.logprobs.astype(np.float32), lower]))
        backoffs.append(np.concatenate([section.backoffs.astype(np.float32), np.zeros(len(lower), np.float32)]))
    oldest: list[NDArray[Any]] = [np.arange(len(logprobs[0])), *(level.ngrams[:, 0] for level in closed)]
    links = [(level.suffixes, level.prefixes) for level in closed]
    return _marked_levels(oldest, logprobs, backoffs, links, extra, [len(section.lines) for section in sections])


def _levels_of_table(table: BackoffTable, extra: int) -> list[Level]:
    trie = table.trie
    backoffs = np.append(_log10(table.backoffs), np.zeros(trie.size - trie.num_histories, np.float32))
    columns = (_oldest_words(trie), _log10(table.ngram_probs), backoffs)
    oldest, logprobs, logs = [[column[trie.level(order)] for order in range(1, trie.order + 1)] for column in columns]
    oldest[0] = np.arange(trie.vocab_size + 1 + extra)
    logprobs[0] = np.append(logprobs[0], np.full(extra, MISSING_UNK, np.float32))
    logs[0] = np.append(logs[0], np.zeros(extra, np.float32))
    links = [_links(table, order) for order in range(2, trie.order + 1)]
    return _marked_levels(oldest, logprobs, logs, links, extra, [len(words) for words in oldest])


def _links(table: BackoffTable, order: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Suffixes and prefixes of one order, as places within the order below."""
    trie = table.trie
    level, below = trie.level(order), trie.levels[order - 2]
    return trie.suffixes[level] - below, trie.parents[level] - below


def _marked_levels(
    oldest: list[NDArray[Any]],
    logprobs: list[NDArray[Any]],
    backoffs: list[NDArray[Any]],
    links: list[tuple[NDArray[Any], NDArray[Any]]],
    extra: int,
    listed: list[int],
) -> list[Level]:
    """Levels, marked by what the level above links to; KenLM marks an unknown word that the model lacks."""
    levels = []
    for k, columns in enumerate(zip(oldest, logprobs, backoffs, strict=True)):
        left, right = np.zeros(len(oldest[k]), np.bool_), np.zeros(len(oldest[k]), np.bool_)
        right[len(right) - extra * (k == 0) :] = True
        if k < len(links):
            left[links[k][0]] = True
            right[links[k][1]] = True
        suffixes = links[k - 1][0] if k else np.empty(0, np.int64)
        levels.append(Level(columns[0], suffixes, *columns[1:], left, right, listed[k]))
    return levels


def _log10(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """As in an ARPA file: zero has the log -99."""
    logs = np.full(len(values), LOG_ZERO)
    return np.log10(values, out=logs, where=values > 0).astype(np.float32)


def _oldest_words(trie: Trie) -> NDArray[np.integer]:
    """The oldest word of every node: its own in the lowest order, else that of its parent."""
    oldest = np.arange(trie.size, dtype=trie.words.dtype)
    for order in range(2, trie.order + 1):
        level = trie.level(order)
        oldest[level] = oldest[trie.parents[level]]
    return oldest
