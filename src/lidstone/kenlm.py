"""The interface of the kenlm module, for programs that use it: `import lidstone.kenlm as kenlm`.

    model = kenlm.Model("model.arpa")            # or a table of lidstone, or a binary of KenLM
    model.score("this is a sentence .")          # log10 p

The names, the arguments and the numbers are those of the kenlm module, to the last bit of a float32. In addition
`score_lines` scores many sentences on all cores, and `table` gives the model as a `BackoffTable`, with whole rows. The
differences are listed in docs/kenlm.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, LidstoneError
from lidstone.ngram.scorer.blocks import score_one
from lidstone.ngram.scorer.scorer import Scorer, Text, TextScores, padded, refuse_number
from lidstone.ngram.scorer.step import STATE_SIZE, step
from lidstone.text.raw import RawText, foreign_pieces, raw_text

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable

__all__ = [
    "ARPALoadComplain",
    "CannotRead",
    "Config",
    "FullScoreReturn",
    "LanguageModel",
    "LoadMethod",
    "Model",
    "State",
]


INFINITY = float("inf")


class CannotRead(LidstoneError, OSError):
    """A model that cannot be loaded; an `OSError`, as in the kenlm module."""


class LoadMethod:
    """How KenLM loads a binary. Accepted, without effect: lidstone maps files."""

    LAZY, POPULATE_OR_LAZY, POPULATE_OR_READ, READ, PARALLEL_READ = range(5)


class ARPALoadComplain:
    """When KenLM advises to build a binary. Accepted, without effect."""

    ALL, EXPENSIVE, NONE = range(3)


class Config:
    """Settings of `Model`, accepted so that programs run unchanged. None has an effect."""

    def __init__(self) -> None:
        self.load_method = LoadMethod.POPULATE_OR_READ
        self.show_progress = True
        self.arpa_complain = ARPALoadComplain.ALL


class FullScoreReturn:
    """What `BaseFullScore` gives."""

    __slots__ = ("log_prob", "ngram_length", "oov")

    def __init__(self, log_prob: float, ngram_length: int, oov: bool) -> None:
        self.log_prob, self.ngram_length, self.oov = log_prob, ngram_length, oov

    def __repr__(self) -> str:
        return f"FullScoreReturn({self.log_prob!r}, {self.ngram_length!r}, {self.oov!r})"


class State:
    """A history, as far as it matters to what follows. A new one has none.

    States can be compared, hashed and copied: equal ones give the same scores.
    """

    __slots__ = ("_address", "_model", "_values")

    def __init__(self) -> None:
        self._model: Scorer | None = None
        self._values: NDArray[np.uint32] = np.zeros(STATE_SIZE, np.uint32)
        self._address = self._values.ctypes.data

    def _key(self) -> tuple[int, bytes]:
        length = int(self._values[0])
        return length, self._values[1 : 1 + length].tobytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        key = self._key()
        return key == other._key() and (key[0] == 0 or _same_model(self._model, other._model))

    def __lt__(self, other: State) -> bool:
        return self._key() < other._key()

    def __le__(self, other: State) -> bool:
        return self._key() <= other._key()

    def __gt__(self, other: State) -> bool:
        return self._key() > other._key()

    def __ge__(self, other: State) -> bool:
        return self._key() >= other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __copy__(self) -> State:
        copied = State()
        copied._model = self._model
        copied._values[:] = self._values
        return copied

    def __deepcopy__(self, memo: object = None) -> State:
        return self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError("a State cannot be pickled: it belongs to a model in this process")


class Model:
    """A model by its path: an ARPA file, plain or compressed, a table of lidstone, or a binary of KenLM."""

    def __init__(self, path: str | bytes | os.PathLike[str], config: Config | None = None) -> None:
        from lidstone.ngram.scorer.models import load_scorer

        self.path: bytes = os.fsencode(Path(os.fsdecode(path)).absolute())
        try:
            self._scorer = load_scorer(os.fsdecode(self.path))
        except (LidstoneError, OSError) as error:
            reason, hint = getattr(error, "message", str(error)), getattr(error, "hint", "check the path")
            raise CannotRead(f"Cannot read model '{os.fsdecode(path)}' ({reason})", hint=hint) from error
        self._layout = self._scorer.packed.layout
        self._address = self._scorer.packed.address
        self._ids: dict[str, int] = {}
        self._rules: dict[Any, RawText] = {}

    @property
    def order(self) -> int:
        """The length of the longest n-gram."""
        return self._scorer.order

    def score(self, sentence: Text, bos: bool = True, eos: bool = True) -> float:
        """log10 p(sentence </s> | <s>); without `<s>` where bos is false, without `</s>` where eos is false."""
        log10: float = score_one(self._layout, padded(sentence), bool(bos), bool(eos))
        return log10 if log10 < INFINITY else refuse_number()

    def perplexity(self, sentence: Text) -> float:
        """The perplexity of one sentence: 10^(-score / (words + 1))."""
        words = len((sentence if isinstance(sentence, bytes) else sentence.encode()).split()) + 1
        return float(10.0 ** (-self.score(sentence) / words))

    def full_scores(self, sentence: Text, bos: bool = True, eos: bool = True) -> Iterator[tuple[float, int, bool]]:
        """For each word, and `</s>` where eos is true: log10 p, length of the n-gram that matched, whether unknown."""
        return iter(self._scorer.score_words(sentence, bos, eos))

    def score_lines(
        self, sentences: Sequence[Text], bos: bool = True, eos: bool = True, *, threads: int | None = None, **rules: Any
    ) -> NDArray[np.float32]:
        """`score` of every sentence, on all cores: the same numbers as one by one. Not in the kenlm module.

        `rules` make words of raw text first: `normalize="ccnet"`, and `sentencepiece=` or `tokenizer=` with a file.
        """
        return self._score_all(sentences, bos, eos, threads, rules).single

    def perplexities(
        self, sentences: Sequence[Text], *, threads: int | None = None, **rules: Any
    ) -> NDArray[np.float64]:
        """`perplexity` of every sentence, as `score_lines`. Of raw text it is datatrove's `get_perplexity`."""
        found = self._score_all(sentences, True, True, threads, rules)
        with np.errstate(over="ignore"):
            return 10.0 ** (-found.single.astype(np.float64) / (found.words + 1))

    def _score_all(
        self, sentences: Sequence[Text], bos: bool, eos: bool, threads: int | None, rules: dict[str, Any]
    ) -> TextScores:
        if not rules:
            return self._scorer.score_lines(sentences, bos, eos, threads=threads)
        key = tuple(sorted(rules.items()))
        raw = self._rules[key] = self._rules.get(key) or raw_text(**rules) or RawText()
        found = self._scorer.score_lines(raw.words_in_parallel(sentences, threads), bos, eos, threads=threads)
        if told := foreign_pieces(found.oov.sum(), found.words.sum()):
            warnings.warn(told, stacklevel=3)
        return found

    @property
    def table(self) -> BackoffTable:
        """The model as a table, read again from its path: rows, samples, regularizers. Not in the kenlm module."""
        from lidstone.ngram.scorer.models import load_any_table

        return load_any_table(os.fsdecode(self.path))

    def BeginSentenceWrite(self, state: State) -> None:
        """Make it the state at the start of a sentence."""
        self._scorer.begin(state._values)
        state._model = self._scorer

    def NullContextWrite(self, state: State) -> None:
        """Make it the state without a history."""
        state._values[0] = 0
        state._model = self._scorer

    def BaseScore(self, in_state: State, word: str, out_state: State) -> float:
        """log10 p(word | in_state); out_state becomes the state after the word."""
        if in_state._model is not self._scorer:
            self._check(in_state)
        number = self._ids.get(word)
        if number is None:
            number = self._index(word)
        if out_state is in_state:
            in_state = in_state.__copy__()
        out_state._model = self._scorer
        score: float = step(self._address, in_state._address, number, out_state._address)[0]
        return score if score < INFINITY else refuse_number()

    def BaseFullScore(self, in_state: State, word: str, out_state: State) -> FullScoreReturn:
        """`BaseScore` with the length of the n-gram that matched and whether the word is unknown."""
        self._check(in_state)
        number = self._index(word)
        before = in_state.__copy__() if out_state is in_state else in_state
        out_state._model = self._scorer
        return FullScoreReturn(
            *self._scorer.advance(before._values, number, out_state._values), number == self._scorer.unk
        )

    def __contains__(self, word: Text) -> bool:
        return word in self._scorer

    def __repr__(self) -> str:
        return f"<Model from {os.fsencode(Path(os.fsdecode(self.path)).name)!r}>"

    def __reduce__(self) -> Any:
        return type(self), (self.path,)

    def _index(self, word: str) -> int:
        """The id of a word; those of known words are kept."""
        number = self._scorer.index(word)
        if number != self._scorer.unk:
            self._ids[word] = number
        return number

    def _check(self, state: State) -> None:
        """Refuse the state of another model; a new state belongs to none."""
        if state._values[0] and not _same_model(state._model, self._scorer):
            raise InputError(
                "this State belongs to another model",
                hint="begin with BeginSentenceWrite or NullContextWrite of the model that scores",
            )


class LanguageModel(Model):
    """The old name of `Model`."""


def _same_model(one: Scorer | None, other: Scorer | None) -> bool:
    """Whether states of one mean the same to the other: the same object, or two loaded from equal files."""
    return one is other or (one is not None and other is not None and one.fingerprint == other.fingerprint)
