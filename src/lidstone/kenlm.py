"""The interface of the kenlm module, for programs that use it: `import lidstone.kenlm as kenlm`.

    model = kenlm.Model("model.arpa")            # or a table of lidstone, or a binary of KenLM
    model.score("this is a sentence .")          # log10 p

The names, the arguments and the numbers are those of the kenlm module, to the last bit of a float32. In addition
`score_lines` scores many sentences on all cores, and `table` gives the model as a `BackoffTable`, with whole rows. The
differences are listed in docs/kenlm.md.
"""

from __future__ import annotations

import inspect
import itertools
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, LidstoneError
from lidstone.ngram.scorer.methods import OWNER, STATE_BYTES, compile_ahead, method, score_sentence, score_word
from lidstone.ngram.scorer.scorer import Scorer, Text, TextScores, padded, refuse_number
from lidstone.ngram.scorer.step import WORDS
from lidstone.text.raw import RawText, foreign_pieces, raw_text
from lidstone.text.tokens import PADDING

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

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray(STATE_BYTES)

    def _key(self) -> bytes:
        """Its length and its words."""
        return bytes(self._data[: WORDS + 4 * self._data[0]])

    @property
    def _model(self) -> int:
        """The number of the model that wrote it."""
        return int.from_bytes(self._data[OWNER:], "little")

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
        copied._data[:] = self._data
        return copied

    def __deepcopy__(self, memo: object = None) -> State:
        return self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError("a State cannot be pickled: it belongs to a model in this process")


_NUMBERS = itertools.count(1)
_MODELS: weakref.WeakValueDictionary[int, Scorer] = weakref.WeakValueDictionary()
"""The models of this process by number; a number is never used again."""


class _Calls:
    """What the methods of a model do with arguments that the compiled ones (`scorer/methods.py`) leave to Python.

    It holds none of these, nor the model: a model that nobody needs is freed at once.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.number = scorer, next(_NUMBERS)
        _MODELS[self.number] = scorer
        self.context = [scorer.packed.address, self.number, State, scorer]
        self.start = scorer.start.ljust(OWNER, b"\0") + self.number.to_bytes(8, "little")

    def score(self, sentence: Text, bos: bool = True, eos: bool = True) -> float:
        """log10 p(sentence </s> | <s>); without `<s>` where bos is false, without `</s>` where eos is false."""
        return self.scorer.score(sentence, bos, eos)

    def full_scores(self, sentence: Text, bos: bool = True, eos: bool = True) -> Iterator[tuple[float, int, bool]]:
        """For each word, and `</s>` where eos is true: log10 p, length of the n-gram that matched, whether unknown."""
        return iter(self.scorer.score_words(sentence, bos, eos))

    def score_word(self, in_state: State, word: str, out_state: State) -> float:
        """log10 p(word | in_state); out_state becomes the state after the word."""
        return self.full_word(in_state, word, out_state)[0]

    def full_word(self, in_state: State, word: str, out_state: State) -> tuple[float, int, bool]:
        """The same, the length of the n-gram that matched and whether the word is unknown."""
        states: tuple[object, object] = (in_state, out_state)
        if not all(isinstance(state, State) for state in states):
            raise InputError(
                "a word is scored after a State, into a State", hint="BaseScore(in_state, word, out_state)"
            )
        before, after = State(), State()
        before._data[:] = in_state._data
        if in_state._data[0] and not _same_model(in_state._model, self.number):
            raise InputError(
                "this State belongs to another model",
                hint="begin with BeginSentenceWrite or NullContextWrite of the model that scores",
            )
        before._data[OWNER:] = self.start[OWNER:]
        usual = method(score_word, "BaseFullScore", _refuse_number, self.context, whole=True)
        found: tuple[float, int, bool] = usual(before, padded(word)[: -len(PADDING)], after)
        out_state._data[:] = after._data
        return found


def _refuse_number(*_: Any) -> None:
    refuse_number()


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Compiled(Generic[Arguments, Result]):
    """A method that is compiled when it is first asked for, and `unusual` for what it does not understand."""

    def __init__(
        self, unusual: Callable[Concatenate[_Calls, Arguments], Result], code: Callable[..., Any], *, whole: bool
    ) -> None:
        self.unusual, self.code, self.whole, self.__doc__ = unusual, code, whole, unusual.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Model, owner: type) -> Callable[Arguments, Result]:
        calls = model._calls
        unusual = self.unusual.__get__(calls)
        made = method(self.code, self.name, unusual, calls.context, whole=self.whole)
        if inspect.getattr_static(owner, self.name) is self:  # no class below has a method of this name
            model.__dict__[self.name] = made
        return made


class Model:
    """A model by its path: an ARPA file, plain or compressed, a table of lidstone, or a binary of KenLM."""

    def __init__(self, path: str | bytes | os.PathLike[str], config: Config | None = None) -> None:
        from lidstone.ngram.scorer.models import load_scorer

        self.path: bytes = os.fsencode(Path(os.fsdecode(path)).absolute())
        compile_ahead()
        try:
            self._scorer = load_scorer(os.fsdecode(self.path))
        except (LidstoneError, OSError) as error:
            reason, hint = getattr(error, "message", str(error)), getattr(error, "hint", "check the path")
            raise CannotRead(f"Cannot read model '{os.fsdecode(path)}' ({reason})", hint=hint) from error
        self._calls = _Calls(self._scorer)
        self._rules: dict[Any, RawText] = {}

    @property
    def order(self) -> int:
        """The length of the longest n-gram."""
        return self._scorer.order

    score = _Compiled(_Calls.score, score_sentence, whole=False)
    full_scores = _Compiled(_Calls.full_scores, score_sentence, whole=True)
    BaseScore = _Compiled(_Calls.score_word, score_word, whole=False)
    _full_word = _Compiled(_Calls.full_word, score_word, whole=True)

    def perplexity(self, sentence: Text) -> float:
        """The perplexity of one sentence: 10^(-score / (words + 1))."""
        words = len((sentence if isinstance(sentence, bytes) else sentence.encode()).split()) + 1
        return float(10.0 ** (-self.score(sentence) / words))

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
        state._data[:] = self._calls.start

    def NullContextWrite(self, state: State) -> None:
        """Make it the state without a history."""
        state._data[:] = bytes(STATE_BYTES)

    def BaseFullScore(self, in_state: State, word: str, out_state: State) -> FullScoreReturn:
        """`BaseScore` with the length of the n-gram that matched and whether the word is unknown."""
        return FullScoreReturn(*self._full_word(in_state, word, out_state))

    def __contains__(self, word: Text) -> bool:
        return word in self._scorer

    def __repr__(self) -> str:
        return f"<Model from {os.fsencode(Path(os.fsdecode(self.path)).name)!r}>"

    def __reduce__(self) -> Any:
        return type(self), (self.path,)


class LanguageModel(Model):
    """The old name of `Model`."""


def _same_model(one: int, other: int) -> bool:
    """Whether states of one mean the same to the other: the same object, or two loaded from equal files."""
    models = _MODELS.get(one), _MODELS.get(other)
    return one == other or (None not in models and len({model.fingerprint for model in models if model}) == 1)
