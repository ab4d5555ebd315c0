"""Linear mixtures of tables, as one table.

    p(w|h) = sum_i weight_i p_i(w|h)      for every n-gram hw that any of the models lists: exact
    p(w|h) = a(h) p(w|h')                 for the rest, with the a(h) that makes the sum one

So after every history the n-grams listed by any model have the mixture's probability to the last digits, and the
words that no model lists there share exactly the mass that the mixture gives them. How they share it is
the order below's choice, where the mixture would give each its own backoff: a table has one a(h) per history. With
lower_i(h) = 1 - sum of p_i(v|h') over the v that any model lists after h,

    a(h) = sum_i weight_i lower_i(h) a_i(h) / sum_i weight_i lower_i(h)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.combine.pruning import lower_left, rows_of
from lidstone.ngram.combine.vocabularies import on_common_ids, on_common_trie
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import Sources, read_words

Floats = NDArray[np.float64]
Weights = Sequence[float] | Literal["em"]


def mix(tables: Sequence[BackoffTable], weights: Weights | None = None, *, text: Sources | None = None) -> BackoffTable:
    """Mix two tables or more: fixed weights, equal ones by default, or `weights="em"` and the text to learn them from.

    Vocabularies and orders may differ: a word that a model does not have gets probability zero from it.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> vocab = Vocabulary(size=3, eos=0)
    >>> one, two = (AddLambda(lam=1).fit(count([[word]], vocab, order=2)) for word in (1, 2))
    >>> mix([one, two], [0.75, 0.25]).prob([[vocab.bos]]).round(4).tolist()   # .75 (1, 2, 1)/4 + .25 (1, 1, 2)/4
    [[0.25, 0.4375, 0.3125]]
    """
    if len(tables) < 2:
        raise InputError(f"a mixture needs two tables or more, not {len(tables)}", hint="ld.mix([one, two])")
    learn = isinstance(weights, str)
    if learn and weights != "em":
        raise InputError(f"weights must be numbers or 'em', not {weights!r}", hint="weights=[0.7, 0.3]")
    if learn != (text is not None):
        raise InputError("weights='em' and text= belong together", hint="give text that no model was counted on")
    common = on_common_ids(tables)
    if text is not None:
        ids, _ = read_words(text, _reading(common[0].vocab))
        shares = learn_mixture(common, ids).weights
    else:
        equal = [1 / len(tables)] * len(tables)
        shares = check_weights(equal if weights is None else weights, len(tables))  # type: ignore[arg-type]
    return _mixed(on_common_trie(common), shares, [table.signature for table in tables])


def check_weights(weights: Sequence[float], models: int) -> tuple[float, ...]:
    """One weight per model, none negative, summing to one; rounding in the sum is made good."""
    given = tuple(float(weight) for weight in weights)
    if len(given) != models:
        raise InputError(f"{len(given)} weights for {models} models", hint="give one weight per model")
    if not all(weight >= 0 for weight in given) or abs(sum(given) - 1) > 1e-6:
        raise InputError(f"the weights {given} must not be negative and must sum to 1, not to {sum(given):g}")
    return tuple(weight / sum(given) for weight in given)


@dataclass(frozen=True)
class Learnt:
    """The weights of a mixture and how well they do."""

    weights: tuple[float, ...]
    perplexity: float
    """of the text under the mixture, over the tokens that any model can predict"""
    iterations: int
    impossible: int
    """tokens that no model can predict; they say nothing about the weights"""


def learn_mixture(
    tables: Sequence[BackoffTable], ids: NDArray[np.integer], *, tolerance: float = 1e-9, iterations: int = 1000
) -> Learnt:
    """The weights that make a text most likely, by EM from equal ones; the tables must share a vocabulary.

    The likelihood is concave in the weights, so EM cannot end in a lesser maximum.
    """
    probs = np.exp(np.stack([table.token_logprobs(ids) for table in tables]))  # (models, tokens)
    possible = probs.any(axis=0)
    if not possible.any():
        raise InputError("the text has no word that a model can predict", hint="give text in the models' language")
    kept = probs[:, possible]
    weights = np.full(len(tables), 1 / len(tables))
    for step in range(1, iterations + 1):  # noqa: B007
        shares = weights[:, None] * kept
        new = (shares / shares.sum(axis=0)).mean(axis=1)
        moved = float(np.abs(new - weights).max())
        weights = new / new.sum()
        if moved < tolerance:
            break
    perplexity = float(np.exp(-np.log(weights @ kept).mean()))
    return Learnt(tuple(weights.tolist()), perplexity, step, int((~possible).sum()))


def _reading(vocab: Vocabulary) -> Vocabulary:
    if vocab.tokens is None:
        raise InputError("the models know no words, so text cannot be read", hint="pass fixed weights")
    return vocab


def _mixed(tables: list[BackoffTable], weights: tuple[float, ...], parts: list[dict]) -> BackoffTable:
    """The mixture of tables on one trie."""
    trie, vocab = tables[0].trie, tables[0].vocab
    probs, lower, left = np.zeros(trie.size), np.zeros(trie.num_histories), np.zeros(trie.num_histories)
    plain = np.zeros(trie.num_histories)
    for table, weight in zip(tables, weights, strict=True):
        below = weight * lower_left(trie, table.ngram_probs)
        probs += weight * table.ngram_probs
        lower += below
        left += below * table.backoffs
        plain += weight * table.backoffs
    backoffs = np.divide(left, lower, out=plain, where=lower > 0)
    base = probs[: vocab.size].copy()
    rows = rows_of(trie, probs, backoffs)
    signature = {
        "smoother": "mixture",
        "parameters": {"weights": list(weights), "models": _digest(parts)},
        "order": trie.order,
        "vocabulary": vocab.fingerprint,
        "parts": parts,
    }
    return BackoffTable(vocab, trie, base, rows, backoffs, signature)


def _digest(parts: list[dict]) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
