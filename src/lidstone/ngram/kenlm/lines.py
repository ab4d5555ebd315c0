"""Sentences as bytes in, scores out: the compiled loops over words and lines.

Words are taken in blocks, across lines. For a block all hashes come first, then all ids, then all bigrams, and each
pass asks for the memory of the next: most look-ups then find their entry in the cache. The results do not depend on it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lidstone.ngram.kenlm.memory import SIGN, address_of, first_slot, load_u8, load_u32, prefetch, store_u32
from lidstone.ngram.kenlm.step import (
    BOS,
    EOS,
    LONGEST_BYTES,
    MIDDLE_BYTES,
    ORDER,
    SCATTER,
    STATE_SIZE,
    TABLES,
    UNIGRAM_BYTES,
    UNIGRAMS,
    UNK,
    UNSOUGHT,
    VOCAB,
    VOCAB_BUCKETS,
    VOCAB_BYTES,
    extend_key,
    find_ngram,
    find_word,
    part,
    step,
    write_start,
)
from lidstone.ngram.kenlm.words import is_space, word_end, word_hash

BLOCK = 32
"""Words a pass."""
WORD, START, END = 0, 1, 2
"""What stands at a place of a block."""
MOST = 7
"""The longest history, and so the most words that a block must know of the one before."""


@njit(cache=True, nogil=True)
def read_block(layout, text, begins, ends, line, position, eos, hashes, kinds):  # type: ignore[no-untyped-def]
    """The next words, with marks where lines begin and end: how many, and in which line and where the text goes on.

    A position of -1 says that the line has not begun.
    """
    count = 0
    vocab, buckets, scatter = part(layout, VOCAB), part(layout, VOCAB_BUCKETS), part(layout, SCATTER)
    while line < len(begins) and count < BLOCK:
        if position < 0:
            kinds[count] = START
            count += 1
            position = begins[line]
        elif position >= ends[line]:
            kinds[count] = END
            count += eos
            position = np.int64(-1)
            line += 1
        elif is_space(load_u8(text + position)):
            position += 1
        else:
            stop = word_end(text, position)
            hashes[count] = word_hash(text, position, stop)
            prefetch(vocab + first_slot(buckets, scatter, hashes[count]) * VOCAB_BYTES)
            kinds[count] = WORD
            count += 1
            position = stop
    return count, line, position


@njit(cache=True, nogil=True)
def prefetch_ngram(layout, i, key):  # type: ignore[no-untyped-def]
    """Ask for the memory of the n-gram of order i + 2 with this key."""
    stride = LONGEST_BYTES if i == part(layout, ORDER) - 2 else part(layout, MIDDLE_BYTES)
    slot = first_slot(part(layout, TABLES + 2 * i + 1), part(layout, SCATTER), key)
    prefetch(part(layout, TABLES + 2 * i) + slot * stride)


@njit(cache=True, nogil=True)
def look_up(layout, hashes, kinds, count, ids):  # type: ignore[no-untyped-def]
    """The ids of a block, after the MOST ids before it: words, `<s>` where a line begins, `</s>` where it ends."""
    for i in range(count):
        if kinds[i] == WORD:
            ids[MOST + i] = find_word(layout, hashes[i])
        else:
            ids[MOST + i] = part(layout, BOS if kinds[i] == START else EOS)
        prefetch_ngram(layout, 0, extend_key(np.uint64(ids[MOST + i]), ids[MOST + i - 1]))


@njit(cache=True, nogil=True)
def look_up_bigrams(layout, ids, count, bigrams):  # type: ignore[no-untyped-def]
    """The entry of each word and the one before it, for `step`."""
    unigrams, width, order = part(layout, UNIGRAMS), part(layout, UNIGRAM_BYTES), part(layout, ORDER)
    for i in range(count):
        word = ids[MOST + i]
        key = extend_key(np.uint64(word), ids[MOST + i - 1])
        at = np.int64(0) if load_u32(unigrams + word * width) & SIGN else find_ngram(layout, 0, key)
        bigrams[i] = at
        if at and not load_u32(at + 8) & SIGN:  # a longer n-gram ends in this one
            for k in range(1, order - 1):
                key = extend_key(key, ids[MOST + i - k - 1])
                prefetch_ngram(layout, k, key)


@njit(cache=True, nogil=True)
def score_many(layout, text, begins, ends, bos, eos, single, exact, words, unknown):  # type: ignore[no-untyped-def]
    """Per line text[begin:end] the sum of log10 p, in float32 as KenLM adds and in float64; words, and unknown words.

    After each line a space must follow, and after the last one the padding.
    """
    states, hashes, kinds = np.empty(2 * STATE_SIZE, np.uint32), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.int8)
    ids, bigrams = np.zeros(MOST + BLOCK, np.int64), np.empty(BLOCK, np.int64)
    model, address, unk = address_of(layout), address_of(text), layout[UNK]
    before, after = address_of(states), address_of(states) + 4 * STATE_SIZE
    line, position, at, count = 0, np.int64(-1), -1, BLOCK
    while count > 0:
        count, line, position = read_block(model, address, begins, ends, line, position, eos, hashes, kinds)
        look_up(model, hashes, kinds, count, ids)
        look_up_bigrams(model, ids, count, bigrams)
        for i in range(count):
            if kinds[i] == START:
                at += 1
                single[at], exact[at], words[at], unknown[at] = 0.0, 0.0, 0, 0
                store_u32(before, 0)
                if bos:
                    write_start(model, before)
            else:
                logprob, _ = step(model, before, ids[MOST + i], after, bigrams[i])
                single[at] += logprob
                exact[at] += logprob
                words[at] += kinds[i] == WORD
                unknown[at] += kinds[i] == WORD and ids[MOST + i] == unk
                before, after = after, before
        for i in range(MOST):
            ids[i] = ids[count + i]


@njit(cache=True, nogil=True)
def score_one(layout, text, bos, eos):  # type: ignore[no-untyped-def]
    """The float32 sum of one sentence; `text` ends with the padding."""
    single, exact, numbers = np.empty(1, np.float32), np.empty(1), np.zeros(4, np.int64)
    numbers[1] = len(text) - 8
    begins, ends, words, unknown = numbers[0:1], numbers[1:2], numbers[2:3], numbers[3:4]
    score_many(layout, text, begins, ends, bos, eos, single, exact, words, unknown)
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
    while position < end:
        if is_space(load_u8(address + position)):
            position += 1
            continue
        stop = word_end(address, position)
        word = find_word(model, word_hash(address, position, stop))
        logprobs[count], lengths[count] = step(model, before, word, after, UNSOUGHT)
        unknown[count] = word == part(model, UNK)
        before, after = after, before
        count += 1
        position = stop
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
