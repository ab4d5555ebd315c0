"""Sentences as bytes in, scores out: the compiled loops over lines, in blocks of words and order by order.

Words are taken in blocks, across lines. For a block all words are found first, then all unigrams, all bigrams, and so
on; each pass asks for the memory of the next, so that most look-ups find their entry in the cache, and the loops have
few branches. The results are those of `step.py`, word by word, which serves states and single words.

`numbers` holds uint32 by rows: log10 p of the longest n-gram found, its length, and from row BACKOFFS on the bits of
the backoff of the n-gram of length 1, 2, ... that ends in each word. In the rows of backoffs column 0 is the last word
of the block before. A backoff of -0.0 (`SIGN`) says that no longer n-gram begins with this one, or that there is none.

The arrays of a block are given by address, for the reason that `text/memory.py` gives: `keys` (uint64) of what is
looked for next, `kinds` (uint8), `ids` (uint32, with the MOST ids of the block before in front), `places` (uint32) that
have more to look for, and `numbers`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lidstone.ngram.scorer.step import (
    LONGEST_VALUE,
    PAIR,
    STATE_SIZE,
    VOCAB_VALUE,
    find_word,
    ngram_table,
    seek,
    step,
    write_start,
)
from lidstone.ngram.scorer.tries import (
    BOS,
    EOS,
    GROUPS,
    KIND,
    ORDER,
    TRIE,
    UNIGRAM_BYTES,
    UNIGRAMS,
    UNK,
    VOCAB,
    VOCAB_BUCKETS,
    find_child,
    part,
    trie_unigram,
)
from lidstone.text.hash_tables import ask_for, find
from lidstone.text.memory import (
    SIGN,
    address_of,
    as_float,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    store_u8,
    store_u32,
    store_u64,
)
from lidstone.text.tokens import NONE, next_token, word_hash

BLOCK = 128
"""Words a pass."""
WORD, START, END = 0, 1, 2
"""What stands at a place of a block."""
MOST = 7
"""The longest history, and so the most words that a block must know of the one before."""
BITS, LENGTH, BACKOFFS = 0, 1, 2


@njit(cache=True, nogil=True, forceinline=True)
def cell(numbers, row, i):  # type: ignore[no-untyped-def]
    """The address of numbers[row, i]."""
    return numbers + 4 * ((BLOCK + 1) * row + i)


@njit(cache=True, nogil=True)
def read_block(layout, text, size, position, inside, separator, eos, keys, kinds):  # type: ignore[no-untyped-def]
    """The next words, with marks where lines begin and end: how many, and where the text goes on.

    Lines end at the byte `separator`, the last one at `size`. `inside` says whether a line has begun at `position`;
    after the last line the position is beyond `size`.
    """
    count = np.int64(0)
    vocab, buckets, kind = part(layout, VOCAB), part(layout, VOCAB_BUCKETS), part(layout, KIND)
    while position <= size and count < BLOCK:
        if not inside:
            store_u8(kinds + count, START)
            count += 1
            inside = True
            continue
        begin, position = next_token(text, position, size, separator, True)
        if begin == size or load_u8(text + begin) == separator:
            store_u8(kinds + count, END)
            count += eos
            inside = False
            position = begin + 1
        else:
            key = word_hash(text, begin, position)
            if kind != TRIE:
                ask_for(vocab, buckets, VOCAB_VALUE, kind, key)
            store_u64(keys + 8 * count, key)
            store_u8(kinds + count, WORD)
            count += 1
    return count, position, inside


@njit(cache=True, nogil=True)
def find_words(layout, reserved, count, kinds, keys, ids):  # type: ignore[no-untyped-def]
    """The ids of a block: words, `<s>` where a line begins, `</s>` where it ends.

    Where they are `reserved`, the words `<s>` and `</s>` of the text are unknown ones.
    """
    bos, eos, unk = part(layout, BOS), part(layout, EOS), part(layout, UNK)
    unigrams, width = part(layout, UNIGRAMS), part(layout, UNIGRAM_BYTES)
    for i in range(count):
        kind = load_u8(kinds + i)
        if kind == WORD:
            word = find_word(layout, load_u64(keys + 8 * i))
            word = unk if reserved and word in (bos, eos) else word
        else:
            word = bos if kind == START else eos
        store_u32(ids + 4 * i, word)
        prefetch(unigrams + word * width)


@njit(cache=True, nogil=True)
def find_unigrams(layout, bos, count, kinds, keys, ids, places, numbers):  # type: ignore[no-untyped-def]
    """The unigrams, and the `keys` of the bigrams. Returns how many `places` have a bigram to look for.

    `<s>`, where a line begins, is a history without words before it, or none at all (`bos` false).
    """
    unigrams, width = part(layout, UNIGRAMS), part(layout, UNIGRAM_BYTES)
    table, slots, value = ngram_table(layout, 0)
    order, kind, active = part(layout, ORDER), part(layout, KIND), np.int64(0)
    for i in range(count):
        word, start = np.int64(load_u32(ids + 4 * i)), load_u8(kinds + i) == START
        bits, backoff = load_u32(unigrams + word * width), load_u32(unigrams + word * width + 4)
        if kind == TRIE:
            bits = trie_unigram(layout, unigrams + word * width)
        store_u32(cell(numbers, BITS, i), bits)
        store_u32(cell(numbers, LENGTH, i), 1)
        store_u32(cell(numbers, BACKOFFS, 1 + i), SIGN if start and not bos else backoff)
        for row in range(BACKOFFS + 1, BACKOFFS + order - 1):
            store_u32(cell(numbers, row, 1 + i), SIGN)
        store_u32(places + 4 * active, i)
        if not (start or bits & SIGN or load_u32(cell(numbers, BACKOFFS, i)) == SIGN):
            store_u64(keys + 8 * i, seek(kind, table, slots, value, np.uint64(word), load_u32(ids + 4 * i - 4)))
            active += 1
    return active


@njit(cache=True, nogil=True)
def find_ngrams(layout, active, keys, ids, places, numbers):  # type: ignore[no-untyped-def]
    """The n-grams of orders 2, 3, ... that end in the words at `places`, as long as there are longer ones."""
    kind, order = part(layout, KIND), part(layout, ORDER)
    for k in range(order - 2):
        table, slots, value = ngram_table(layout, k)
        longer, longer_slots, longer_value = ngram_table(layout, k + 1)
        still = 0
        for a in range(active):
            i = np.int64(load_u32(places + 4 * a))
            key = load_u64(keys + 8 * i)
            if kind == TRIE:
                found, key, bits, backoff = find_child(layout, k, key, load_u32(ids + 4 * (i - k - 1)))
            else:
                at = find(table, slots, PAIR, 1, key) if kind == GROUPS else find(table, slots, value, 0, key)
                found = at != 0
                if found:
                    bits, backoff = load_u32(at), load_u32(at + 4)
            if not found:
                continue
            store_u32(cell(numbers, BITS, i), bits)
            store_u32(cell(numbers, LENGTH, i), k + 2)
            store_u32(cell(numbers, BACKOFFS + k + 1, 1 + i), backoff)
            if not (bits & SIGN or load_u32(cell(numbers, BACKOFFS + k + 1, i)) == SIGN):
                word = load_u32(ids + 4 * (i - k - 2))
                store_u64(keys + 8 * i, seek(kind, longer, longer_slots, longer_value, key, word))
                store_u32(places + 4 * still, i)
                still += 1
        active = still
    find_longest(layout, active, keys, ids, places, numbers)


@njit(cache=True, nogil=True)
def find_longest(layout, active, keys, ids, places, numbers):  # type: ignore[no-untyped-def]
    """The n-grams of the highest order, which have no backoffs."""
    kind, order = part(layout, KIND), part(layout, ORDER)
    table, slots, _ = ngram_table(layout, order - 2)
    for a in range(active):
        i = np.int64(load_u32(places + 4 * a))
        key = load_u64(keys + 8 * i)
        if kind == TRIE:
            found, _, bits, _ = find_child(layout, order - 2, key, load_u32(ids + 4 * (i - order + 1)))
        else:
            at = find(table, slots, LONGEST_VALUE, kind, key)
            found = at != 0
            if found:
                bits = load_u32(at)
        if found:
            store_u32(cell(numbers, BITS, i), bits)
            store_u32(cell(numbers, LENGTH, i), order)


@njit(cache=True, nogil=True)
def sum_logprobs(order, count, numbers, logprobs):  # type: ignore[no-untyped-def]
    """log10 p of each word: that of its longest n-gram, and the backoffs of the histories too long for it."""
    for i in range(count):
        logprobs[i] = as_float(numbers[BITS, i] | SIGN)
    for k in range(order - 1):
        for i in range(count):
            backoff = as_float(numbers[BACKOFFS + k, i])
            logprobs[i] += backoff if numbers[LENGTH, i] <= k + 1 else np.float32(-0.0)


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
        logprobs[count], lengths[count] = step(model, before, word, after)
        unknown[count] = word == part(model, UNK)
        before, after = after, before
        count += 1
    if eos:
        logprobs[count], lengths[count] = step(model, before, part(model, EOS), after)
        unknown[count] = False
        count += 1
    return count


@njit(cache=True, nogil=True)
def begin_sentence(layout, state):  # type: ignore[no-untyped-def]
    """Write the state of a sentence start."""
    write_start(address_of(layout), address_of(state))


@njit(cache=True, nogil=True)
def index_word(layout, word):  # type: ignore[no-untyped-def]
    """The id of one word, whatever its bytes; `word` ends with the padding."""
    address = address_of(word)
    return find_word(address_of(layout), word_hash(address, 0, len(word) - 8))
