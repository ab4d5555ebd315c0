"""Tables with different vocabularies or orders, put on common ids and one trie, each meaning what it meant before.

A word that a model does not have gets probability zero from it, after every history; as part of a history it is
unseen there, so the history passes through to its longest known suffix. eos is one word in all models, and so is unk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import VocabularyMismatch
from lidstone.ngram.arpa.trie import Level, build
from lidstone.ngram.merge import move_table, union
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.vocabulary import Vocabulary

Ids = NDArray[np.int64]


def on_common_ids(tables: Sequence[BackoffTable]) -> list[BackoffTable]:
    """The same distributions over one vocabulary, with one order: that of the longest."""
    vocab = common_vocabulary([table.vocab for table in tables])
    order = max(table.order for table in tables)
    return [_extended(_renumbered(table, vocab), order) for table in tables]


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
            return vocab.tokens[number]
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


def _levels(trie: Trie, ids: Ids) -> list[Level]:
    """The n-grams of orders 2..n for `build`: the last word, and the places of prefix and suffix in the level below."""
    levels = []
    for order in range(2, trie.order + 1):
        here, below = trie.level(order), int(trie.levels[order - 2])
        places = ids if order == 2 else np.arange(trie.size)
        prefixes, suffixes = places[trie.parents[here] - below], places[trie.suffixes[here] - below]
        levels.append(Level(ids[trie.words[here]].astype(np.int32).reshape(-1, 1), prefixes, suffixes, -1))
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
