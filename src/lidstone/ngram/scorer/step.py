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
from numba import njit

from lidstone.ngram.scorer.tries import (
    BOS,
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
    part,
    trie_unigram,
)
from lidstone.text.hash_tables import ask_for, find
from lidstone.text.memory import SIGN, as_float, load_u32, store_u32

VOCAB_VALUE, LONGEST_VALUE, PAIR = 4, 4, 8
"""Sizes of values: an id, log10 p, log10 p and a backoff. KenLM's files may have more than a PAIR (`MIDDLE_VALUE`)."""

STATE_SIZE = 16
"""A state is 16 uint32: its length, up to 7 words, the newest first, and up to 7 backoffs, the bits of float32."""
_WORDS, _BACKOFFS = 4, 32

_A = np.uint64(8978948897894561157)
_B = np.uint64(17894857484156487943)


@njit(cache=True, nogil=True, forceinline=True)
def extend_key(key, word):  # type: ignore[no-untyped-def]
    """The key of an n-gram with one more word at its old end; the key of a unigram is its id."""
    return (key * _A) ^ ((np.uint64(word) + np.uint64(1)) * _B)


@njit(cache=True, nogil=True, forceinline=True)
def find_word(layout, key):  # type: ignore[no-untyped-def]
    """The id of the word with this hash, or that of the unknown word; a damaged file may hold ids that are none."""
    kind, unknown = part(layout, KIND), part(layout, UNK)
    if kind == TRIE:
        return find_hash(layout, key)
    at = find(part(layout, VOCAB), part(layout, VOCAB_BUCKETS), VOCAB_VALUE, kind, key)
    word = np.int64(load_u32(at)) if at else unknown
    return word if word < part(layout, IDS) else unknown


@njit(cache=True, nogil=True, forceinline=True)
def find_unigram(layout, word):  # type: ignore[no-untyped-def]
    """The bits of log10 p and of the backoff of a word."""
    at = part(layout, UNIGRAMS) + word * part(layout, UNIGRAM_BYTES)
    if part(layout, KIND) == TRIE:
        return trie_unigram(layout, at), load_u32(at + 4)
    return load_u32(at), load_u32(at + 4)


@njit(cache=True, nogil=True, forceinline=True)
def ngram_table(layout, k):  # type: ignore[no-untyped-def]
    """Address, slots and size of the values of the table of (k + 2)-grams."""
    value = LONGEST_VALUE if k == part(layout, ORDER) - 2 else part(layout, MIDDLE_VALUE)
    return part(layout, TABLES + WIDE * k), part(layout, TABLES + WIDE * k + 1), value


@njit(cache=True, nogil=True, forceinline=True)
def seek(kind, table, slots, value, key, word):  # type: ignore[no-untyped-def]
    """What the n-gram with one more word at its old end is found by; its memory is asked for."""
    if kind == TRIE:
        return key
    longer = extend_key(key, word)
    ask_for(table, slots, value, kind, longer)
    return longer


@njit(cache=True, nogil=True)
def extend(layout, k, key, word):  # type: ignore[no-untyped-def]
    """The (k + 2)-gram that is one word longer than the one with this key.

    Whether it is there, its key, and the bits of log10 p and of the backoff; the highest order has no backoff.
    """
    kind = part(layout, KIND)
    if kind == TRIE:
        return find_child(layout, k, key, word)
    key = extend_key(key, word)
    table, slots, value = ngram_table(layout, k)
    at = find(table, slots, value, kind, key)
    if at == 0:
        return False, key, SIGN, SIGN
    return True, key, load_u32(at), (load_u32(at + 4) if value > LONGEST_VALUE else SIGN)


@njit(cache=True, nogil=True)
def write_start(layout, state):  # type: ignore[no-untyped-def]
    """Write the state of a sentence start, whose history is `<s>`."""
    bos = part(layout, BOS)
    store_u32(state, 1)
    store_u32(state + _WORDS, bos)
    store_u32(state + _BACKOFFS, find_unigram(layout, bos)[1])


@njit(cache=True, nogil=True)
def step(layout, before, word, after):  # type: ignore[no-untyped-def]
    """log10 p(word | before) and the length of the longest n-gram that matched; `after` becomes the next state.

    States are given by address and must not be the same.
    """
    bits, backoff = find_unigram(layout, word)
    store_u32(after + _BACKOFFS, backoff)
    useful, matched, length = np.int64(backoff != SIGN), np.int64(1), np.int64(load_u32(before))
    key, last = np.uint64(word), part(layout, ORDER) - 2
    for i in range(length):
        if bits & SIGN:
            break
        found, key, longer, backoff = extend(layout, i, key, load_u32(before + _WORDS + 4 * i))
        if not found:
            break
        matched, bits = np.int64(i + 2), longer
        if i == last:
            break
        store_u32(after + _BACKOFFS + 4 * (i + 1), backoff)
        if backoff != SIGN:
            useful = matched
    logprob = as_float(bits | SIGN)
    for i in range(last + 1):  # always as many rounds, and no branches: they could not be predicted
        used = matched - 1 <= i < length
        logprob += as_float(load_u32(before + _BACKOFFS + 4 * i)) if used else np.float32(0.0)
    store_u32(after, useful)
    store_u32(after + _WORDS, word)
    for i in range(STATE_SIZE // 2 - 2):
        store_u32(after + _WORDS + 4 * (i + 1), load_u32(before + _WORDS + 4 * i))
    return logprob, matched
