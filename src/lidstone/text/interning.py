"""The compiled inner loop of `text/words.py`: bytes in, ids out.

A hash table maps each word to its number, the order of its first appearance. Words of up to eight bytes are
their own key, padded with zeros, so that equal keys mean equal words; longer ones are hashed, marked by a
top byte of 0xFF, which UTF-8 never has, and compared in full with the copy in the arena, which has each known
word once, followed by a line feed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lidstone.text.hash_tables import ask_for, empty_groups, entries_per_group, find, insert
from lidstone.text.memory import address_of, load_i64, load_u32, store_u32
from lidstone.text.tokens import LINE_FEED, first_bytes, next_token, word_hash

DONE, FULL, RESERVED, UNKNOWN = 0, 1, 2, 3
"""Why `intern` stopped: text finished; table full; a reserved word; an unknown word where none may be."""
POSITION, IDS, SENTENCE, WORDS, ARENA = 0, 1, 2, 3, 4
"""State between calls: byte in the text, ids written, where the sentence began, words, arena bytes."""

AHEAD = 32
"""How many words are found before the first of them is looked up: their slots arrive from memory meanwhile."""

ID_BYTES = 4
"""The size of the values of the table: numbers of words"""
ENTRIES = entries_per_group(ID_BYTES)

_LONG = np.uint64(0xFF00000000000000)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ODD_TOO = np.uint64(0xD6E8FEB86659FD93)


class WordTable(NamedTuple):
    """The words known so far, in a table with room for twice as many at least."""

    groups: Any  # uint64: the hash table, see `hash_tables.py`
    arena: Any  # uint8: the words' bytes, each followed by a line feed, with 8 bytes to spare
    starts: Any  # int64: where each word begins in the arena, and where the last one ends


def empty_table(words: int) -> Any:
    """Groups with room for at least four times as many words."""
    return empty_groups(max(1 << 10, -(-4 * words // ENTRIES)))


@njit(nogil=True, cache=True, forceinline=True)
def _mixed(key: Any) -> Any:
    """A number of 64 bits for each, whose upper half depends on all of it."""
    mixed = key * _ODD
    return (mixed ^ (mixed >> np.uint64(32))) * _ODD_TOO


@njit(nogil=True, cache=True, forceinline=True)
def _key(text: int, begin: int, end: int) -> Any:
    short = end - begin <= 8
    return _mixed(first_bytes(text + begin, end - begin) if short else word_hash(text, begin, end) | _LONG)


@njit(nogil=True, cache=True)
def _find_word(table: int, groups: int, arena: int, starts: int, word: int, size: int, key: Any) -> Any:
    """The number of the word at this address, -1 if it is not known; and its key in the table.

    A long word whose hash another one has goes by the next key, which no short word has either.
    """
    while True:
        at = find(table, groups, ID_BYTES, 1, key)
        if at == 0:
            return np.int64(-1), key
        number = np.int64(load_u32(at))
        begin, end = load_i64(starts + 8 * number), load_i64(starts + 8 * number + 8) - 1
        if size <= 8 or (end - begin == size and _same(word, arena + begin, size)):
            return number, key
        key = _mixed(key | _LONG)


@njit(nogil=True, cache=True)
def _same(one: int, other: int, size: int) -> bool:
    """Whether `size` bytes at two addresses are the same."""
    for offset in range(0, size, 8):
        if first_bytes(one + offset, size - offset) != first_bytes(other + offset, size - offset):
            return False
    return True


@njit(nogil=True, cache=True)
def fill_words(table: Any, words: int) -> None:
    """Enter the first `words` words of the arena into an empty table; words without bytes are skipped."""
    groups, arena, starts = address_of(table.groups), address_of(table.arena), address_of(table.starts)
    for word in range(words):
        begin, end = table.starts[word], table.starts[word + 1] - 1
        if end > begin:
            first = _key(arena, begin, end)
            _, key = _find_word(groups, table.groups.size // 8, arena, starts, arena + begin, end - begin, first)
            store_u32(insert(groups, table.groups.size // 8, ID_BYTES, key), np.uint32(word))


def index_words(words: list[bytes]) -> WordTable:
    """A table of distinct words, numbered in their order."""
    arena = np.frombuffer(b"".join(word + b"\n" for word in words) + bytes(8), np.uint8).copy()
    starts = np.cumsum([0, *(len(word) + 1 for word in words)], dtype=np.int64)
    table = WordTable(empty_table(len(words)), arena, starts)
    fill_words(table, len(words))
    return table


@njit(nogil=True, cache=True)
def locate(table: Any) -> Any:
    """The addresses of a table's parts, for `number_of`; the table must stay alive."""
    return address_of(table.groups), table.groups.size // 8, address_of(table.arena), address_of(table.starts)


@njit(nogil=True, cache=True)
def number_of(located: Any, text: int, begin: int, end: int) -> Any:
    """The number of the word text[begin:end], -1 if it is not known."""
    groups, size, arena, starts = located
    return _find_word(groups, size, arena, starts, text + begin, end - begin, _key(text, begin, end))[0]


@njit(nogil=True, cache=True)
def _add_word(text: Any, begin: int, end: int, arena: Any, starts: Any, state: Any) -> None:
    used = state[ARENA]
    arena[used : used + end - begin] = text[begin:end]
    arena[used + end - begin] = 10
    state[ARENA] += end - begin + 1
    state[WORDS] += 1
    starts[state[WORDS]] = state[ARENA]


@njit(nogil=True, cache=True)
def intern(
    text: Any, table: Any, meaning: Any, fixed: bool, unknown: int, eos: int, blank: bool, ids: Any, state: Any
) -> int:
    """Append the ids of `text`, which has eight bytes of padding, to `ids`, and return why it stopped.

    Word number k means the id meaning[k], or k - 1 beyond its end; a negative id is a reserved word. With a
    `fixed` vocabulary new words become `unknown`; if that is negative too, they stop the reading. With `blank` a line
    without words is a sentence, too.
    """
    position, written, sentence = state[POSITION], state[IDS], state[SENTENCE]
    begins, ends, keys = np.empty(AHEAD, np.int64), np.empty(AHEAD, np.int64), np.empty(AHEAD, np.uint64)
    status, last, address, arena = DONE, text.size - 8, address_of(text), address_of(table.arena)
    groups, size, starts = address_of(table.groups), table.groups.size // 8, address_of(table.starts)
    while position < last and status == DONE:
        items = 0
        while items < AHEAD and position < last:  # find some words, and ask for their places in the table
            begin, position = next_token(address, position, last, LINE_FEED, False)
            begins[items], ends[items] = begin, position
            if begin < last and text[begin] != LINE_FEED:
                keys[items] = _key(address, begin, position)
                ask_for(groups, size, ID_BYTES, 1, keys[items])
            items += begin < last
        for item in range(items):  # look them up
            begin, end = begins[item], ends[item]
            if text[begin] == LINE_FEED:
                if blank or written > sentence:
                    ids[written] = eos
                    written += 1
                    sentence = written
                continue
            number, key = _find_word(groups, size, arena, starts, address + begin, end - begin, keys[item])
            if number >= 0:
                word: Any = np.int64(meaning[number]) if number < meaning.size else number - 1
            elif fixed:
                word = unknown
            elif 2 * state[WORDS] >= ENTRIES * size:
                status, position = FULL, begin
                break
            else:
                word = state[WORDS] - 1
                store_u32(insert(groups, size, ID_BYTES, key), np.uint32(state[WORDS]))
                _add_word(text, begin, end, table.arena, table.starts, state)
            if word < 0:
                status, position = RESERVED if number >= 0 else UNKNOWN, begin
                break
            ids[written] = word
            written += 1
    state[POSITION], state[IDS], state[SENTENCE] = position, written, sentence
    return status


@njit(nogil=True, cache=True)
def renumber(ids: Any, numbers: Any, found: Any) -> None:
    """Let found = numbers[ids]."""
    for i in range(len(ids)):
        found[i] = numbers[np.uint32(ids[i])]
