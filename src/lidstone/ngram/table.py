"""A smoothed n-gram model in the one form that every smoother and every ARPA file can take.

    p(w | h) = rows[h w] + backoffs[h] * p(w | h without its oldest word),        p(w | ()) = base[w]

`rows` has one value per n-gram of the trie (it may be negative), `backoffs` one per history, `base` is dense over the
vocabulary and already contains the unigram level. A history that the trie lacks passes through to its longest suffix
that is there. So a table costs a few bytes per distinct n-gram, where a dense one would cost V^n numbers.

All that a table answers is float64, with natural logarithms; `lidstone.kenlm` gives KenLM's float32 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.ngram import query
from lidstone.ngram.access import Values
from lidstone.ngram.counts import Counts
from lidstone.ngram.trie import Trie
from lidstone.text.datasets import Sentences, id_stream
from lidstone.text.history import recent, sentence_stream
from lidstone.text.vocabulary import Vocabulary, html_table

History = Sequence[int]

if TYPE_CHECKING:
    from lidstone.ngram.compact import Codes


@dataclass(frozen=True)
class Perplexity:
    """A perplexity with all that one needs to compare it."""

    value: float
    tokens: int
    """the denominator: words and one end per sentence"""
    oov: int
    """tokens that the model knows only as the unknown word; they are part of the perplexity"""
    vocabulary: int
    """the size of the event space"""
    signature: dict[str, Any]

    def __str__(self) -> str:
        return f"perplexity {self.value:.3f} ({self.tokens:,} tokens, {self.oov:,} oov, vocabulary {self.vocabulary:,})"


def perplexity_of(logprob: float, tokens: int) -> float:
    """exp(-logprob / tokens); infinite where a token has no probability."""
    return math.exp(-logprob / tokens) if logprob > -700 * tokens else math.inf


@dataclass(frozen=True, eq=False, repr=False)
class BackoffTable:
    """The smoothed conditional distribution p~.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> table = AddLambda(lam=1).fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2))
    >>> table.prob([[1]]).round(4).tolist()  # after 1 come eos and 2, once each: (1+1, 0+1, 1+1) / (2 + 3)
    [[0.4, 0.2, 0.4]]
    >>> table
    BackoffTable(smoother=add-lambda, order=2, ngrams=[3, 4], vocabulary=3)
    """

    vocab: Vocabulary
    trie: Trie
    base: NDArray[np.float64]
    """p(w), the unigram distribution; (V,), zero off the event space"""
    rows: NDArray[np.float64]
    """one per node; those of the unigram nodes are zero, because they are part of `base`"""
    backoffs: NDArray[np.float64]
    """one per node that can be a history"""
    signature: dict[str, Any]
    """what this table is: smoother, its parameters, order, fingerprints of vocabulary and counts"""
    codes: Codes | None = field(default=None, init=False)
    """rows and backoffs in fewer bits, where they are stored so; then they are decoded when they are used"""

    def __post_init__(self) -> None:
        if callable(self.signature):  # it is made when it is first read, for it hashes all counts
            vars(self)["make_signature"] = vars(self).pop("signature")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Make what is made when first read: the signature, and `rows` and `backoffs` of a quantised table."""
            known = vars(self)
            if name == "signature" and known.get("make_signature"):
                known[name] = known["make_signature"]()
                known["make_signature"] = None
            elif name in ("rows", "backoffs") and self.codes is not None:
                known[name] = self.codes.decode(self, name)
            else:
                raise AttributeError(f"BackoffTable has no attribute {name!r}")
            return known[name]

    def __getstate__(self) -> dict[str, Any]:
        """Copies have the signature itself, not the counts that it is made of."""
        return {**vars(self), "signature": self.signature, "make_signature": None}

    def __repr__(self) -> str:
        """What the model is, on one line."""
        return f"BackoffTable({', '.join(f'{name}={value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        parameters = {str(name): value for name, value in dict(self.signature.get("parameters") or {}).items()}
        return html_table("BackoffTable", {**self._facts(), **parameters})

    def _facts(self) -> dict[str, Any]:
        sizes = np.diff(self.trie.levels).tolist()
        facts = {"smoother": self.signature.get("smoother", "?"), "order": self.order}
        return {**facts, "ngrams": [sizes[0] - 1, *sizes[1:]], "vocabulary": self.vocab.event_count}

    @property
    def order(self) -> int:
        """n; histories have at most n-1 words."""
        return self.trie.order

    @cached_property
    def ngram_probs(self) -> NDArray[np.float64]:
        """p(w | h) in full of every n-gram hw of the trie, one per node; zero for `<s>`.

        >>> from lidstone.ngram.counts import count
        >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
        >>> table = AddLambda(lam=1).fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2))
        >>> table.ngram_probs.round(3).tolist()    # 0, 1, 2, <s>; 1 0, 1 2, 2 0, <s> 1
        [0.333, 0.333, 0.333, 0.0, 0.4, 0.4, 0.5, 0.6]
        """
        if self.codes is not None:
            return self.codes.ngram_probs(self.base)
        return query.ngram_probs(self.trie, self.rows, self.backoffs, self.base)

    def prob(self, histories: Iterable[History]) -> NDArray[np.float64]:
        """The whole distribution after each history: (histories, V).

        A history is a sequence of ids, most recent last; `()` for none, `vocab.bos` for the sentence start. Under
        Kneser-Ney a history of fewer than n-1 words without `vocab.bos` has the distribution that longer ones back off
        to, which is made of continuation counts: no estimate of what follows these words in the text.
        """
        states = self.states(histories)
        out = np.empty((len(states), self.vocab.size))
        query.fill_rows(*self.stored_arrays, states, out)
        return out

    def logprob(self, words: ArrayLike, histories: Iterable[History]) -> NDArray[np.float64]:
        """Natural log of p(word | history) for each pair; -inf for a word that cannot be predicted."""
        ids = self.vocab.check_ids(words)
        states = self.states(histories)
        if ids.shape != states.shape:
            raise InputError(
                f"{ids.size} words for {states.size} histories",
                hint="give one history per word: the same number",
            )
        with np.errstate(divide="ignore"):
            found: NDArray[np.float64] = np.log(query.word_probs(*self.stored_arrays, states, ids.astype(np.int32)))
            return found

    def states(self, histories: Iterable[History]) -> NDArray[np.int32]:
        """The node of each history's longest known suffix; -1 for none. Words before the last `<s>` do not count."""
        try:
            return np.fromiter((self._find(history) for history in histories), self.trie.node_type)
        except TypeError as error:
            raise InputError("histories are not lists of ids", hint="for one history write [[1, 2]]") from error

    def _find(self, history: History) -> int:
        vocab = self.vocab
        wrong = next((word for word in history if not 0 <= int(word) <= vocab.size), None)
        if wrong is not None:
            raise InputError(
                f"id {wrong} in a history is outside the vocabulary of {vocab.size} ids",
                hint="the sentence start is vocab.bos",
            )
        seen = list(recent(history, self.order))
        if vocab.bos in seen:
            seen = seen[len(seen) - 1 - seen[::-1].index(vocab.bos) :]
        return next((node for i in range(len(seen)) if (node := self.trie.find(seen[i:])) >= 0), query.EMPTY)

    def start(self) -> int:
        """The state at the start of a sentence, for `advance`; -1 is the state without any history."""
        trie = self.trie
        return int(query.state_of(*trie.links, self.stored_backoffs, query.EMPTY, trie.vocab_size))

    @overload
    def advance(self, states: int, words: int) -> tuple[float, int]: ...
    @overload
    def advance(self, states: ArrayLike, words: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int32]]: ...

    def advance(self, states: Any, words: Any) -> tuple[Any, Any]:
        """Natural log of p(word | state), and the state after the word: for one pair, or for arrays that broadcast.

        Equal states give equal scores to all that follows. After eos begin again with `start()`. A word that cannot be
        predicted has -inf.

        >>> from lidstone.ngram.counts import count
        >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
        >>> table = AddLambda(lam=1).fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2))
        >>> logprobs, states = table.advance([table.start()] * 3, [0, 1, 2])
        >>> np.exp(logprobs).round(3).tolist()  # after <s> came 1, twice: (0+1, 2+1, 0+1) / (2 + 3)
        [0.2, 0.6, 0.2]
        """
        arrays, histories = self.scored_arrays
        single = type(states) is int and type(words) is int  # one hypothesis: no arrays
        if single and query.EMPTY <= states < histories and 0 <= words < self.vocab.size:
            found: tuple[Any, Any] = query.one_step(*arrays, states, words)
            return found
        ids, checked = self.vocab.check_ids(words), self._check_states(states)
        try:
            both = np.broadcast(checked, ids)
        except ValueError as error:
            raise InputError(
                f"states of shape {checked.shape} and words of shape {ids.shape} do not fit together",
                hint="give one word per state, or shapes that broadcast",
            ) from error
        before, after = (np.broadcast_to(array, both.shape).ravel() for array in (checked, ids))
        logprobs, next_states = np.empty(both.size), np.empty(both.size, self.trie.node_type)
        query.many_steps(*arrays, before, after, logprobs, next_states)
        if not both.shape:
            return float(logprobs[0]), int(next_states[0])
        return logprobs.reshape(both.shape), next_states.reshape(both.shape)

    def next_probs(self, states: ArrayLike) -> NDArray[np.float64]:
        """The whole distribution after each state: the shape of `states`, then V."""
        checked = self._check_states(states)
        out = np.empty((checked.size, self.vocab.size))
        query.fill_rows(*self.stored_arrays, checked.ravel(), out)
        return out.reshape(*checked.shape, self.vocab.size)

    def _check_states(self, states: ArrayLike) -> NDArray[np.int32]:
        """The states as an array, if all are nodes of this table that can be histories; else say which is not."""
        array, limit = np.asarray(states), self.trie.num_histories  # a unigram model has none
        if array.size and array.dtype.kind not in "iu":
            raise InputError(f"states must be whole numbers, not {array.dtype}", hint="use what start and advance gave")
        wrong = (array < query.EMPTY) | (array >= limit)
        if wrong.any():
            raise InputError(
                f"{array[wrong].flat[0]} is not a state of this table, whose states are {query.EMPTY} to {limit - 1}",
                hint="use the states that start and advance of this very table gave",
            )
        return array.astype(self.trie.node_type, copy=False)

    def token_logprobs(self, ids: ArrayLike) -> NDArray[np.float64]:
        """Natural log of the probability of every token of a stream in which eos ends each sentence.

        Ids that cannot be predicted (padding) are passed over and get no entry.
        """
        tokens = np.ascontiguousarray(self.vocab.check_ids(ids), np.int32)
        return self._score(sentence_stream(tokens, self.vocab))

    def perplexity(self, sentences: Sentences) -> Perplexity:
        """Exp of the mean negative log-probability per token, ends of sentences too; rows are read as `count` does."""
        stream = id_stream(sentences, self.vocab)
        logprobs = self._score(stream)
        if not len(logprobs):
            raise InputError("there is nothing to score: no sentence has a token", hint="give some text")
        oov = 0 if self.vocab.unk is None else int((stream == self.vocab.unk).sum())
        value = perplexity_of(float(logprobs.sum()), len(logprobs))
        return Perplexity(value, len(logprobs), oov, self.vocab.event_count, self.signature)

    def _score(self, stream: NDArray[np.int32]) -> NDArray[np.float64]:
        return query.score_stream(self.trie, self.scored_values, self.stored_backoffs, stream)

    def sample(self, *, seed: int | None = None, history: History | None = None, limit: int = 1000) -> list[int]:
        """Draw a sentence word by word, from its start or after `history`; without the eos that ends it."""
        generator, sentence = np.random.default_rng(seed), list[int]()
        context = [self.vocab.bos] if history is None else list(history)
        while len(sentence) < limit:
            probs = self.prob([context])[0].clip(min=0)
            word = int(generator.choice(self.vocab.size, p=probs / probs.sum()))
            if word == self.vocab.eos:
                break
            sentence.append(word)
            context = [*context, word][-self.order :]
        return sentence

    def normalisation_error(self, samples: int | None = 1000) -> float:
        """How far from one the probabilities after a history sum: the worst of `samples` histories, or of all (None).

        Near 1e-12 for every smoother; models from files may be far off, and the losses refuse those beyond 1e-3.
        """
        from lidstone.ngram.formats.validate import normalisation_error

        return normalisation_error(self, samples)

    def compact(self, bits: int = 32, *, pack: bool = False) -> BackoffTable:
        """The same model in fewer bytes.

        bits=32 rounds rows and backoffs to single precision, a factor of at most 1 + 2^-24 each. Where no row is
        negative, p(w|h) is then wrong by at most a factor of 1 + (n + 1) 2^-24. bits=16 or 8 stores codes of p(w|h) and
        of backoffs, wrong by a factor of at most 1 + `codes.error`, and so p(w|h) and its sum by that to the power of
        n. bits=64 leaves the values as they are. `pack` stores words and pointers in as few bits as they need.

        >>> from lidstone.ngram.counts import count
        >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
        >>> table = AddLambda(lam=1).fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2))
        >>> table.compact().rows.dtype, bool(abs(table.compact().prob([[1]]) - table.prob([[1]])).max() < 1e-7)
        (dtype('float32'), True)
        >>> small = table.compact(bits=16, pack=True)
        >>> small.signature["precision"], small.prob([[1]]).round(3).tolist()
        ('16 bits', [[0.4, 0.2, 0.4]])
        """
        from lidstone.ngram.compact import compact

        return compact(self, bits, pack)

    def save(self, path: str | Path) -> None:
        """Write the table as safetensors; `lidstone.load` maps it back into memory."""
        from lidstone.ngram.formats.safetensors import save

        save(self, path)

    def require(self, vocab: Vocabulary) -> None:
        """Refuse a vocabulary other than the table's own."""
        if vocab.fingerprint != self.vocab.fingerprint:
            raise VocabularyMismatch(
                f"the table was made with another vocabulary ({self.vocab.size} ids, fingerprint "
                f"{self.vocab.fingerprint}) than this one ({vocab.size} ids, {vocab.fingerprint})",
                hint="count and fit again with the tokenizer in use; an ARPA file: ld.read_arpa(path, vocab)",
            )

    def require_counts(self, counts: Counts) -> None:
        """Refuse counts of another vocabulary or order than the table's own."""
        self.require(counts.vocab)
        if counts.order != self.order:
            raise InputError(
                f"the table has order {self.order}, the counts have order {counts.order}",
                hint="count and fit with one order",
            )

    @property
    def stored_backoffs(self) -> Any:
        """Backoffs as compiled code reads them (`access.py`): plain or quantised."""
        return self.backoffs if self.codes is None else self.codes.backoffs

    @property
    def stored_arrays(self) -> tuple[Any, ...]:
        """The trie, rows, backoffs and base as compiled code reads them."""
        rows = self.rows if self.codes is None else self.codes.probs
        return *self.trie.links, rows, self.stored_backoffs, self.base

    @cached_property
    def scored_values(self) -> Any:
        """What scoring reads p(w | h) from: all of them, or the rows of a file and of compact tables as they are."""
        from lidstone.ngram.formats.checked_tensors import is_mapped

        if self.codes is not None:
            return Values(self.codes.probs, self.base)
        return Values(self.rows, self.base) if self.trie.packed or is_mapped(self.rows) else self.ngram_probs

    @cached_property
    def scored_arrays(self) -> tuple[tuple[Any, ...], int]:
        """What one step of scoring reads, and how many nodes can be histories."""
        return (*self.trie.links, self.scored_values, self.stored_backoffs), self.trie.num_histories
