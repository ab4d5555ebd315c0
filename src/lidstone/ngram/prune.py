"""Relative-entropy pruning (Stolcke 1998): drop the n-grams whose loss changes the model least.

Without hw its history h has the backoff a'(h), and the distance to the model before is

    D(hw) = -p(h) { p(w|h) [log p(w|h') + log a'(h) - log p(w|h)] + left(h) [log a'(h) - log a(h)] }
    left(h) = 1 - sum of p(v|h) over the listed v,      a'(h) = (left(h) + p(w|h)) / (lower(h) + p(w|h'))
    lower(h) = 1 - sum of p(v|h') over the listed v,    p(h) = the product along h, with p(</s>) for p(<s>)

Every n-gram is tested alone, against the whole model, as SRILM and OpenGrm do. hw goes if exp(D) - 1 < entropy, the
relative change of the perplexity, and if no n-gram that stays needs it as its prefix or suffix. What stays keeps its
probability; backoffs are computed again, so the result sums to one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.jit import kernel
from lidstone.ngram.query import rows_of
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie, restrict, sum_children

Floats = NDArray[np.float64]


def prune(table: BackoffTable, *, entropy: float | None = None, size: int | None = None) -> BackoffTable:
    """The table without n-grams that change its perplexity by less than `entropy`, or with `size` n-grams at most.

    `size` counts all orders, `<s>` included, and drops the n-grams that matter least; single words always stay.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.witten_bell import WittenBell
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> table = WittenBell().fit(count([[1, 2], [1, 2], [2, 2, 1]], Vocabulary(size=3, eos=0), order=2))
    >>> table.trie.size, prune(table, entropy=0.02).trie.size, prune(table, size=7).trie.size
    (11, 6, 7)
    """
    if (entropy is None) == (size is None):
        raise InputError("prune needs either entropy= or size=", hint="entropy=1e-8 is a usual beginning")
    needed = importance(table)
    if entropy is not None:
        if not entropy >= 0:
            raise InputError(f"the entropy threshold must not be negative, not {entropy}", hint="try 1e-8")
        keep = needed >= np.log1p(entropy)
        made = {"entropy": float(entropy)}
    else:
        keep = _largest(needed, int(size or 0), table.trie)
        made = {"size": int(size or 0)}
    return without(table, keep, {**made, "dropped": int((~keep).sum())})


def importance(table: BackoffTable) -> Floats:
    """For each node the largest D of the n-grams that need it, its own included; infinite for single words.

    Nodes at or above any threshold are therefore closed under prefixes and suffixes.
    """
    trie, scores = table.trie, relative_entropies(table)
    scores[: trie.levels[1]] = np.inf
    _raise_needed(scores, trie.parents, trie.suffixes, int(trie.levels[1]))
    return scores


def relative_entropies(table: BackoffTable) -> Floats:
    """D(hw) of each node, in nats; zero for single words."""
    trie, probs = table.trie, table.ngram_probs
    scores = np.zeros(trie.size)
    lower = lower_left(trie, probs)
    _score(trie.first, trie.suffixes, probs, table.backoffs, _joint(table), lower, scores)
    return scores


def without(table: BackoffTable, keep: NDArray[np.bool_], made: dict[str, float]) -> BackoffTable:
    """The table on the kept nodes, which must be closed: their probabilities as they were, backoffs normalised."""
    trie, probs = table.trie, table.ngram_probs
    lower = lower_left(trie, probs)
    dropped = np.where(keep, 0.0, probs)
    dropped_lower = np.where(keep, 0.0, probs[trie.suffixes])
    left = table.backoffs * lower + sum_children(trie.first, dropped)
    below = lower + sum_children(trie.first, dropped_lower)
    backoffs = np.divide(left, below, out=table.backoffs.copy(), where=below > 0)
    untouched = sum_children(trie.first, (~keep).astype(np.int32)) == 0
    backoffs[untouched] = table.backoffs[untouched]  # to the last bit
    new_trie = restrict(trie, keep)
    new_backoffs = backoffs[keep[: trie.num_histories]]
    rows = rows_of(new_trie, probs[keep], new_backoffs)
    signature = {**table.signature, "pruned": [*table.signature.get("pruned", []), made]}
    return replace(table, trie=new_trie, rows=rows, backoffs=new_backoffs, signature=signature)


def lower_left(trie: Trie, probs: Floats) -> Floats:
    """lower(h) of each history: what the order below leaves to words that are not listed after h."""
    below = probs[trie.suffixes]
    found: Floats = np.maximum(1 - sum_children(trie.first, below), 0.0)
    return found


def _joint(table: BackoffTable) -> Floats:
    """p(h) of each node that can be a history: the product along it."""
    trie = table.trie
    start = table.base[table.vocab.eos]  # a sentence starts as often as one ends
    joint = np.append(table.base, start)
    for order in range(2, trie.order):
        level = trie.level(order)
        joint = np.append(joint, joint[trie.parents[level]] * table.ngram_probs[level])
    return joint


def _largest(needed: Floats, size: int, trie: Trie) -> NDArray[np.bool_]:
    """Which nodes stay so that `size` are left at most; equal ones go together."""
    words = int(trie.levels[1])
    if size < words:
        raise InputError(f"{size} n-grams are fewer than the {words} single words", hint="single words always stay")
    if size >= trie.size:
        return np.ones(trie.size, bool)
    limit = np.partition(needed, trie.size - size - 1)[trie.size - size - 1]  # the most important one to go
    keep: NDArray[np.bool_] = needed > limit
    return keep


@kernel
def _score(first, suffixes, probs, backoffs, joint, lower, scores):  # type: ignore[no-untyped-def]
    for history in range(len(backoffs)):
        left = backoffs[history] * lower[history]
        for node in range(first[history], first[history + 1]):
            p, below = probs[node], probs[suffixes[node]]
            if joint[history] == 0.0 or left + p == 0.0:
                scores[node] = 0.0
            elif below == 0.0:
                scores[node] = np.inf if p > 0.0 else 0.0  # no lower order can replace it
            else:
                log_new = np.log((left + p) / (lower[history] + below))
                change = p * (np.log(below) + log_new - np.log(p)) if p > 0.0 else 0.0
                if left > 0.0:
                    change += left * (log_new - np.log(backoffs[history]))
                scores[node] = max(-joint[history] * change, 0.0)  # a distance; rounding may say otherwise


@kernel
def _raise_needed(scores, parents, suffixes, words):  # type: ignore[no-untyped-def]
    for node in range(len(scores) - 1, words - 1, -1):
        for needed in (parents[node], suffixes[node]):
            scores[needed] = max(scores[needed], scores[node])
