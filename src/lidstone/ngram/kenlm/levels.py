"""The n-grams of ARPA sections and of tables, with the keys and flags that `build.py` packs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.ngram.arpa.lines import Section
from lidstone.ngram.arpa.text import LOG_ZERO
from lidstone.ngram.closure import close
from lidstone.ngram.kenlm.build import Level
from lidstone.ngram.kenlm.compiled.step import extend_key
from lidstone.ngram.kenlm.trie_file import Trie, parents_of
from lidstone.ngram.table import BackoffTable

MISSING_UNK = -100.0
"""log10 p of unknown words where the model has no `<unk>`; KenLM's choice too"""


def levels_of_sections(sections: list[Section], extra: int = 0) -> list[Level]:
    """The sections as they are, in float32; an n-gram that a longer one needs and the file lacks gets its backed-off p.

    The ids are the words' places among the unigrams, and `extra` more words after them have `MISSING_UNK`.
    """
    first = sections[0]
    logprobs = [np.append(first.logprobs, [MISSING_UNK] * extra).astype(np.float32)]
    backoffs = [np.append(first.backoffs, [0.0] * extra).astype(np.float32)]
    keys = [np.arange(len(logprobs[0]), dtype=np.uint64)]
    closed = close([section.ngrams for section in sections[1:]])
    for section, level in zip(sections[1:], closed, strict=True):
        keys.append(_keys(level.ngrams))
        inserted = slice(len(section.logprobs), len(level.ngrams))
        lower = logprobs[-1][level.suffixes[inserted]] + backoffs[-1][level.prefixes[inserted]]
        logprobs.append(np.concatenate([section.logprobs.astype(np.float32), lower]))
        backoffs.append(np.concatenate([section.backoffs.astype(np.float32), np.zeros(len(lower), np.float32)]))
    links = [(level.suffixes, level.prefixes) for level in closed]
    return _joined(keys, logprobs, backoffs, links)


def levels_of_table(table: BackoffTable, extra: int = 0) -> list[Level]:
    """The n-grams of a table's trie with their full probabilities; ids are the table's, `<s>` is its `vocab.bos`."""
    trie = table.trie
    keys = _trie_keys(trie.suffixes, trie.parents)
    logprobs = _log10(table.ngram_probs)
    backoffs = np.append(_log10(table.backoffs), np.zeros(trie.size - trie.num_histories, np.float32))
    by_order = [
        [array[trie.level(order)] for order in range(1, trie.order + 1)] for array in (keys, logprobs, backoffs)
    ]
    if extra:
        for orders, value in zip(by_order, (np.uint64(trie.vocab_size + 1), MISSING_UNK, 0.0), strict=True):
            orders[0] = np.append(orders[0], np.asarray(value, orders[0].dtype))
    links = [_links(table, order) for order in range(2, trie.order + 1)]
    return _joined(by_order[0], by_order[1], by_order[2], links)


def levels_of_trie(trie: Trie) -> list[Level]:
    """The n-grams of KenLM's trie, which knows its links and flags: nothing has to be looked up."""
    levels: list[Level] = []
    for order, section in enumerate(trie.sections, start=1):
        oldest = section.ngrams[:, 0].astype(np.uint64)
        keys = _extended(levels[-1].keys[parents_of(trie.begins[order - 2])], oldest) if levels else oldest
        top = order == len(trie.sections)
        left = np.zeros(len(keys), np.bool_) if top else trie.begins[order - 1][1:] > trie.begins[order - 1][:-1]
        right = (section.backoffs != 0) | ~np.signbit(section.backoffs)
        values = (section.logprobs.astype(np.float32), section.backoffs.astype(np.float32))
        levels.append(Level(keys, *values, left, right))
    return levels


def _links(table: BackoffTable, order: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Suffixes and prefixes of one order, as places within the order below."""
    trie = table.trie
    level, below = trie.level(order), trie.levels[order - 2]
    return trie.suffixes[level] - below, trie.parents[level] - below


def _joined(
    keys: list[NDArray[Any]],
    logprobs: list[NDArray[Any]],
    backoffs: list[NDArray[Any]],
    links: list[tuple[NDArray[Any], NDArray[Any]]],
) -> list[Level]:
    """Levels, marked by what the level above links to."""
    levels = []
    for k, (key, logprob, backoff) in enumerate(zip(keys, logprobs, backoffs, strict=True)):
        left, right = np.zeros(len(key), np.bool_), np.zeros(len(key), np.bool_)
        if k < len(links):
            left[links[k][0]] = True
            right[links[k][1]] = True
        levels.append(Level(key, logprob, backoff, left, right))
    return levels


def _log10(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """As in an ARPA file: zero has the log -99."""
    logs = np.full(len(values), LOG_ZERO)
    return np.log10(values, out=logs, where=values > 0).astype(np.float32)


@njit(cache=True, nogil=True)
def _keys(ngrams):  # type: ignore[no-untyped-def]
    """The keys of n-grams given as rows of ids, oldest first."""
    keys = np.empty(len(ngrams), np.uint64)
    for i in range(len(ngrams)):
        key = np.uint64(ngrams[i, -1])
        for k in range(ngrams.shape[1] - 2, -1, -1):
            key = extend_key(key, ngrams[i, k])
        keys[i] = key
    return keys


@njit(cache=True, nogil=True)
def _extended(keys, words):  # type: ignore[no-untyped-def]
    """The keys of n-grams with one more word each at their old end."""
    longer = np.empty(len(keys), np.uint64)
    for i in range(len(keys)):
        longer[i] = extend_key(keys[i], words[i])
    return longer


@njit(cache=True, nogil=True)
def _trie_keys(suffixes, parents):  # type: ignore[no-untyped-def]
    """The keys of all nodes: that of the suffix, extended by the oldest word, which is the parent's oldest word too."""
    keys = np.empty(len(suffixes), np.uint64)
    oldest = np.empty(len(suffixes), np.int32)
    for node in range(len(suffixes)):
        if suffixes[node] < 0:
            keys[node], oldest[node] = node, node
        else:
            oldest[node] = oldest[parents[node]]
            keys[node] = extend_key(keys[suffixes[node]], oldest[node])
    return keys
