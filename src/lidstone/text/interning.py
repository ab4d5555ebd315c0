"""The compiled inner loop of `text/words.py`: bytes in, ids out.

A hash table maps each word to its number, the order of its first appearance. Words of up to eight bytes are
their own key, padded with zeros, so that equal keys mean equal words; longer ones are hashed, marked by a
top byte of 0xFF, which UTF-8 never has, and compared in full with the copy in the arena, which has each known
word once, followed by a line feed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from lidstone.jit import compile_elsewhere, helper, inlined, kernel, wait_for
from lidstone.text.hash_tables import GROUPED, ask_for, empty_groups, entries_per_group, find_grouped, insert
from lidstone.text.memory import (
    load_i64,
    load_item,
    load_u8,
    load_u32,
    load_u64,
    scratch,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)
from lidstone.text.tokens import LINE_FEED, PADDED, PLAIN_BLANKS, first_bytes, next_token, word_hash

DONE, FULL, RESERVED, UNKNOWN = 0, 1, 2, 3
"""Why `intern` stopped: text finished; table full; a reserved word; an unknown word where none may be."""
POSITION, IDS, SENTENCE, WORDS, ARENA = map(np.int64, range(5))
"""State between calls: byte in the text, ids written, where the sentence began, words, arena bytes."""

AHEAD = 32
"""How many words are found before the first of them is looked up: their slots arrive from memory meanwhile."""

ROOM = 3 * 8 * AHEAD
"""Bytes of where these words begin and end, and their keys."""

ID_BYTES = np.int64(4)
"""The size of the values of the table: numbers of words"""
ENTRIES = entries_per_group(4)

_LONG = np.uint64(0xFF00000000000000)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ODD_TOO = np.uint64(0xD6E8FEB86659FD93)


class WordTable:
    """The words known so far, in a table with room for twice as many at least; to be kept while its address is used."""

    def __init__(self, groups: Any, arena: Any, starts: Any) -> None:
        wait_for(_compile)
        self.arrays = groups, arena, starts
        """uint64: the hash table, see `hash_tables.py`; uint8: the words' bytes, each followed by a line feed, with 8
        bytes to spare; int64: where each word begins in the arena, and where the last one ends"""
        self.places = np.array([groups.ctypes.data, groups.size // 8, arena.ctypes.data, starts.ctypes.data])

    @property
    def address(self) -> int:
        """Where addresses and the number of groups stand (`TABLE`, `SIZE`, `BYTES`, `STARTS`), for compiled code."""
        return self.places.ctypes.data


TABLE, SIZE, BYTES, STARTS = map(np.int64, range(4))


def empty_table(words: int) -> Any:
    """Groups with room for at least four times as many words."""
    return empty_groups(max(1 << 10, -(-4 * words // ENTRIES)))


@inlined
def _mixed(key: Any) -> Any:
    """A number of 64 bits for each, whose upper half depends on all of it."""
    mixed = key * _ODD
    return (mixed ^ (mixed >> np.uint64(32))) * _ODD_TOO


@inlined
def _key(text: int, begin: int, end: int) -> Any:
    short = end - begin <= 8
    return _mixed(first_bytes(text + begin, end - begin) if short else word_hash(text, begin, end, PADDED) | _LONG)


@helper
def _find_word(groups: int, slots: int, arena: int, starts: int, word: int, size: int, key: Any) -> Any:
    """The number of the word at this address, -1 if it is not known; and its key in the table.

    A long word whose hash another one has goes by the next key, which no short word has either.
    """
    while True:
        at = find_grouped(groups, slots, ID_BYTES, key)
        if at == 0:
            return np.int64(-1), key
        number = np.int64(load_u32(at))
        begin, end = load_i64(starts + 8 * number), load_i64(starts + 8 * number + 8) - 1
        if size <= 8 or (end - begin == size and _same(word, arena + begin, size)):
            return number, key
        key = _mixed(key | _LONG)


@helper
def _same(one: int, other: int, size: int) -> bool:
    """Whether `size` bytes at two addresses are the same."""
    for offset in range(0, size, 8):
        if first_bytes(one + offset, size - offset) != first_bytes(other + offset, size - offset):
            return False
    return True


@inlined
def located(table: Any) -> Any:
    """The parts of a table given by its address."""
    return load_item(table, TABLE), load_item(table, SIZE), load_item(table, BYTES), load_item(table, STARTS)


@kernel
def fill_words(table: Any, words: int) -> None:
    """Enter the first `words` words of the arena into an empty table; words without bytes are skipped."""
    groups, size, arena, starts = located(table)
    for word in range(words):
        begin, end = load_i64(starts + 8 * word), load_i64(starts + 8 * word + 8) - 1
        if end > begin:
            _, key = _find_word(groups, size, arena, starts, arena + begin, end - begin, _key(arena, begin, end))
            store_u32(insert(groups, size, ID_BYTES, key), word)


def index_words(words: list[bytes]) -> WordTable:
    """A table of distinct words, numbered in their order."""
    arena = np.frombuffer(b"".join(word + b"\n" for word in words) + bytes(8), np.uint8).copy()
    starts = np.cumsum([0, *(len(word) + 1 for word in words)], dtype=np.int64)
    table = WordTable(empty_table(len(words)), arena, starts)
    fill_words(table.address, len(words))
    return table


@inlined
def number_of(table: Any, text: int, begin: int, end: int) -> Any:
    """The number of the word text[begin:end], -1 if it is not known."""
    groups, size, arena, starts = located(table)
    return _find_word(groups, size, arena, starts, text + begin, end - begin, _key(text, begin, end))[0]


@helper
def _add_word(word: int, size: int, to: int) -> None:
    for i in range(size):
        store_u8(to + i, load_u8(word + i))
    store_u8(to + size, LINE_FEED)


@kernel
def intern(
    text: Any,
    last: int,
    table: Any,
    meaning: Any,
    meanings: int,
    fixed: bool,
    unknown: int,
    eos: int,
    blank: bool,
    ids: Any,
    state: Any,
) -> Any:
    """Append the ids of `text`, `last` bytes and the padding, to `ids`, and return why it stopped.

    Arrays are given by address. Word number k means the id meaning[k], or k - 1 beyond its end; a negative id is a
    reserved word. With a `fixed` vocabulary new words become `unknown`; if that is negative too, they stop the reading.
    With `blank` a line without words is a sentence, too.
    """
    position, written, sentence = load_item(state, POSITION), load_item(state, IDS), load_item(state, SENTENCE)
    begins = scratch(ROOM)
    ends, keys = begins + 8 * AHEAD, begins + 16 * AHEAD
    status, words, used = np.int64(DONE), load_item(state, WORDS), load_item(state, ARENA)
    groups, size, arena, starts = located(table)
    while position < last and status == DONE:
        items = 0
        while items < AHEAD and position < last:  # find some words, and ask for their places in the table
            begin, position = next_token(text, position, last, LINE_FEED, PLAIN_BLANKS)
            store_i64(begins + 8 * items, begin)
            store_i64(ends + 8 * items, position)
            if begin < last and load_u8(text + begin) != LINE_FEED:
                key = _key(text, begin, position)
                store_u64(keys + 8 * items, key)
                ask_for(groups, size, ID_BYTES, GROUPED, key)
            items += begin < last
        for item in range(items):  # look them up
            begin, end = load_i64(begins + 8 * item), load_i64(ends + 8 * item)
            if load_u8(text + begin) == LINE_FEED:
                if blank or written > sentence:
                    store_u32(ids + 4 * written, eos)
                    written += 1
                    sentence = written
                continue
            key = load_u64(keys + 8 * item)
            number, key = _find_word(groups, size, arena, starts, text + begin, end - begin, key)
            if number >= 0:
                word: Any = np.int64(np.int32(load_u32(meaning + 4 * number))) if number < meanings else number - 1
            elif fixed:
                word = unknown
            elif 2 * words >= ENTRIES * size:
                status, position = np.int64(FULL), begin
                break
            else:
                word = words - 1
                store_u32(insert(groups, size, ID_BYTES, key), words)
                _add_word(text + begin, end - begin, arena + used)
                used += end - begin + 1
                words += 1
                store_i64(starts + 8 * words, used)
            if word < 0:
                status, position = np.int64(RESERVED if number >= 0 else UNKNOWN), begin
                break
            store_u32(ids + 4 * written, word)
            written += 1
    store_i64(state + 8 * POSITION, position)
    store_i64(state + 8 * IDS, written)
    store_i64(state + 8 * SENTENCE, sentence)
    store_i64(state + 8 * WORDS, words)
    store_i64(state + 8 * ARENA, used)
    return status


def compile_ahead() -> None:
    """Begin to compile what reads text, while this process still loads a model."""
    compile_elsewhere(_compile, intern)


def _compile() -> None:
    number, flag = types.int64, types.boolean
    fill_words.compile((number, number))
    intern.compile((*[number] * 5, flag, number, number, flag, number, number))


@kernel
def renumber(ids: Any, numbers: Any, found: Any) -> None:
    """Let found = numbers[ids]."""
    for i in range(len(ids)):
        found[i] = numbers[np.uint32(ids[i])]
