"""The compiled inner loop of `text/words.py`: bytes in, ids out.

An open-addressing table maps each word to its number, the order of its first appearance. Words of up to
eight bytes are their own key, padded with zeros, so that equal keys mean equal words; longer ones are
hashed eight bytes at a time, marked by a top byte of 0xFF, which UTF-8 never has, and compared in full
with the copy in the arena, which has each known word once, followed by a line feed. For little-endian
machines, as are all that numba supports.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

DONE, FULL, RESERVED, UNKNOWN = 0, 1, 2, 3
"""Why `intern` stopped: text finished; table full; a reserved word; an unknown word where none may be."""
POSITION, IDS, SENTENCE, WORDS, ARENA = 0, 1, 2, 3, 4
"""State between calls: byte in the text, ids written, where the sentence began, words, arena bytes."""

AHEAD = 32
"""How many words are found before the first of them is looked up: their slots arrive from memory meanwhile."""

_HIGH = np.uint64(0x8080808080808080)
_BELOW_33 = np.uint64(0x2121212121212121)
_LONG = np.uint64(0xFF00000000000000)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ODD_TOO = np.uint64(0xD6E8FEB86659FD93)


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Ask for an item that will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], function)
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(ask, [place, *(ir.Constant(number, value) for value in (0, 3, 1))])  # read, keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def _load8(typing: Any, array: Any, offset: Any) -> Any:
    """Eight bytes of a uint8 array from `offset` on, aligned or not, as one number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        return builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(array, types.int64), generate


@njit(nogil=True, cache=True, inline="always")
def _is_separator(byte: int) -> bool:
    return byte == 32 or byte == 10 or byte == 9 or byte == 13


@njit(nogil=True, cache=True)
def _word_end(text: Any, position: int) -> int:
    """The first separator from `position` on; eight bytes at a time look for any below 33."""
    while True:
        block = _load8(text, position)
        low = (block - _BELOW_33) & ~block & _HIGH
        if low == 0:
            position += 8
            continue
        position += trailing_zeros(low) >> 3
        if _is_separator(text[position]):
            return position
        position += 1  # another control character, part of the word


@njit(nogil=True, cache=True)
def _first_bytes(text: Any, position: int, size: int) -> Any:
    """The next `size` bytes, at most 8, padded with zeros."""
    block = _load8(text, position)
    return block if size >= 8 else block & ~(_ALL << np.uint64(8 * size))


@njit(nogil=True, cache=True)
def _key(text: Any, begin: int, end: int) -> Any:
    if end - begin <= 8:
        return _first_bytes(text, begin, end - begin)
    key = np.uint64(end - begin)
    for position in range(begin, end, 8):
        key = (key ^ _first_bytes(text, position, end - position)) * _ODD
        key ^= key >> np.uint64(29)
    return key | _LONG


@njit(nogil=True, cache=True)
def _same(text: Any, begin: int, end: int, arena: Any, starts: Any, number: int) -> bool:
    """Whether text[begin:end] is word `number` of the arena."""
    other, size = starts[number], end - begin
    if starts[number + 1] - other - 1 != size:
        return False
    for offset in range(0, size, 8):
        block = _first_bytes(text, begin + offset, size - offset)
        if block != _first_bytes(arena, other + offset, size - offset):
            return False
    return True


class Table(NamedTuple):
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
            key = _key(arena, starts[word], end)
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
    status, last = DONE, text.size - 8
    while position < last and status == DONE:
        items = 0
        while items < AHEAD and position < last:  # find some words, and ask for their slots
            byte = text[position]
            begins[items] = position
            if _is_separator(byte):
                position += 1
                ends[items] = position
                items += byte == 10
                continue
            position = _word_end(text, position)
            ends[items] = position
            found_keys[items] = _key(text, begins[items], position)
            found_slots[items] = _first_slot(keys, found_keys[items])
            prefetch(keys, found_slots[items])
            prefetch(slots, found_slots[items])
            items += 1
        for item in range(items):  # look them up; probing is inlined: as a function it would count references per word
            begin, end = begins[item], ends[item]
            if text[begin] == 10:
                if blank or written > sentence:
                    ids[written] = eos
                    written += 1
                    sentence = written
                continue
            key, slot = found_keys[item], found_slots[item]
            number: Any = np.int64(slots[slot]) - 1
            while number >= 0:
                if keys[slot] == key and (key < _LONG or _same(text, begin, end, arena, starts, number)):
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
