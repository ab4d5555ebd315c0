"""The compiled inner loop of `text/words.py`: bytes in, ids out.

An open-addressing table maps each word to its number, the order of its first appearance. Words of up to
eight bytes are their own key, padded with zeros, so that equal keys mean equal words; longer ones are
hashed, marked by a top byte of 0xFF, which UTF-8 never has, and compared in full with the copy in the
arena, which has each known word once, followed by a line feed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.cpython.unsafe.numbers import trailing_zeros

from lidstone.text.memory import address_of, prefetch_item
from lidstone.text.tokens import LINE_FEED, first_bytes, next_token, word_hash

DONE, FULL, RESERVED, UNKNOWN = 0, 1, 2, 3
"""Why `intern` stopped: text finished; table full; a reserved word; an unknown word where none may be."""
POSITION, IDS, SENTENCE, WORDS, ARENA = 0, 1, 2, 3, 4
"""State between calls: byte in the text, ids written, where the sentence began, words, arena bytes."""

AHEAD = 32
"""How many words are found before the first of them is looked up: their slots arrive from memory meanwhile."""

_LONG = np.uint64(0xFF00000000000000)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ODD_TOO = np.uint64(0xD6E8FEB86659FD93)


@njit(nogil=True, cache=True, forceinline=True)
def _key(text: Any, begin: int, end: int) -> Any:
    return first_bytes(text + begin, end - begin) if end - begin <= 8 else word_hash(text, begin, end) | _LONG


@njit(nogil=True, cache=True)
def _same(one: int, other: int, size: int) -> bool:
    """Whether `size` bytes at two addresses are the same."""
    for offset in range(0, size, 8):
        if first_bytes(one + offset, size - offset) != first_bytes(other + offset, size - offset):
            return False
    return True


class WordTable(NamedTuple):
    """The words known so far. Twice as many slots as words at least, a power of two."""

    keys: Any  # uint64, one per slot
    slots: Any  # int32: word number + 1; 0 is an empty slot
    arena: Any  # uint8: the words' bytes, each followed by a line feed, with 8 bytes to spare
    starts: Any  # int64: where each word begins in the arena, and where the last one ends


@njit(nogil=True, cache=True)
def _first_slot(keys: Any, key: Any) -> Any:
    mixed = key * _ODD
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _ODD_TOO
    return np.int64(mixed >> np.uint64(64 - trailing_zeros(np.uint64(keys.size))))


@njit(nogil=True, cache=True)
def fill(table: Any, words: int) -> None:
    """Enter the first `words` words of the arena into empty slots; words without bytes are skipped."""
    keys, slots, arena, starts = table
    for word in range(words):
        end = starts[word + 1] - 1
        if end > starts[word]:
            key = _key(address_of(arena), starts[word], end)
            slot = _first_slot(keys, key)
            while slots[slot]:
                slot = (slot + 1) & (keys.size - 1)
            keys[slot], slots[slot] = key, word + 1


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
    keys, slots, arena, starts = table
    position, written, sentence = state[POSITION], state[IDS], state[SENTENCE]
    begins, ends = np.empty(AHEAD, np.int64), np.empty(AHEAD, np.int64)
    found_keys, found_slots = np.empty(AHEAD, np.uint64), np.empty(AHEAD, np.int64)
    status, last, address, known = DONE, text.size - 8, address_of(text), address_of(arena)
    while position < last and status == DONE:
        items = 0
        while items < AHEAD and position < last:  # find some words, and ask for their slots
            begin, position = next_token(address, position, last, LINE_FEED, False)
            begins[items], ends[items] = begin, position
            if begin < last and text[begin] != LINE_FEED:
                found_keys[items] = _key(address, begin, position)
                found_slots[items] = _first_slot(keys, found_keys[items])
                prefetch_item(keys, found_slots[items])
                prefetch_item(slots, found_slots[items])
            items += begin < last
        for item in range(items):  # look them up; probing is inlined: as a function it would count references per word
            begin, end = begins[item], ends[item]
            if text[begin] == LINE_FEED:
                if blank or written > sentence:
                    ids[written] = eos
                    written += 1
                    sentence = written
                continue
            key, slot = found_keys[item], found_slots[item]
            number: Any = np.int64(slots[slot]) - 1
            while number >= 0:
                if keys[slot] == key and (
                    key < _LONG
                    or (
                        starts[number + 1] - starts[number] - 1 == end - begin
                        and _same(address + begin, known + starts[number], end - begin)
                    )
                ):
                    break
                slot = (slot + 1) & (keys.size - 1)
                number = np.int64(slots[slot]) - 1
            if number >= 0:
                word: Any = np.int64(meaning[number]) if number < meaning.size else number - 1
            elif fixed:
                word = unknown
            elif 2 * state[WORDS] >= keys.size:
                status, position = FULL, begin
                break
            else:
                word = state[WORDS] - 1
                _add_word(text, begin, end, arena, starts, state)
                keys[slot], slots[slot] = key, word + 2
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
