"""Sentences as bytes in, scores out: the compiled loops over lines."""

from __future__ import annotations

import numpy as np
from numba import njit

from lidstone.ngram.kenlm.compiled.blocks import (
    BACKOFFS,
    BLOCK,
    MOST,
    START,
    WORD,
    find_ngrams,
    find_unigrams,
    find_words,
    read_block,
    sum_logprobs,
)
from lidstone.ngram.kenlm.compiled.step import (
    EOS,
    ORDER,
    STATE_SIZE,
    UNK,
    UNSOUGHT,
    find_word,
    part,
    step,
    write_start,
)
from lidstone.text.memory import address_of, store_u32
from lidstone.text.tokens import NONE, next_token, word_hash


@njit(cache=True, nogil=True)
def score_many(layout, text, separator, reserved, bos, eos, single, exact, words, unknown):  # type: ignore[no-untyped-def]
    """Per line the sum of log10 p, in float32 as KenLM adds and in float64; words, and unknown words.

    The text ends with the padding. The last line has no separator after it. Where they are `reserved`, `<s>` and `</s>`
    in the text are unknown words.
    """
    order, unk, model, address, size = layout[ORDER], layout[UNK], address_of(layout), address_of(text), len(text) - 8
    keys, kinds = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint8)
    ids, places = np.zeros(MOST + BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    numbers, logprobs = np.zeros((order + 2, BLOCK + 1), np.uint32), np.empty(BLOCK, np.float32)
    at_keys, at_kinds, at_ids = address_of(keys), address_of(kinds), address_of(ids) + 4 * MOST
    at_places, at_numbers = address_of(places), address_of(numbers)
    position, inside, at, count = np.int64(0), False, -1, BLOCK
    sums, sum32, counted, missing = 0.0, np.float32(0.0), 0, 0
    while count > 0:
        count, position, inside = read_block(model, address, size, position, inside, separator, eos, at_keys, at_kinds)
        find_words(model, reserved, count, at_kinds, at_keys, at_ids)
        active = find_unigrams(model, bos, count, at_kinds, at_keys, at_ids, at_places, at_numbers)
        find_ngrams(model, active, at_keys, at_ids, at_places, at_numbers)
        sum_logprobs(order, count, numbers, logprobs)
        for i in range(count):
            if kinds[i] == START:
                if at >= 0:
                    single[at], exact[at], words[at], unknown[at] = sum32, sums, counted, missing
                sums, sum32, counted, missing = 0.0, np.float32(0.0), 0, 0
                at += 1
            else:
                sum32 += logprobs[i]
                sums += logprobs[i]
                counted += kinds[i] == WORD
                missing += kinds[i] == WORD and ids[MOST + i] == unk
        for i in range(MOST):
            ids[i] = ids[count + i]
        for row in range(BACKOFFS, len(numbers)):
            numbers[row, 0] = numbers[row, count]
    single[at], exact[at], words[at], unknown[at] = sum32, sums, counted, missing
    keys[0], places[0] = 0, 0  # numba frees an array after its last use, and a use of its address is none


@njit(cache=True, nogil=True)
def score_one(layout, text, bos, eos):  # type: ignore[no-untyped-def]
    """The float32 sum of one sentence; `text` ends with the padding."""
    single, exact, numbers = np.empty(1, np.float32), np.empty(1), np.zeros(2, np.int64)
    score_many(layout, text, NONE, False, bos, eos, single, exact, numbers[0:1], numbers[1:2])
    return single[0]


@njit(cache=True, nogil=True)
def score_words(layout, text, bos, eos, logprobs, lengths, unknown):  # type: ignore[no-untyped-def]
    """Each word of one sentence: log10 p, the length of the n-gram that matched, whether it is unknown; how many."""
    states = np.empty(2 * STATE_SIZE, np.uint32)
    model, address, position, end = address_of(layout), address_of(text), 0, len(text) - 8
    before, after = address_of(states), address_of(states) + 4 * STATE_SIZE
    store_u32(before, 0)
    if bos:
        write_start(model, before)
    count = 0
    while True:
        begin, position = next_token(address, position, end, NONE, True)
        if begin == end:
            break
        word = find_word(model, word_hash(address, begin, position))
        logprobs[count], lengths[count] = step(model, before, word, after, UNSOUGHT)
        unknown[count] = word == part(model, UNK)
        before, after = after, before
        count += 1
    if eos:
        logprobs[count], lengths[count] = step(model, before, part(model, EOS), after, UNSOUGHT)
        unknown[count] = False
        count += 1
    return count


@njit(cache=True, nogil=True)
def score_next(layout, before, word, after):  # type: ignore[no-untyped-def]
    """One word after a state; the states are arrays of STATE_SIZE uint32."""
    return step(address_of(layout), address_of(before), word, address_of(after), UNSOUGHT)


@njit(cache=True, nogil=True)
def begin_sentence(layout, state):  # type: ignore[no-untyped-def]
    """Write the state of a sentence start."""
    write_start(address_of(layout), address_of(state))


@njit(cache=True, nogil=True)
def index_word(layout, word):  # type: ignore[no-untyped-def]
    """The id of one word, whatever its bytes; `word` ends with the padding."""
    address = address_of(word)
    return find_word(address_of(layout), word_hash(address, 0, len(word) - 8))
