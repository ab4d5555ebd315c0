"""Scores of text, as KenLM gives them: log10 of float32 numbers, one sentence or many at once.

A `Scorer` keeps any model the way KenLM's probing format does (`build.py`), so that one word costs a few look-ups in
hash tables. It has no rows: whole distributions, and float64, are a `BackoffTable`'s. Lists of sentences become blocks
of bytes for compiled code: one line feed between two sentences, padding at the end.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError, InputError, TextError
from lidstone.ngram.scorer import blocks
from lidstone.ngram.scorer.blocks import LINE, TOKEN
from lidstone.ngram.scorer.build import Packed
from lidstone.ngram.scorer.step import BACKOFFS
from lidstone.ngram.scorer.tries import BOS, EOS, ORDER, UNIGRAM_BYTES, UNIGRAMS, UNK
from lidstone.parallel import cores
from lidstone.text.memory import SIGN, address_of_bytes
from lidstone.text.tokens import LINE_FEED, NONE, PADDING

Text = str | bytes

BATCH = 1 << 17
"""Characters a batch: enough work for a thread, and small enough for its cache."""


@dataclass(frozen=True)
class TextScores:
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
    >>> from lidstone.ngram.scorer.models import scorer_of_arpa
    >>> unigrams = rb"\data\|ngram 1=4|ngram 2=1|\1-grams:|-.3 a -.2|-.4 </s>|-1 <unk>|-99 <s>|"
    >>> text = unigrams + rb"\2-grams:|-.1 a a|\end\ "
    >>> scorer = scorer_of_arpa(io.BytesIO(text.replace(b"|", b"\n")))
    >>> round(scorer.score("a a b"), 4)      # <s> a: -.3; a a: -.1; a b: -.2 - 1; b </s>: -.4
    -2.0
    """

    packed: Packed
    file: str | None = None
    """the binary of KenLM that is used in place, by which the scorer is pickled; None: by its n-grams"""

    def __reduce__(self) -> Any:
        return _unpickled, ((self.file, None) if self.file else (None, self.packed))

    def by_value(self) -> Scorer:
        """The same scorer, pickled by its n-grams."""
        return Scorer(self.packed)

    def score(self, text: Text, bos: bool = True, eos: bool = True) -> float:
        """log10 p of a sentence; `bos` puts `<s>` before it, `eos` predicts `</s>` after it."""
        log10: float = self._score(padded(text), NONE, False, bos, eos)[0]
        return log10 if log10 < np.inf else refuse_number()

    def score_words(self, text: Text, bos: bool = True, eos: bool = True) -> list[tuple[float, int, bool]]:
        """For each word: log10 p, the length of the longest n-gram that matched, whether the word is unknown."""
        spaced = padded(text)
        found = np.empty(len(spaced) // 2 - 2, TOKEN)
        found = found[: self._score(spaced, NONE, False, bos, eos, tokens=found)[1]]
        if not (found["log10"] < np.inf).all():
            refuse_number()
        columns = found["log10"], found["length"] & ~SIGN, found["length"] >= SIGN
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def score_lines(
        self, texts: Sequence[Text], bos: bool = True, eos: bool = True, *, threads: int | None = None
    ) -> TextScores:
        """Many sentences at once, on all cores unless `threads` says otherwise."""
        if isinstance(texts, (str, bytes)):
            raise InputError("score_lines takes a list of sentences, not one", hint="use score, or put it into a list")
        texts = texts if isinstance(texts, (list, tuple)) else list(texts)
        out = np.empty(len(texts), LINE)

        def run(cut: tuple[int, int]) -> None:
            part = slice(*cut)
            self._score(joined(texts[part], cut[0]), LINE_FEED, False, bos, eos, lines=out[part])

        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, not {threads}", hint="leave it out for all cores")
        cuts, jobs = cut_batches(texts), threads or cores()
        if jobs == 1 or len(cuts) <= 1:
            for cut in cuts:
                run(cut)
        else:
            with ThreadPoolExecutor(min(jobs, len(cuts))) as pool:
                list(pool.map(run, cuts))
        return _text_scores(out)

    def score_text(self, text: bytes, *, reserved: bool = False) -> TextScores:
        """Every line of a text in UTF-8; the words `<s>` and `</s>` of it are unknown ones if they are `reserved`.

        The compiled loop lets other threads run.
        """
        out = np.empty(text.count(b"\n") + 1, LINE)
        self._score(text + PADDING, LINE_FEED, reserved, True, True, lines=out)
        return _text_scores(out)

    def _score(
        self,
        text: bytes,
        separator: np.int64,
        reserved: bool,
        bos: bool,
        eos: bool,
        lines: NDArray[np.void] | None = None,
        tokens: NDArray[np.void] | None = None,
    ) -> tuple[float, int]:
        """`blocks.score_blocks` of a text with the padding; other threads run meanwhile."""
        flags = separator, bool(reserved), bool(bos), bool(eos)
        wanted = (0 if array is None else array.ctypes.data for array in (lines, tokens))
        address, size = address_of_bytes(text), len(text) - len(PADDING)
        scores: tuple[float, int] = blocks.score_blocks(self.packed.address, address, size, *flags, *wanted)
        return scores

    def index(self, word: Text) -> int:
        """The id of a word, or `unk`."""
        text = padded(word)
        number: int = blocks.index_word(self.packed.address, address_of_bytes(text), len(text) - len(PADDING))
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

    @property
    def start(self) -> bytes:
        """The state of a sentence start, whose history is `<s>` (`step.py`)."""
        layout = self.packed.layout
        backoff = ctypes.string_at(int(layout[UNIGRAMS] + layout[BOS] * layout[UNIGRAM_BYTES]) + 4, 4)
        words = np.array([1, layout[BOS]], np.uint32).tobytes()
        return words.ljust(BACKOFFS, b"\0") + backoff

    @cached_property
    def fingerprint(self) -> int:
        """Equal for equal models: a checksum of all n-grams."""
        return zlib.crc32(self.packed.data.data)


def _unpickled(file: str | None, packed: Packed) -> Scorer:
    if file is None:
        return Scorer(packed)
    from lidstone.ngram.scorer.models import load_scorer

    return load_scorer(file)


def refuse_number() -> NoReturn:
    """Of a score that is NaN or infinite: files of KenLM are used in place, and not read before."""
    raise FileFormatError(
        "a probability or backoff of the model is not finite: its file is damaged", hint="build it again"
    )


def _text_scores(lines: NDArray[np.void]) -> TextScores:
    if not (lines["single"] < np.inf).all():
        refuse_number()
    return TextScores(lines["log10"], lines["single"].copy(), lines["words"], lines["oov"])


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


def cut_batches(texts: Sequence[Text]) -> list[tuple[int, int]]:
    """Ranges of sentences with about BATCH characters each.

    >>> cut_batches(["a" * BATCH, "b", "c"]), cut_batches([])
    ([(0, 1), (1, 3)], [])
    """
    try:
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    except TypeError:
        ends = np.arange(len(texts))  # one of them is no text: `joined` says which
    if not len(ends):
        return []
    inside = np.searchsorted(ends, np.arange(BATCH, int(ends[-1]), BATCH)) + 1
    return list(pairwise(np.unique([0, *inside, len(ends)]).tolist()))


def joined(texts: Sequence[Text], first: int) -> bytes:
    r"""The sentences as lines. A line feed inside of one is a space; `first` is the number of the first, for errors.

    >>> joined(["a b", "c\nd"], 0)
    b'a b\nc d        '
    """
    try:
        lines = list(map(str.encode, texts))  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):  # some are bytes, or one is not valid
        lines = [text if isinstance(text, bytes) else _encoded(text, first + i) for i, text in enumerate(texts)]
    lines[-1] += PADDING
    whole = b"\n".join(lines)
    if whole.count(b"\n") < len(lines):
        return whole
    return b"\n".join([line.replace(b"\n", b" ") for line in lines])


def _encoded(text: str, number: int) -> bytes:
    try:
        return text.encode()
    except (UnicodeEncodeError, AttributeError) as error:
        raise TextError(
            f"line {number + 1} of the list cannot be scored: {error}",
            hint="give str or bytes, decoded with the right encoding",
        ) from error
