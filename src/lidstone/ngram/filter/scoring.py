"""Perplexity per document, as CCNet defines it for KenLM.

    perplexity = 10 ** (-sum of log10 p(line) / sum of (words in line + 1))

over the lines of the document; every line is a sentence of its own, with `<s>` before it and `</s>` at its end, which
is the + 1. An empty line is the sentence `</s>`; a document without text is one empty line. Words stand between ASCII
white space. With a second, general model the Moore-Lewis difference is ln(perplexity) - ln(general perplexity): the
lower, the more the document is like the first model's text and unlike the second's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.filter.documents import Documents
from lidstone.ngram.kenlm.compiled.lines import score_many
from lidstone.ngram.kenlm.scorer import Scorer
from lidstone.ngram.kenlm.sources import scorer_of_table
from lidstone.ngram.table import BackoffTable
from lidstone.text.tokens import LINE_FEED, PADDING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        result: Floats = 10.0 ** (-self.log10 / self.tokens)
        return result


def scorer_of(model: BackoffTable | Scorer) -> Scorer:
    """The model in the form that scores text fastest."""
    return model if isinstance(model, Scorer) else scorer_of_table(model)


def score_documents(scorer: Scorer, documents: Documents) -> Scores:
    """The scores of documents, each of one line or more."""
    if not documents.raw:
        return Scores(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    lines = _score_lines(scorer, documents.text)
    if documents.sizes is None:
        return lines
    sizes = np.array(documents.sizes, np.int64)
    first = np.cumsum(sizes) - sizes
    return Scores(*(np.add.reduceat(values, first) for values in (lines.log10, lines.tokens, lines.unknown)))


def _score_lines(scorer: Scorer, text: bytes) -> Scores:
    """Each line as a sentence; the compiled loop lets other threads run.

    `<s>` and `</s>` in a text are words that no model predicts; they are read as unknown ones.
    """
    count = text.count(b"\n") + 1
    single, exact, words, unknown = np.empty(count, np.float32), np.empty(count), *np.empty((2, count), np.int64)
    score_many(scorer.packed.layout, text + PADDING, LINE_FEED, True, True, True, single, exact, words, unknown)
    return Scores(exact, words + 1, unknown)


def difference(inside: Scores, general: Scores) -> Floats:
    """Moore and Lewis: the cross-entropy per token under the first model less that under the second, in nats."""
    gap: Floats = (general.log10 / general.tokens - inside.log10 / inside.tokens) * np.log(10)
    return gap
