"""Text of any length with the n-gram statistics of real text: drawn from a fitted table, millions of words a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import njit

import lidstone as ld
from lidstone.ngram.trie import sum_children

BLOCK = 1 << 21


def write_sample(table: ld.BackoffTable, tokens: int, path: Path, seed: int = 0) -> int:
    """Write sentences drawn from `table`, of about so many tokens, ends of sentences included; returns how many."""
    trie, arrays = table.trie, _prepared(table)
    strings = np.array([*table.vocab.tokens, ""], object)
    strings[table.vocab.eos] = "\n"
    strings[table.vocab.unk] = "UNK_"  # lmplz refuses <unk>
    written, state = 0, trie.vocab_size
    with path.open("w", encoding="utf-8") as file:
        while written < tokens:
            ids = np.empty(min(BLOCK, tokens - written), np.int32)
            state = draw(*arrays, state, trie.vocab_size, table.vocab.eos, seed + written, ids)
            file.write(" ".join(strings[ids].tolist()).replace(" \n ", "\n").replace(" \n", "\n"))
            file.write("" if ids[-1] == table.vocab.eos else " ")
            written += len(ids)
        file.write("\n")
    return written


def _prepared(table: ld.BackoffTable) -> tuple[np.ndarray, ...]:
    """Offsets, links, words, sums of rows within each history, and of the base."""
    trie = table.trie
    sums = np.cumsum(np.maximum(table.rows, 0))
    base = np.cumsum(table.base)
    totals = sum_children(trie.first, np.maximum(table.rows, 0))
    return trie.first, trie.suffixes, trie.words, sums, totals, table.backoffs, base / base[-1]


@njit(cache=True)
def draw(first, suffixes, words, sums, totals, backoffs, base, state, bos, eos, seed, ids):
    """Words one after the other; p(w|h) is a row of h with the mass of its rows, else a word of the shorter history."""
    np.random.seed(seed)
    for i in range(len(ids)):
        node = np.int64(-1)
        while node < 0 and state >= 0:
            mass = totals[state] / (totals[state] + backoffs[state])
            if np.random.random() < mass:
                low, high = first[state], first[state + 1]
                before = sums[low - 1]
                target = before + np.random.random() * (sums[high - 1] - before)
                node = min(low + np.searchsorted(sums[low:high], target, side="right"), high - 1)
            else:
                state = suffixes[state]
        if node < 0:
            node = np.int64(np.searchsorted(base, np.random.random(), side="right"))
        ids[i] = words[node]
        state = np.int64(bos) if words[node] == eos else node
        while state >= len(backoffs):
            state = np.int64(suffixes[state])
    return state
