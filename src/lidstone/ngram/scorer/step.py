"""One word after one state, in a model kept as one of KenLM's two formats keeps it: in hash tables, or as a trie.

The n-grams of each order k >= 2 are a hash table from a 64-bit key of their words to log10 p and log10 of the backoff,
both float32; unigrams are an array. Bits serve as flags, as in KenLM's files: a p without its sign bit says that a
longer n-gram ends in this one; a backoff of -0.0 says that no longer n-gram begins with it. `layout` says where each
part stands in memory. In a trie (`tries.py`) the place of an n-gram among those of its order serves as its key.

Arithmetic is float32 in KenLM's order, so that the results are KenLM's to the last bit. Like KenLM, a 64-bit key is
taken for the n-gram: a mistake has a chance of about the number of n-grams in 10^19 per look-up.
"""

from __future__ import annotations

import numpy as np

from lidstone.jit import inlined
from lidstone.ngram.scorer.tries import (
    GROUPS,
    IDS,
    KIND,
    MIDDLE_VALUE,
    ORDER,
    TABLES,
    TRIE,
    UNIGRAM_BYTES,
    UNIGRAMS,
    UNK,
    VOCAB,
    VOCAB_BUCKETS,
    WIDE,
    find_child,
    find_hash,
    trie_unigram,
)
from lidstone.text.hash_tables import ask_for, find, find_grouped, find_in_slots
from lidstone.text.memory import SIGN, as_float, load_f32, load_item, load_u32, store_u32

VOCAB_VALUE, LONGEST_VALUE, PAIR = np.int64(4), np.int64(4), np.int64(8)
"""Sizes of values: an id, log10 p, log10 p and a backoff. KenLM's files may have more than a PAIR (`MIDDLE_VALUE`)."""

STATE_WORDS, WORDS, BACKOFFS = 7, 4, 32
"""A state is uint32: its length, up to 7 words, the newest first, and up to 7 backoffs, the bits of float32; and where
words and backoffs stand in it."""

_A = np.uint64(8978948897894561157)
_B = np.uint64(17894857484156487943)


@inlined
def extend_key(key, word):  # type: ignore[no-untyped-def]
    """The key of an n-gram with one more word at its old end; the key of a unigram is its id."""
    return (key * _A) ^ ((np.uint64(word) + np.uint64(1)) * _B)


@inlined
def find_word(layout, key):  # type: ignore[no-untyped-def]
    """The id of the word with this hash, or that of the unknown word; a damaged file may hold ids that are none."""
    kind = load_item(layout, KIND)
    if kind == TRIE:
        return find_hash(layout, key)
    at = find(load_item(layout, VOCAB), load_item(layout, VOCAB_BUCKETS), VOCAB_VALUE, kind == GROUPS, key)
    word, unknown = np.int64(load_u32(at)) if at else load_item(layout, IDS), load_item(layout, UNK)
    return word if word < load_item(layout, IDS) else unknown


@inlined
def find_unigram(kind, layout, at):  # type: ignore[no-untyped-def]
    """The bits of log10 p and of the backoff of the word whose numbers are at this address."""
    bits = trie_unigram(layout, at) if kind == TRIE else load_u32(at)
    return bits, load_u32(at + 4)


@inlined
def ngram_table(layout, k):  # type: ignore[no-untyped-def]
    """Address, slots and size of the values of the table of (k + 2)-grams."""
    value = LONGEST_VALUE if k == load_item(layout, ORDER) - 2 else load_item(layout, MIDDLE_VALUE)
    return load_item(layout, TABLES + WIDE * k), load_item(layout, TABLES + WIDE * k + 1), value


@inlined
def seek(kind, table, slots, value, key, word):  # type: ignore[no-untyped-def]
    """What the n-gram with one more word at its old end is found by; its memory is asked for."""
    if kind == TRIE:
        return key
    longer = extend_key(key, word)
    ask_for(table, slots, value, kind == GROUPS, longer)
    return longer


@inlined
def find_middle(kind, layout, k, table, slots, value, key, word):  # type: ignore[no-untyped-def]
    """The (k + 2)-gram with one more word at its old end, by what `seek` gave; below the highest order.

    Whether it is there, its key, and the bits of log10 p and of the backoff.
    """
    if kind == TRIE:
        return find_child(layout, k, key, word)
    at = find_grouped(table, slots, PAIR, key) if kind == GROUPS else find_in_slots(table, slots, value, key)
    if at == 0:
        return False, key, SIGN, SIGN
    return True, key, load_u32(at), load_u32(at + 4)


@inlined
def find_longest(kind, layout, k, table, slots, key, word):  # type: ignore[no-untyped-def]
    """The same of the highest order, which has no backoffs: whether it is there, and the bits of log10 p."""
    if kind == TRIE:
        found, _, bits, _ = find_child(layout, k, key, word)
        return found, bits
    at = find(table, slots, LONGEST_VALUE, kind == GROUPS, key)
    if at == 0:
        return False, SIGN
    return True, load_u32(at)


@inlined
def step(layout, before, word, after):  # type: ignore[no-untyped-def]
    """log10 p(word | before) and the length of the longest n-gram that matched; `after` becomes the next state.

    States are given by address and must not be the same.
    """
    kind, order = load_item(layout, KIND), load_item(layout, ORDER)
    at = load_item(layout, UNIGRAMS) + word * load_item(layout, UNIGRAM_BYTES)
    bits, backoff = find_unigram(kind, layout, at)
    store_u32(after + BACKOFFS, backoff)
    useful, matched, length = np.int64(backoff != SIGN), np.int64(1), np.int64(load_u32(before))
    key, last = np.uint64(word), order - 2
    for i in range(length):
        if bits & SIGN:
            break
        oldest = load_u32(before + WORDS + 4 * i)
        table, slots, value = ngram_table(layout, i)
        key = seek(kind, table, slots, value, key, oldest)
        if i == last:
            found, longer = find_longest(kind, layout, i, table, slots, key, oldest)
            if found:
                matched, bits = np.int64(i + 2), longer
            break
        found, key, longer, backoff = find_middle(kind, layout, i, table, slots, value, key, oldest)
        if not found:
            break
        matched, bits = np.int64(i + 2), longer
        store_u32(after + BACKOFFS + 4 * (i + 1), backoff)
        if backoff != SIGN:
            useful = matched
    logprob = as_float(bits | SIGN)
    for i in range(last + 1):  # always as many rounds, and no branches: they could not be predicted
        used = matched - 1 <= i < length
        logprob += load_f32(before + BACKOFFS + 4 * i) if used else np.float32(0.0)
    store_u32(after, useful)
    store_u32(after + WORDS, word)
    for i in range(STATE_WORDS - 1):
        store_u32(after + WORDS + 4 * (i + 1), load_u32(before + WORDS + 4 * i))
    return logprob, matched
