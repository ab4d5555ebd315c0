"""Where everything of a model stands in memory (`layout`), and look-ups in KenLM's tries, in the mapped file.

A trie runs from the newest word to the oldest: the children of (b c) are the n-grams (a b c), sorted by the id of a.
Entries are packed bit by bit (`formats/kenlm.py` has the format). Nothing of a file is trusted: what an entry points
to is cut to the entries that there are, and a search that goes inwards at every step ends.
"""

from __future__ import annotations

import numpy as np

from lidstone.jit import helper, inlined
from lidstone.text.memory import SIGN, load_item, load_u32, load_u64

ORDER, UNK, BOS, EOS, IDS, VOCAB, VOCAB_BUCKETS, UNIGRAMS, UNIGRAM_BYTES, MIDDLE_VALUE, KIND = map(np.int64, range(11))
WORD_BITS, PROB_BITS, BACKOFF_BITS, TABLES = map(np.int64, range(11, 15))
"""Places in `layout`, an int64 array: addresses, numbers of buckets, sizes of values, ids of special words, the number
of ids; from TABLES on WIDE numbers for each of the orders 2, 3, ...: of hash tables address and buckets, of tries:"""
ADDRESS, COUNT, STRIDE, NEXT_BITS, OFFSETS, SIZE, PROB_BINS, BACKOFF_BINS, WIDE = map(np.int64, range(9))
"""address and number of entries, bits of an entry and of its pointer, the array of upper bits of pointers and its size,
and the bins of quantised tries, 0 where there are none"""
SLOTS, GROUPS, TRIE = map(np.int64, range(3))
"""Kinds: KenLM's hash tables, ours (`text/hash_tables.py`), and KenLM's tries."""

_NO_SIGN = np.uint32(0x7FFFFFFF)
_PROB, _BACKOFF = np.int64(31), np.int64(32)
FEW = 17
"""Fewer entries than this are read one after the other."""
MOST_NGRAMS = 1 << 38
"""of one order: the key of an n-gram has 38 bits for where its children begin, and 26 for how many they are"""
_BEGIN_BITS, _BEGIN, _MANY = np.uint64(38), np.uint64(MOST_NGRAMS - 1), np.uint64((1 << 26) - 1)
"""_MANY children or more: the key has the n-gram's own place"""


@inlined
def load_bits(address, bit, mask):  # type: ignore[no-untyped-def]
    """The number at a bit of a block: at most 57 bits, or 64 where it begins with a byte."""
    return (load_u64(address + (bit >> 3)) >> np.uint64(bit & 7)) & mask


@inlined
def mask_of(width):  # type: ignore[no-untyped-def]
    """So many bits that are set, 63 at most."""
    return (np.uint64(1) << np.uint64(width)) - np.uint64(1)


@helper
def find_sorted(address, stride, mask, begin, end, most, key):  # type: ignore[no-untyped-def]
    """The place of a number among the rising ones at begin, ..., end - 1, which are at most `most`; or -1.

    The numbers are taken for evenly spread, which words in the order of their hashes are.
    """
    before, low, high = begin - 1, np.uint64(0), most
    while end - before > FEW:
        width = end - before - 1
        share = np.float64(key - low) / (np.float64(high - low) + 1.0)
        ahead = np.int64(share * width)
        pivot = before + 1 + (ahead if ahead < width else width - 1)
        found = load_bits(address, pivot * stride, mask)
        if found == key:
            return pivot
        if found < key:
            before, low = pivot, found
        else:
            end, high = pivot, found
    for place in range(before + 1, end):
        if load_bits(address, place * stride, mask) == key:
            return place
    return np.int64(-1)


@inlined
def find_hash(layout, key):  # type: ignore[no-untyped-def]
    """The id of a word: the ids of a trie are the places of the sorted hashes, after `<unk>`."""
    every, count = np.uint64(0xFFFFFFFFFFFFFFFF), load_item(layout, VOCAB_BUCKETS)
    return find_sorted(load_item(layout, VOCAB), np.int64(64), every, np.int64(0), count, every, key) + 1


@inlined
def trie_unigram(layout, at):  # type: ignore[no-untyped-def]
    """The bits of log10 p of the unigram at an address, with the sign as in hash tables."""
    bits = load_u32(at)
    return bits & _NO_SIGN if load_u64(at + 8) < load_u64(at + 24) else bits | SIGN


@helper
def children(layout, k, node):  # type: ignore[no-untyped-def]
    """Where the (k + 2)-grams that end in a (k + 1)-gram begin and end."""
    most = np.uint64(load_item(layout, TABLES + WIDE * k + COUNT))
    if k == 0:
        at = load_item(layout, UNIGRAMS) + node * load_item(layout, UNIGRAM_BYTES) + 8
        begin, end = load_u64(at), load_u64(at + 16)
    else:
        table = layout + 8 * (TABLES + WIDE * (k - 1))
        address, stride, width = load_item(table, ADDRESS), load_item(table, STRIDE), load_item(table, NEXT_BITS)
        bit, mask = node * stride + stride - width, mask_of(width)
        begin, end = load_bits(address, bit, mask), load_bits(address, bit + stride, mask)
        offsets, size = load_item(table, OFFSETS), load_item(table, SIZE)
        if size > 0:
            upper = upper_bits(offsets, size, np.uint64(node))
            begin |= np.uint64(upper) << np.uint64(width)
            while upper + 1 < size and load_u64(offsets + 8 * (upper + 1)) <= np.uint64(node + 1):
                upper += 1
            end |= np.uint64(upper) << np.uint64(width)
    return np.int64(begin if begin < most else most), np.int64(end if end < most else most)


@inlined
def upper_bits(offsets, size, node):  # type: ignore[no-untyped-def]
    """The place of the last of the rising offsets, of which the first is 0, that is not above the node."""
    low, high = np.int64(0), size
    while high - low > 1:
        middle = (low + high) >> 1
        if load_u64(offsets + 8 * middle) <= node:
            low = middle
        else:
            high = middle
    return low


@helper
def find_child(layout, k, key, word):  # type: ignore[no-untyped-def]
    """The (k + 2)-gram with one more word at the old end of the (k + 1)-gram with this key; as `step.extend`.

    The key of a unigram is its id, that of a longer n-gram where its children are, found to say whether it has any.
    """
    if k == 0:
        begin, end = children(layout, k, np.int64(key))
    else:
        begin = np.int64(key & _BEGIN)
        end = begin + np.int64(key >> _BEGIN_BITS)
        if key >> _BEGIN_BITS == _MANY:
            begin, end = children(layout, k, begin)
    table, word_bits = layout + 8 * (TABLES + WIDE * k), load_item(layout, WORD_BITS)
    address, stride, most = load_item(table, ADDRESS), load_item(table, STRIDE), np.uint64(load_item(layout, IDS))
    place = find_sorted(address, stride, mask_of(word_bits), begin, end, most, np.uint64(word))
    if place < 0:
        return False, key, SIGN, SIGN
    bits, backoff = trie_values(layout, k, place * stride + word_bits)
    longer = np.uint64(0)
    if k < load_item(layout, ORDER) - 2:
        begin, end = children(layout, k + 1, place)
        if begin < end:
            bits = bits & _NO_SIGN
            size = np.uint64(end - begin)
            longer = np.uint64(begin) | size << _BEGIN_BITS if size < _MANY else np.uint64(place) | _MANY << _BEGIN_BITS
    return True, longer, bits, backoff


@inlined
def trie_values(layout, k, bit):  # type: ignore[no-untyped-def]
    """The bits of log10 p, always with its sign, and of the backoff: 31 and 32, or the backoff's bin and then p's."""
    table, top = layout + 8 * (TABLES + WIDE * k), k == load_item(layout, ORDER) - 2
    address, probs, backoffs = load_item(table, ADDRESS), load_item(table, PROB_BINS), load_item(table, BACKOFF_BINS)
    backoff = SIGN
    if probs == 0:
        bits = np.uint32(load_bits(address, bit, mask_of(_PROB)))
        if not top:
            backoff = np.uint32(load_bits(address, bit + 31, mask_of(_BACKOFF)))
    else:
        if not top:
            width = load_item(layout, BACKOFF_BITS)
            backoff = load_u32(backoffs + 4 * np.int64(load_bits(address, bit, mask_of(width))))
            bit += width
        bits = load_u32(probs + 4 * np.int64(load_bits(address, bit, mask_of(load_item(layout, PROB_BITS)))))
    return bits | SIGN, backoff
