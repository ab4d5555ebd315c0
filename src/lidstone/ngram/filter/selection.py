"""The perplexity of documents, and which of them stay.

The perplexity is that of CCNet for KenLM:

    perplexity = 10 ** (-sum of log10 p(line) / sum of (words in line + 1))

over the lines of the document; every line is a sentence of its own, with `<s>` before it and `</s>` at its end, which
is the + 1. An empty line is the sentence `</s>`; a document without text is one empty line. Words stand between ASCII
white space. With a second, general model the Moore-Lewis difference is ln(perplexity) - ln(general perplexity): the
lower, the more the document is like the first model's text and unlike the second's.

Documents stay by limits on values, or by shares of the whole corpus, found exactly in constant memory. Shares need the
scores of all documents. They lie in a file of float64, one per line of the input, NaN where a line is no document. The
document of a given rank is found by its bits, 16 at a time, so no more than a block is in memory. Ties go by the place
in the corpus, so shares are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.filter.documents import Documents
from lidstone.ngram.scorer.models import scorer_of_table
from lidstone.ngram.scorer.scorer import Scorer
from lidstone.ngram.table import BackoffTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DocumentScores:
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


def score_documents(scorer: Scorer, documents: Documents) -> DocumentScores:
    """The scores of documents, each of one line or more.

    The log10 of a line of raw text is added up in float32, as the kenlm module does: its perplexity is datatrove's to
    the last decimal. That of words is added up in float64: of a million words 1 % more is right.
    """
    if not documents.raw:
        return DocumentScores(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    found = scorer.score_text(documents.text, reserved=True)  # no model predicts `<s>` or `</s>` as words of a text
    log10 = found.single.astype(np.float64) if documents.was_raw else found.log10
    lines = DocumentScores(log10, found.words + 1, found.oov)
    if documents.sizes is None:
        return lines
    sizes = np.array(documents.sizes, np.int64)
    first = np.cumsum(sizes) - sizes
    return DocumentScores(*(np.add.reduceat(values, first) for values in (lines.log10, lines.tokens, lines.unknown)))


def difference(inside: DocumentScores, general: DocumentScores) -> Floats:
    """Moore and Lewis: the cross-entropy per token under the first model less that under the second, in nats."""
    gap: Floats = (general.log10 / general.tokens - inside.log10 / inside.tokens) * np.log(10)
    return gap


BUCKETS = ("head", "middle", "tail")
_BLOCK = 1 << 20
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Limits:
    """Bounds that a document must keep; None is no bound."""

    max_perplexity: float | None = None
    min_perplexity: float | None = None
    max_difference: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_perplexity", "min_perplexity"):
            value = getattr(self, name)
            if value is not None and not value >= 1:
                raise InputError(f"{name} must be 1 or more, not {value}", hint="a perplexity is never below 1")
        if self.max_difference is not None and math.isnan(self.max_difference):
            raise InputError("max_difference is not a number")

    def accept(self, perplexity: Floats, difference: Floats | None) -> NDArray[np.bool_]:
        """Which documents keep all bounds."""
        keep = np.ones(len(perplexity), bool)
        if self.max_perplexity is not None:
            keep &= perplexity <= self.max_perplexity
        if self.min_perplexity is not None:
            keep &= perplexity >= self.min_perplexity
        if self.max_difference is not None and difference is not None:
            keep &= difference <= self.max_difference
        return keep


@dataclass(frozen=True)
class Cut:
    """The documents up to a rank: all with a lower score, and those with this very score up to a place."""

    score: float
    last: int

    def inside(self, scores: Floats, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each document, with this number in the corpus, is one of them."""
        mask: NDArray[np.bool_] = (scores < self.score) | ((scores == self.score) & (numbers <= self.last))
        return mask


NOTHING = Cut(-math.inf, -1)


def cut_at(file: Path, share: float) -> Cut:
    """The cut that leaves a share of the documents below it: ceil(share * documents), the lowest scores.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "scores"
    >>> np.array([5.0, 1.0, np.nan, 3.0, 3.0]).tofile(file)
    >>> cut_at(file, 0.5)
    Cut(score=3.0, last=3)
    """
    total = sum(len(keys) for _, keys in _blocks(file))
    rank = min(math.ceil(share * total - 1e-9), total)
    if rank <= 0:
        return NOTHING
    prefix, below = np.uint64(0), 0
    for shift in (48, 32, 16, 0):
        histogram = np.zeros(1 << 16, np.int64)
        for _, keys in _blocks(file):
            near = keys[(keys ^ prefix) >> np.uint64(shift + 16) == 0] if shift < 48 else keys
            histogram += np.bincount((near >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64), minlength=1 << 16)
        digit = int(np.searchsorted(np.cumsum(histogram), rank - below))
        below += int(histogram[:digit].sum())
        prefix |= np.uint64(digit) << np.uint64(shift)
    return Cut(_value(prefix), _place(file, prefix, rank - below))


def _place(file: Path, key: np.uint64, number: int) -> int:
    """The position in the corpus of the document with this number among those with this key."""
    for numbers, keys in _blocks(file):
        equal = numbers[keys == key]
        if number <= len(equal):
            return int(equal[number - 1])
        number -= len(equal)
    raise AssertionError("the ranks do not add up")


def _blocks(file: Path) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    """Numbers and keys of the documents, a block at a time; keys sort as the scores do."""
    start = 0
    with file.open("rb") as stream:
        while len(scores := np.fromfile(stream, np.float64, _BLOCK)):
            real = ~np.isnan(scores)
            yield np.flatnonzero(real) + start, _keys(scores[real])
            start += len(scores)


def _keys(scores: Floats) -> NDArray[np.uint64]:
    bits = (scores + 0.0).view(np.uint64)  # + 0.0: no negative zero
    keys: NDArray[np.uint64] = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return keys


def _value(key: np.uint64) -> float:
    bits = key & ~_SIGN if key & _SIGN else ~key
    return float(np.array([bits], np.uint64).view(np.float64)[0])
