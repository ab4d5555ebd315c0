"""Perplexity per document, as CCNet defines it for KenLM.

    perplexity = 10 ** (-sum of log10 p(line) / sum of (words in line + 1))

over the lines of the document; every line is a sentence of its own, with `<s>` before it and `</s>` at its end, which
is the + 1. An empty line is the sentence `</s>`; a document without text is one empty line. Words stand between ASCII
white space. With a second, general model the Moore-Lewis difference is ln(perplexity) - ln(general perplexity): the
lower, the more the document is like the first model's text and unlike the second's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.table import BackoffTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_RESERVED = re.compile(rb"(?<![^\t-\r ])</?s>(?![^\t-\r ])")


@dataclass(frozen=True)
class Scores:
    """One value per document."""

    log10: Floats
    """of the document's probability"""
    tokens: Ints
    """words and one end per line"""
    unknown: Ints
    """words that the model does not know"""

    @property
    def perplexity(self) -> Floats:
        """10 ** (-log10 / tokens)."""
        with np.errstate(over="ignore"):
            return 10.0 ** (-self.log10 / self.tokens)


class LineScorer:
    """Sums of log-probabilities of lines under one table: look up each word, then score the stream of ids."""

    def __init__(self, table: BackoffTable) -> None:
        if table.vocab.tokens is None:
            raise InputError("this model knows no words, only ids, so text cannot be scored", hint="give it tokens=")
        self.table, self.vocab = table, table.vocab
        self.unk = -1 if self.vocab.unk is None else self.vocab.unk
        never = {self.vocab.eos, *self.vocab.unpredictable}
        self.index = {
            word.encode("utf-8", "surrogatepass"): n for word, n in self.vocab.index.items() if n not in never
        }

    def score(self, text: bytes, begins: Ints, ends: Ints) -> Scores:
        """Each line text[begin:end]; a word that cannot be predicted makes log10 -inf."""
        streams = [self._ids(text[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        sizes = np.array([len(stream) for stream in streams], np.int64)
        ids = np.concatenate([np.empty(0, np.int64), *streams]).astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        logs = self.table.token_logprobs(np.where(ids < 0, 0, ids)) / np.log(10)
        logs[ids < 0] = -np.inf
        unknown = ids == self.unk
        sums, missing = (np.add.reduceat(values, starts) for values in (logs, unknown.astype(np.int64)))
        return Scores(sums, sizes, missing)

    def _ids(self, line: bytes) -> list[int]:
        return [*(self.index.get(word, self.unk) for word in line.split()), self.vocab.eos]


def score_documents(scorer: LineScorer, texts: Sequence[bytes]) -> Scores:
    """The scores of documents, each of one line or more."""
    if not texts:
        return Scores(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    bodies = [text.removesuffix(b"\n") for text in texts]
    first = np.cumsum([0, *(body.count(b"\n") + 1 for body in bodies)])[:-1]
    joined = _without_reserved(b"\n".join(bodies))
    ends = np.append(np.flatnonzero(np.frombuffer(joined, np.uint8) == 10), len(joined))
    begins = np.append(0, ends[:-1] + 1)
    lines = scorer.score(joined, begins, ends)
    return Scores(*(np.add.reduceat(values, first) for values in (lines.log10, lines.tokens, lines.unknown)))


def difference(inside: Scores, general: Scores) -> Floats:
    """Moore and Lewis: the cross-entropy per token under the first model less that under the second, in nats."""
    with np.errstate(invalid="ignore"):
        gap = general.log10 / general.tokens - inside.log10 / inside.tokens
    result: Floats = np.where(np.isnan(gap), np.inf, gap) * np.log(10)  # impossible under both: not like the first
    return result


def _without_reserved(text: bytes) -> bytes:
    """`<s>` and `</s>` in a text are words that no model predicts; they are read as unknown ones."""
    return _RESERVED.sub(b"<s/>", text) if b"s>" in text else text
