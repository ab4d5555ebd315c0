"""Linear mixtures of tables, as one table.

    p(w|h) = sum_i weight_i p_i(w|h)      for every n-gram hw that any of the models lists: exact
    p(w|h) = a(h) p(w|h')                 for the rest, with the a(h) that makes the sum one

So after every history the n-grams listed by any model have the mixture's probability to the last digits, and the
words that no model lists there share exactly the mass that the mixture gives them. How they share it is
the order below's choice, where the mixture would give each its own backoff: a table has one a(h) per history. With
lower_i(h) = 1 - sum of p_i(v|h') over the v that any model lists after h,

    a(h) = sum_i weight_i lower_i(h) a_i(h) / sum_i weight_i lower_i(h)

Vocabularies and orders may differ: the tables are put on common ids and one trie, each meaning what it meant before. A
word that a model does not have gets probability zero from it, after every history; as part of a history it is unseen
there, so the history passes through to its longest known suffix. eos is one word in all models, and so is unk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.ngram.closure import ClosedLevel, build
from lidstone.ngram.prune import lower_left
from lidstone.ngram.query import rows_of
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.ngram.union import move_table, union
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
        if common[0].vocab.tokens is None:
            raise InputError("the models know no words, so text cannot be read", hint="pass fixed weights")
        ids, _ = read_words(text, common[0].vocab)
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
class LearntMixture:
    """The weights of a mixture and how well they do."""

    weights: tuple[float, ...]
    perplexity: float
    """of the text under the mixture, over the tokens that any model can predict"""
    iterations: int
    impossible: int
    """tokens that no model can predict; they say nothing about the weights"""


def learn_mixture(
    tables: Sequence[BackoffTable], ids: NDArray[np.integer], *, tolerance: float = 1e-9, iterations: int = 1000
) -> LearntMixture:
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
    return LearntMixture(tuple(weights.tolist()), perplexity, step, int((~possible).sum()))


def _mixed(tables: list[BackoffTable], weights: tuple[float, ...], parts: list[dict[str, Any]]) -> BackoffTable:
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


def _digest(parts: list[dict[str, Any]]) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


Ids = NDArray[np.int64]


def on_common_ids(tables: Sequence[BackoffTable]) -> list[BackoffTable]:
    """The same distributions over one vocabulary, with one order: that of the longest."""
    vocab = common_vocabulary([table.vocab for table in tables])
    order = max(table.order for table in tables)
    return [_extended(_renumbered(table, vocab), order) for table in tables]


def on_vocabulary(table: BackoffTable, vocab: Vocabulary) -> BackoffTable:
    """The same distribution over a vocabulary that has all of the table's words; its other words get none.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> table = AddLambda(lam=1).fit(count([[2]], Vocabulary.from_words(["b"]), order=1))
    >>> on_vocabulary(table, Vocabulary.from_words(["a", "b"])).prob([()]).tolist()       # <unk> </s> a b
    [[0.2, 0.4, 0.0, 0.4]]
    """
    if table.vocab.tokens is None or vocab.tokens is None:
        table.require(vocab)
    names = _names(table.vocab, _spelling([vocab], "eos"), _spelling([vocab], "unk"))
    known = (set(vocab.index), {name for name, number in vocab.index.items() if vocab.events[number]})
    missing = [name for name, event in zip(names, table.vocab.events, strict=True) if name not in known[int(event)]]
    if missing:
        shown = ", ".join(missing[:3])
        raise VocabularyMismatch(
            f"{len(missing)} of the table's {len(names)} words are not in the vocabulary, such as {shown}",
            hint="count and fit again with the tokenizer in use",
        )
    return _renumbered(table, vocab)


def on_common_trie(tables: Sequence[BackoffTable]) -> list[BackoffTable]:
    """The same distributions on the union of all n-grams; the tables must share ids and order."""
    trie = tables[0].trie
    for table in tables[1:]:
        trie = union(trie, table.trie)[0]
    return [move_table(table, trie, union(table.trie, trie)[1]) for table in tables]


def common_vocabulary(vocabs: Sequence[Vocabulary]) -> Vocabulary:
    """The words of the first, then what the others add; a word that any of them predicts can be predicted.

    >>> one, two = Vocabulary.from_words(["a", "b"]), Vocabulary.from_words(["c", "b"])
    >>> common_vocabulary([one, two]).tokens
    ('<unk>', '</s>', 'a', 'b', 'c')
    """
    first = vocabs[0]
    if all(vocab.fingerprint == first.fingerprint for vocab in vocabs):
        return first
    if any(vocab.tokens is None for vocab in vocabs):
        raise VocabularyMismatch(
            "the models have different vocabularies, and not all of them know their words",
            hint="count with one vocabulary, or give the vocabularies their tokens",
        )
    eos, unk = _spelling(vocabs, "eos"), _spelling(vocabs, "unk")
    tokens = dict.fromkeys(name for vocab in vocabs for name in _names(vocab, eos, unk))
    number = {token: i for i, token in enumerate(tokens)}
    predicted = {name for vocab in vocabs for name in np.array(_names(vocab, eos, unk), object)[vocab.events]}
    unpredictable = tuple(i for token, i in number.items() if token not in predicted)
    return Vocabulary(len(tokens), number[str(eos)], unpredictable, None if unk is None else number[unk], tuple(tokens))


def ids_in(vocab: Vocabulary, common: Vocabulary) -> Ids:
    """The common id of each id of `vocab`, and of its `<s>`."""
    if vocab.tokens is None or common.tokens is None:
        return np.arange(vocab.size + 1)
    names = _names(vocab, common.tokens[common.eos], None if common.unk is None else common.tokens[common.unk])
    return np.array([*(common.index[name] for name in names), common.bos])


def _spelling(vocabs: Sequence[Vocabulary], special: str) -> str | None:
    """How the first vocabulary that has eos, or unk, writes it."""
    for vocab in vocabs:
        number = getattr(vocab, special)
        if number is not None and vocab.tokens is not None:
            found: str | None = vocab.tokens[number]
            return found
    return None


def _names(vocab: Vocabulary, eos: str | None, unk: str | None) -> list[str]:
    """The tokens of a vocabulary, its specials spelt as in the common one."""
    names = list(vocab.tokens or ())
    for special, name in ((vocab.eos, eos), (vocab.unk, unk)):
        if special is not None and name is not None and names[special] != name:
            if name in names:
                raise VocabularyMismatch(
                    f"{name!r} is a special word in one model and an ordinary one in another",
                    hint="respell it in one of the two",
                )
            names[special] = name
    return names


def _renumbered(table: BackoffTable, vocab: Vocabulary) -> BackoffTable:
    """The table with the ids of a larger vocabulary; its n-grams are sorted again."""
    if table.vocab is vocab or table.vocab.fingerprint == vocab.fingerprint:
        return replace(table, vocab=vocab)
    ids, old = ids_in(table.vocab, vocab), table.trie
    trie, moved = build(_levels(old, ids), vocab.size)
    nodes = np.concatenate([ids, *moved[1:]]).astype(np.int64)
    base, rows, backoffs = np.zeros(vocab.size), np.zeros(trie.size), np.ones(trie.num_histories)
    base[ids[:-1]] = table.base
    rows[nodes] = table.rows
    backoffs[nodes[: old.num_histories]] = table.backoffs
    return replace(table, vocab=vocab, trie=trie, base=base, rows=rows, backoffs=backoffs)


def _levels(trie: Trie, ids: Ids) -> list[ClosedLevel]:
    """The n-grams of orders 2..n for `build`: the last word, and the places of prefix and suffix in the level below."""
    levels = []
    for order in range(2, trie.order + 1):
        here, below = trie.level(order), int(trie.levels[order - 2])
        places = ids if order == 2 else np.arange(trie.size)
        prefixes, suffixes = places[trie.parents[here] - below], places[trie.suffixes[here] - below]
        levels.append(ClosedLevel(ids[trie.words[here]].astype(np.int32).reshape(-1, 1), prefixes, suffixes, -1))
    return levels


def _extended(table: BackoffTable, order: int) -> BackoffTable:
    """The table with empty levels up to a higher order."""
    trie, backoffs = table.trie, table.backoffs
    for _ in range(order - trie.order):
        new = trie.size - trie.num_histories
        first = np.append(trie.first[: trie.num_histories], np.full(new + 1, trie.size, trie.first.dtype))
        trie = Trie(np.append(trie.levels, trie.size), trie.words, trie.suffixes, first)
        backoffs = np.append(backoffs, np.ones(new))
    return replace(table, trie=trie, backoffs=backoffs)
