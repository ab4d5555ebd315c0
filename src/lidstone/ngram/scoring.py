"""Scores of whole lines: of a text that is read some lines at a time, or word by word.

A line without words is `</s>` alone, or nothing (`blank`); either way it has a score of its own, so there is one per
line of the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram import query
from lidstone.ngram.table import BackoffTable, perplexity_of
from lidstone.text.history import sentence_stream

if TYPE_CHECKING:
    from lidstone.text.words import Blank


class LineScores(NamedTuple):
    """One value per line."""

    logprobs: NDArray[np.float64]
    """natural log of the line's probability, its end included"""
    tokens: NDArray[np.int64]
    """words and the end; 0 for a line that is skipped"""
    oov: NDArray[np.int64]
    """words that the model knows only as the unknown word"""


class TokenScores(NamedTuple):
    """One value per token, ends of sentences included."""

    logprobs: NDArray[np.float64]
    """natural log of p(token | what stands before it in its line)"""
    lengths: NDArray[np.int32]
    """how many words the longest stored n-gram has that ends with the token"""


@dataclass
class Totals:
    """Sums over the lines scored so far.

    >>> totals = Totals()
    >>> totals.add(Totals.of(LineScores(np.log([0.25, 0.5]), np.array([2, 1]), np.array([0, 1]))))
    >>> round(totals.perplexity, 6), totals.tokens, totals.oov, totals.lines
    (2.0, 3, 1, 2)
    """

    logprob: float = 0.0
    tokens: int = 0
    oov: int = 0
    lines: int = 0

    @classmethod
    def of(cls, scores: LineScores) -> Totals:
        """The sums of some lines."""
        logprob, tokens, oov = (array.sum().item() for array in scores)
        return cls(logprob, tokens, oov, len(scores.tokens))

    def add(self, other: Totals) -> None:
        """Add the sums of some more lines."""
        self.logprob += other.logprob
        self.tokens += other.tokens
        self.oov += other.oov
        self.lines += other.lines

    @property
    def perplexity(self) -> float:
        """Exp of the mean negative log-probability per token."""
        if not self.tokens:
            raise InputError("there is nothing to score: no line has a word", hint="give some text")
        return perplexity_of(self.logprob, self.tokens)


def score_lines(table: BackoffTable, ids: NDArray[np.int32], blank: Blank = "skip") -> LineScores:
    """The score of each line of a stream in which eos ends every line, also one without words.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.ngram.smoothers.add_lambda import AddLambda
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> table = AddLambda(lam=1).fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=2))
    >>> score_lines(table, np.array([1, 0, 0], np.int32)).tokens.tolist()
    [2, 0]
    """
    ids, tokens = _lines(table, ids, blank)
    line = np.repeat(np.arange(len(tokens)), tokens)
    logprobs = np.asarray(np.bincount(line, table.token_logprobs(ids), len(tokens)), np.float64)
    unk = -1 if table.vocab.unk is None else table.vocab.unk
    return LineScores(logprobs, tokens, np.bincount(line[ids == unk], minlength=len(tokens)))


def score_tokens(table: BackoffTable, ids: NDArray[np.int32], blank: Blank = "skip") -> TokenScores:
    """The score of each token of the same stream, and how long a match it had."""
    ids, _ = _lines(table, ids, blank)
    stream = sentence_stream(ids, table.vocab)
    return TokenScores(*query.matches(table.trie, table.scored_values, table.stored_backoffs, stream))


def _lines(table: BackoffTable, ids: NDArray[np.int32], blank: Blank) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The ids to score, and how many there are in each line."""
    ends = np.flatnonzero(ids == table.vocab.eos)
    tokens = np.diff(ends, prepend=-1)
    if blank == "count":
        return ids, tokens
    empty = tokens == 1
    keep = np.ones(len(ids), bool)
    keep[ends[empty]] = False
    return ids[keep], np.where(empty, 0, tokens)
