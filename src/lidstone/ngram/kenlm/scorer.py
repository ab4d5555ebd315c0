"""Scores of text, as KenLM gives them: log10 of float32 numbers, one sentence or many at once.

A `Scorer` keeps any model the way KenLM's probing format does (`compiled`), so that one word costs a few look-ups in
hash tables. It has no rows: whole distributions are a `BackoffTable`'s.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, TextError
from lidstone.ngram.kenlm.batches import Text, cut_batches, joined
from lidstone.ngram.kenlm.build import Packed
from lidstone.ngram.kenlm.compiled import lines
from lidstone.ngram.kenlm.compiled.step import EOS, ORDER, STATE_SIZE, UNK
from lidstone.parallel import cores
from lidstone.text.tokens import LINE_FEED, PADDING


@dataclass(frozen=True)
class LineScores:
    """What `Scorer.score_lines` finds, one entry per line."""

    log10: NDArray[np.float64]
    """the sum of log10 p over the words, and `</s>` where it was asked for; added up in float64"""
    single: NDArray[np.float32]
    """the same added up in float32, as the kenlm module does; the more words, the fewer digits are right"""
    words: NDArray[np.int64]
    """how many words, without `</s>`"""
    oov: NDArray[np.int64]
    """how many of them the model does not know"""

    @property
    def perplexity(self) -> NDArray[np.float64]:
        """10^(-log10 / (words + 1)): the perplexity of each line as a sentence."""
        with np.errstate(over="ignore"):
            return 10.0 ** (-self.log10 / (self.words + 1))


@dataclass(frozen=True, eq=False)
class Scorer:
    r"""A model for scoring text.

    >>> import io
    >>> from lidstone.ngram.kenlm.sources import scorer_of_arpa
    >>> unigrams = rb"\data\|ngram 1=4|ngram 2=1|\1-grams:|-.3 a -.2|-.4 </s>|-1 <unk>|-99 <s>|"
    >>> text = unigrams + rb"\2-grams:|-.1 a a|\end\ "
    >>> scorer = scorer_of_arpa(io.BytesIO(text.replace(b"|", b"\n")))
    >>> round(scorer.score("a a b"), 4)      # <s> a: -.3; a a: -.1; a b: -.2 - 1; b </s>: -.4
    -2.0
    """

    packed: Packed

    def score(self, text: Text, bos: bool = True, eos: bool = True) -> float:
        """log10 p of a sentence; `bos` puts `<s>` before it, `eos` predicts `</s>` after it."""
        log10: float = lines.score_one(self.packed.layout, padded(text), bool(bos), bool(eos))
        return log10

    def score_words(self, text: Text, bos: bool = True, eos: bool = True) -> list[tuple[float, int, bool]]:
        """For each word: log10 p, the length of the longest n-gram that matched, whether the word is unknown."""
        spaced = padded(text)
        most = len(spaced) // 2 - 2
        logprobs, lengths, unknown = np.empty(most, np.float32), np.empty(most, np.int64), np.empty(most, np.bool_)
        count = lines.score_words(self.packed.layout, spaced, bool(bos), bool(eos), logprobs, lengths, unknown)
        columns = (column[:count].tolist() for column in (logprobs, lengths, unknown))
        return list(zip(*columns, strict=True))

    def score_lines(
        self, texts: Sequence[Text], bos: bool = True, eos: bool = True, *, threads: int | None = None
    ) -> LineScores:
        """Many sentences at once, on all cores unless `threads` says otherwise."""
        if isinstance(texts, (str, bytes)):
            raise InputError("score_lines takes a list of sentences, not one", hint="use score, or put it into a list")
        texts = texts if isinstance(texts, (list, tuple)) else list(texts)
        count = len(texts)
        out = LineScores(np.empty(count), np.empty(count, np.float32), *np.empty((2, count), np.int64))
        columns = (out.single, out.log10, out.words, out.oov)

        def run(cut: tuple[int, int]) -> None:
            text, results = joined(texts[slice(*cut)], cut[0]), (column[slice(*cut)] for column in columns)
            lines.score_many(self.packed.layout, text, LINE_FEED, False, bool(bos), bool(eos), *results)

        cuts, jobs = cut_batches(texts), _threads(threads)
        if jobs == 1 or len(cuts) <= 1:
            for cut in cuts:
                run(cut)
        else:
            with ThreadPoolExecutor(min(jobs, len(cuts))) as pool:
                list(pool.map(run, cuts))
        return out

    def index(self, word: Text) -> int:
        """The id of a word, or `unk`."""
        number: int = lines.index_word(self.packed.layout, padded(word))
        return number

    def __contains__(self, word: Text) -> bool:
        return self.index(word) != self.unk

    @property
    def order(self) -> int:
        """The length of the longest n-gram."""
        return int(self.packed.layout[ORDER])

    @property
    def unk(self) -> int:
        """The id of all unknown words."""
        return int(self.packed.layout[UNK])

    @property
    def eos(self) -> int:
        """The id of `</s>`."""
        return int(self.packed.layout[EOS])

    def empty_state(self) -> NDArray[np.uint32]:
        """A new state without a history."""
        return np.zeros(STATE_SIZE, np.uint32)

    def begin(self, state: NDArray[np.uint32]) -> None:
        """Make it the state of a sentence start."""
        lines.begin_sentence(self.packed.layout, state)

    def advance(self, before: NDArray[np.uint32], word: int, after: NDArray[np.uint32]) -> tuple[float, int]:
        """log10 p of the word with this id after a state and the length of the n-gram; writes the state after it."""
        found: tuple[float, int] = lines.score_next(self.packed.layout, before, word, after)
        return found

    @cached_property
    def fingerprint(self) -> int:
        """Equal for equal models: a checksum of all n-grams."""
        return zlib.crc32(self.packed.data.data)


def padded(text: Text) -> bytes:
    """The text as UTF-8, followed by the padding."""
    if isinstance(text, bytes):
        return text + PADDING
    try:
        return (text + "        ").encode()
    except UnicodeEncodeError as error:
        raise TextError(f"the text is not valid Unicode: {error}", hint="decode it with the right encoding") from error
    except TypeError as error:
        raise InputError(f"a text must be str or bytes, not {type(text).__name__}", hint="join the words") from error


def _threads(asked: int | None) -> int:
    if asked is not None and asked < 1:
        raise InputError(f"threads must be at least 1, not {asked}", hint="leave it out for all cores")
    return asked or cores()
