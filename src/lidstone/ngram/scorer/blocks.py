"""Sentences as bytes in, scores out: the compiled loops over lines, in blocks of words and order by order.

Words are taken in blocks, across lines. For a block all words are found first, then all unigrams, all bigrams, and so
on; each pass asks for the memory of the next, so that most look-ups find their entry in the cache, and the loops have
few branches. The results are those of `step.py`, word by word, which serves states and single words.

`numbers` holds uint32 by rows: log10 p of the longest n-gram found, its length, and from row BACKOFFS on the bits of
the backoff of the n-gram of length 1, 2, ... that ends in each word. In the rows of backoffs column 0 is the last word
of the block before. A backoff of -0.0 (`SIGN`) says that no longer n-gram begins with this one, or that there is none.

The arrays of a block are given by address, for the reason that `text/memory.py` gives: `keys` (uint64) of what is
looked for next, `marks` (uint8), `ids` (uint32, with the MOST ids of the block before in front), `places` (uint32) that
have more to look for, and `numbers`.
"""

from __future__ import annotations

import numpy as np

from lidstone.jit import helper, kernel
from lidstone.ngram.scorer.step import (
    VOCAB_VALUE,
    find_longest,
    find_middle,
    find_unigram,
    find_word,
    ngram_table,
    seek,
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
)
from lidstone.ngram.trie import MAX_ORDER
from lidstone.text.hash_tables import ask_for
from lidstone.text.memory import (
    SIGN,
    as_float,
    load_f32,
    load_item,
    load_item_f32,
    load_item_u32,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    scratch,
    store_f32,
    store_f64,
    store_item_f32,
    store_u8,
    store_u32,
    store_u64,
)
from lidstone.text.tokens import PADDED, WIDE_BLANKS, next_token, word_hash

BLOCK = 128
"""Words a pass."""
WORD, START, END = 0, 1, 2
"""What stands at a place of a block."""
MOST = MAX_ORDER - 1
"""The longest history, and so the most words that a block must know of the one before."""
LINE = np.dtype([("log10", "<f8"), ("words", "<i8"), ("oov", "<i8"), ("single", "<f4")], align=True)
"""The sum of log10 p in float64; words, and unknown words; the sum in float32, as KenLM adds."""
TOKEN = np.dtype([("log10", "<f4"), ("length", "<u4")])
"""log10 p, and the length of the n-gram that matched, with `SIGN` if the word is unknown."""
ROW = 4 * (BLOCK + 1)
BITS, LENGTH, BACKOFFS = 0, ROW, 2 * ROW
"""Bytes of a row of `numbers`, and where its rows begin."""
ROOM = 17 * BLOCK + (2 + MOST) * ROW + 4 * (MOST + BLOCK)
"""Bytes of all arrays of a block."""


@helper
def read_block(layout, text, size, position, inside, separator, eos, keys, marks):  # type: ignore[no-untyped-def]
    """The next words, with marks where lines begin and end: how many, and where the text goes on.

    Lines end at the byte `separator`, the last one at `size`. `inside` says whether a line has begun at `position`;
    after the last line the position is beyond `size`.
    """
    count = np.int64(0)
    kind, vocab, buckets = load_item(layout, KIND), load_item(layout, VOCAB), load_item(layout, VOCAB_BUCKETS)
    while position <= size and count < BLOCK:
        if not inside:
            store_u8(marks + count, START)
            count += 1
            inside = True
            continue
        begin, position = next_token(text, position, size, separator, WIDE_BLANKS)
        if begin == size or load_u8(text + begin) == separator:
            store_u8(marks + count, END)
            count += eos
            inside = False
            position = begin + 1
        else:
            key = word_hash(text, begin, position, PADDED)
            if kind != TRIE:
                ask_for(vocab, buckets, VOCAB_VALUE, kind == GROUPS, key)
            store_u64(keys + 8 * count, key)
            store_u8(marks + count, WORD)
            count += 1
    return count, position, inside


@helper
def find_words(layout, reserved, count, marks, keys, ids):  # type: ignore[no-untyped-def]
    """The ids of a block: words, `<s>` where a line begins, `</s>` where it ends.

    Where they are `reserved`, the words `<s>` and `</s>` of the text are unknown ones.
    """
    bos, eos, unk = load_item(layout, BOS), load_item(layout, EOS), load_item(layout, UNK)
    unigrams, width = load_item(layout, UNIGRAMS), load_item(layout, UNIGRAM_BYTES)
    for i in range(count):
        mark = load_u8(marks + i)
        if mark == WORD:
            word = find_word(layout, load_u64(keys + 8 * i))
            if reserved and (word == bos or word == eos):  # noqa: SIM109  `in` takes three times as long to compile
                word = unk
        else:
            word = bos if mark == START else eos
        store_u32(ids + 4 * i, word)
        prefetch(unigrams + word * width)


@helper
def find_unigrams(layout, bos, count, marks, keys, ids, places, numbers):  # type: ignore[no-untyped-def]
    """The unigrams, and the `keys` of the bigrams. Returns how many `places` have a bigram to look for.

    `<s>`, where a line begins, is a history without words before it, or none at all (`bos` false).
    """
    kind, order, active = load_item(layout, KIND), load_item(layout, ORDER), np.int64(0)
    unigrams, width = load_item(layout, UNIGRAMS), load_item(layout, UNIGRAM_BYTES)
    table, slots, value = ngram_table(layout, np.int64(0))
    for i in range(count):
        word, start = np.int64(load_u32(ids + 4 * i)), load_u8(marks + i) == START
        bits, backoff = find_unigram(kind, layout, unigrams + word * width)
        store_u32(numbers + BITS + 4 * i, bits)
        store_u32(numbers + LENGTH + 4 * i, 1)
        store_u32(numbers + BACKOFFS + 4 * (1 + i), SIGN if start and not bos else backoff)
        for k in range(1, order - 1):
            store_u32(numbers + BACKOFFS + ROW * k + 4 * (1 + i), SIGN)
        store_u32(places + 4 * active, i)
        if not (start or bits & SIGN or load_u32(numbers + BACKOFFS + 4 * i) == SIGN):
            store_u64(keys + 8 * i, seek(kind, table, slots, value, np.uint64(word), load_u32(ids + 4 * i - 4)))
            active += 1
    return active


@helper
def find_ngrams(layout, active, keys, ids, places, numbers):  # type: ignore[no-untyped-def]
    """The n-grams of orders 2, 3, ... that end in the words at `places`, as long as there are longer ones."""
    kind, order = load_item(layout, KIND), load_item(layout, ORDER)
    table, slots, value = ngram_table(layout, np.int64(0))
    for k in range(order - 2):
        longer, longer_slots, longer_value = ngram_table(layout, k + 1)
        still = 0
        for a in range(active):
            i = np.int64(load_u32(places + 4 * a))
            key, word = load_u64(keys + 8 * i), load_u32(ids + 4 * (i - k - 1))
            found, key, bits, backoff = find_middle(kind, layout, k, table, slots, value, key, word)
            if not found:
                continue
            store_u32(numbers + BITS + 4 * i, bits)
            store_u32(numbers + LENGTH + 4 * i, k + 2)
            store_u32(numbers + BACKOFFS + ROW * (k + 1) + 4 * (1 + i), backoff)
            if not (bits & SIGN or load_u32(numbers + BACKOFFS + ROW * (k + 1) + 4 * i) == SIGN):
                word = load_u32(ids + 4 * (i - k - 2))
                store_u64(keys + 8 * i, seek(kind, longer, longer_slots, longer_value, key, word))
                store_u32(places + 4 * still, i)
                still += 1
        active, table, slots, value = still, longer, longer_slots, longer_value
    for a in range(active):
        i = np.int64(load_u32(places + 4 * a))
        word = load_u32(ids + 4 * (i - order + 1))
        found, bits = find_longest(kind, layout, order - 2, table, slots, load_u64(keys + 8 * i), word)
        if found:
            store_u32(numbers + BITS + 4 * i, bits)
            store_u32(numbers + LENGTH + 4 * i, order)


@helper
def sum_logprobs(order, count, numbers, logprobs):  # type: ignore[no-untyped-def]
    """log10 p of each word: that of its longest n-gram, and the backoffs of the histories too long for it."""
    bits, lengths, backoffs = numbers + BITS, numbers + LENGTH, numbers + BACKOFFS
    for i in range(count):
        store_item_f32(logprobs, i, as_float(load_item_u32(bits, i) | SIGN))
    for k in range(order - 1):
        for i in range(count):
            backoff = load_item_f32(backoffs, i)
            used = backoff if load_item_u32(lengths, i) <= k + 1 else np.float32(-0.0)
            store_item_f32(logprobs, i, load_item_f32(logprobs, i) + used)
        backoffs += ROW


@helper
def write_line(lines, at, sums, sum32, words, unknown):  # type: ignore[no-untyped-def]
    """Write one `LINE`; the first text before a line is none."""
    if lines and at >= 0:
        line = lines + 32 * at
        store_f64(line, sums)
        store_u64(line + 8, words)
        store_u64(line + 16, unknown)
        store_f32(line + 24, sum32)


@kernel
def score_blocks(layout, text, size, separator, reserved, bos, eos, lines, tokens):  # type: ignore[no-untyped-def]
    """Score a text, of which eight bytes more may be read. The last line has no separator after it.

    `lines` and `tokens` are addresses of a `LINE` for each and of a `TOKEN` for each word and `</s>`, or 0 where they
    are not wanted. Where they are `reserved`, `<s>` and `</s>` in the text are unknown words. Returns the sum of the
    last line in float32, and the number of tokens.
    """
    order, unk = load_item(layout, ORDER), load_item(layout, UNK)
    keys = scratch(ROOM)
    places, logprobs, marks = keys + 8 * BLOCK, keys + 12 * BLOCK, keys + 16 * BLOCK
    numbers, ids = keys + 17 * BLOCK, keys + 17 * BLOCK + (2 + MOST) * ROW + 4 * MOST
    for i in range(MOST):
        store_u32(ids - 4 * (i + 1), 0)
    for k in range(MOST):
        store_u32(numbers + BACKOFFS + ROW * k, 0)
    position, inside, count, at, written = np.int64(0), np.bool_(False), np.int64(BLOCK), np.int64(-1), np.int64(0)
    sums, sum32, words, unknown = 0.0, np.float32(0.0), np.int64(0), np.int64(0)
    while count > 0:
        count, position, inside = read_block(layout, text, size, position, inside, separator, eos, keys, marks)
        find_words(layout, reserved, count, marks, keys, ids)
        active = find_unigrams(layout, bos, count, marks, keys, ids, places, numbers)
        find_ngrams(layout, active, keys, ids, places, numbers)
        sum_logprobs(order, count, numbers, logprobs)
        for i in range(count):
            mark = load_u8(marks + i)
            if mark == START:
                write_line(lines, at, sums, sum32, words, unknown)
                sums, sum32, words, unknown = 0.0, np.float32(0.0), np.int64(0), np.int64(0)
                at += 1
                continue
            logprob, new = load_f32(logprobs + 4 * i), mark == WORD and load_u32(ids + 4 * i) == unk
            sum32 += logprob
            sums += logprob
            words += mark == WORD
            unknown += new
            if tokens:
                store_f32(tokens + 8 * written, logprob)
                store_u32(
                    tokens + 8 * written + 4, load_u32(numbers + LENGTH + 4 * i) | (SIGN if new else np.uint32(0))
                )
            written += 1
        for i in range(MOST):
            store_u32(ids - 4 * (MOST - i), load_u32(ids + 4 * (count - MOST + i)))
        for k in range(order - 1):
            store_u32(numbers + BACKOFFS + ROW * k, load_u32(numbers + BACKOFFS + ROW * k + 4 * count))
    write_line(lines, at, sums, sum32, words, unknown)
    return sum32, written


@kernel
def index_word(layout, word, size):  # type: ignore[no-untyped-def]
    """The id of the word at an address, whatever its bytes; eight bytes more may be read."""
    return find_word(layout, word_hash(word, np.int64(0), size, PADDED))
