"""Sentences as bytes in, scores out: the compiled loops over words and lines.

Words are taken in blocks. For a block all hashes come first, then all ids, then all keys of n-grams, and each pass asks
for the memory of the next: most look-ups then find their entry in the cache. The results do not depend on it.
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
MOST = 7
"""The longest history, and so the most words that a block must know of the one before."""


@njit(cache=True, nogil=True)
def read_block(layout, text, position, end, hashes):  # type: ignore[no-untyped-def]
    """The hashes of the next words, as many as fit; how many, and where the text goes on."""
    count = 0
    vocab, buckets, scatter = part(layout, VOCAB), part(layout, VOCAB_BUCKETS), part(layout, SCATTER)
    while position < end and count < BLOCK:
        if is_space(load_u8(text + position)):
            position += 1
            continue
        stop = word_end(text, position)
        key = word_hash(text, position, stop)
        prefetch(vocab + first_slot(buckets, scatter, key) * VOCAB_BYTES)
        hashes[count] = key
        count += 1
        position = stop
    return count, position


@njit(cache=True, nogil=True)
def prefetch_ngram(layout, i, key):  # type: ignore[no-untyped-def]
    """Ask for the memory of the n-gram of order i + 2 with this key."""
    stride = LONGEST_BYTES if i == part(layout, ORDER) - 2 else part(layout, MIDDLE_BYTES)
    slot = first_slot(part(layout, TABLES + 2 * i + 1), part(layout, SCATTER), key)
    prefetch(part(layout, TABLES + 2 * i) + slot * stride)


@njit(cache=True, nogil=True)
def look_up(layout, hashes, count, ids):  # type: ignore[no-untyped-def]
    """The ids of a block's words, after the MOST ids before them."""
    for i in range(count):
        ids[MOST + i] = find_word(layout, hashes[i])
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
def score_line(layout, text, begin, end, bos, eos, states, hashes, room):  # type: ignore[no-untyped-def]
    """The sum of log10 p in float32, as KenLM adds, and in float64; how many words, and how many of them unknown."""
    single, exact = np.float32(0.0), np.float64(0.0)
    words, unknown, position, more = 0, 0, begin, True
    before, after, unk = states, states + 4 * STATE_SIZE, part(layout, UNK)
    ids, bigrams = room
    for i in range(MOST):
        ids[i] = part(layout, BOS)
    store_u32(before, 0)
    if bos:
        write_start(layout, before)
    while more:
        count, position = read_block(layout, text, position, end, hashes)
        look_up(layout, hashes, count, ids)
        words += count
        more = position < end
        if eos and not more:
            ids[MOST + count] = part(layout, EOS)
            count += 1
        look_up_bigrams(layout, ids, count, bigrams)
        for i in range(count):
            word = ids[MOST + i]
            logprob, _ = step(layout, before, word, after, bigrams[i])
            single += logprob
            exact += logprob
            unknown += word == unk
            before, after = after, before
        for i in range(MOST):
            ids[i] = ids[count + i]
    return single, exact, words, unknown


@njit(cache=True, nogil=True)
def make_room():  # type: ignore[no-untyped-def]
    """Ids, those before the block and `</s>` after it included, and bigrams of a block."""
    return np.empty(MOST + BLOCK + 1, np.int64), np.empty(BLOCK + 1, np.int64)


@njit(cache=True, nogil=True)
def score_one(layout, text, bos, eos):  # type: ignore[no-untyped-def]
    """The float32 sum of one sentence; `text` ends with the padding."""
    states, hashes = np.empty(2 * STATE_SIZE, np.uint32), np.empty(BLOCK, np.uint64)
    address, end = address_of(text), len(text) - 8
    return score_line(address_of(layout), address, 0, end, bos, eos, address_of(states), hashes, make_room())[0]


@njit(cache=True, nogil=True)
def score_many(layout, text, begins, ends, bos, eos, single, exact, words, unknown):  # type: ignore[no-untyped-def]
    """Line by line."""
    states, hashes = np.empty(2 * STATE_SIZE, np.uint32), np.empty(BLOCK, np.uint64)
    model, address, place, room = address_of(layout), address_of(text), address_of(states), make_room()
    for i in range(len(begins)):
        single[i], exact[i], words[i], unknown[i] = score_line(
            model, address, begins[i], ends[i], bos, eos, place, hashes, room
        )


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
