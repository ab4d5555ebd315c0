"""The event space: which ids exist, which of them can be predicted, and their strings.

A `Vocabulary` has the ids 0..size-1. Its *event space* E is all of them but the unpredictable ones (pad, a
model's own bos). The sentence start in histories is none of these: it is `bos == size`, so that it
cannot be confused with a model's special ids, which may coincide (GPT-2: bos = eos = pad).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from lidstone.errors import InputError

UNK, BOS, EOS = "<unk>", "<s>", "</s>"
SHOWN = 4
"""How many values a short display shows"""


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """Ids 0..size-1, of which E, the event space, can be predicted.

    >>> vocab = Vocabulary(size=4, eos=1, unpredictable=(0,))
    >>> vocab.events.tolist(), vocab.event_count, vocab.bos
    ([False, True, True, True], 3, 4)
    """

    size: int
    """Number of ids; they run from 0 to size - 1."""
    eos: int
    """The id that ends a sentence. It is predicted like any word."""
    unpredictable: tuple[int, ...] = ()
    """Ids that never follow a history: padding, a model's own sentence start. Their probability is zero."""
    unk: int | None = None
    """The id that stands for unknown words, where there is one."""
    tokens: tuple[str, ...] | None = None
    """The string of each id, where known."""

    def __post_init__(self) -> None:
        unpredictable = tuple(sorted({int(token) for token in self.unpredictable}))
        object.__setattr__(self, "unpredictable", unpredictable)
        object.__setattr__(self, "tokens", None if self.tokens is None else tuple(self.tokens))
        for name in ("size", "eos", "unk"):
            value = getattr(self, name)
            absent = name == "unk" and value is None
            object.__setattr__(self, name, None if absent else _integer(name, value))
        _validate(self)

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Vocabulary:
        """Give id 0 to `<unk>`, 1 to `</s>`, then one to each word; the specials may be among `words`.

        >>> Vocabulary.from_words(["a", "b"]).tokens
        ('<unk>', '</s>', 'a', 'b')
        """
        tokens = (UNK, EOS, *(word for word in words if word not in (UNK, EOS)))
        if BOS in tokens:
            raise InputError("<s> is not a word of a vocabulary", hint="leave it out: its id is vocab.bos")
        return cls(size=len(tokens), eos=1, unk=0, tokens=tokens)

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, *, size: int | None = None) -> Vocabulary:
        """Read a Hugging Face tokenizer; `size` is the model's, where its embedding matrix is padded.

        eos is predicted even if it is also bos or pad (GPT-2). Tokenizers without eos end sentences with sep (BERT).
        bos, pad, cls and mask are not predicted, unless they are eos or unk. unk is predicted like a word; if it is eos
        (GPT-2, whose bytes cover every text) there is no unknown word. Ids without a string, which exist if the model's
        matrix is larger than the tokenizer, are not predicted either.
        """
        tokens = _strings_of(tokenizer, size)
        eos, unpredictable, unk = _specials_of(tokenizer)
        unused = (token for token, string in enumerate(tokens) if string == f"<unused-{token}>")
        return cls(len(tokens), eos, (*unpredictable, *unused), unk, tokens)

    @property
    def bos(self) -> int:
        """The id of the sentence start in histories: one past the last word."""
        return self.size

    @cached_property
    def events(self) -> npt.NDArray[np.bool_]:
        """Mask over ids, shape (size,): True where the id can be predicted. Read-only."""
        mask = np.ones(self.size, dtype=np.bool_)
        mask[list(self.unpredictable)] = False
        mask.setflags(write=False)
        return mask

    @cached_property
    def boundaries(self) -> npt.NDArray[np.bool_]:
        """Which ids, standing before a token, make it the first of its sentence; (size + 1,). See `text/history.py`."""
        from lidstone.text.history import boundaries

        return boundaries(self)

    @property
    def event_count(self) -> int:
        """|E|, the number of ids that can be predicted."""
        return self.size - len(self.unpredictable)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The id of each token."""
        if self.tokens is None:
            raise InputError("this vocabulary has no strings", hint="make it with tokens=, or pass ids, not words")
        return {token: number for number, token in enumerate(self.tokens)}

    def encode(self, words: Sequence[str]) -> npt.NDArray[np.int32]:
        """The ids of words; unknown ones become `unk`.

        >>> Vocabulary.from_words(["a", "b"]).encode(["b", "z"]).tolist()
        [3, 0]
        """
        if isinstance(words, (str, bytes)):
            raise InputError(
                f"encode takes a sequence of words, not the text {words[:40]!r}", hint="split it first: text.split()"
            )
        unk = -1 if self.unk is None else self.unk
        ids = np.fromiter((self.index.get(word, unk) for word in words), dtype=np.int32, count=len(words))
        if unk < 0 and ids.size and ids.min() < 0:
            raise InputError(
                f"{words[int(ids.argmin())]!r} is not in the vocabulary, which has no unknown word",
                hint="make the vocabulary with unk=",
            )
        return ids

    def check_ids(self, ids: npt.ArrayLike, *, bos: bool = False) -> npt.NDArray[np.int64]:
        """Return `ids` as an array if all are in 0..size-1 (or are `bos`, if allowed); else raise an error.

        >>> Vocabulary(size=3, eos=0).check_ids([1, 7])
        Traceback (most recent call last):
        lidstone.errors.InputError: id 7 at position 1 is outside the vocabulary of 3 ids (0 to 2). ...
        """
        array = _whole_numbers(ids)
        wrong = (array < 0) | (array >= self.size + bos)
        if wrong.any():
            raise InputError(
                f"id {array[wrong][0]} at position {int(wrong.argmax())} is outside "
                f"the vocabulary of {self.size} ids (0 to {self.size - 1})",
                hint="use the tokenizer that the vocabulary was made from, or pass the model's size to it",
            )
        return array

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of a hash of size, eos, unk, unpredictable ids, and strings where known."""
        return _hash([self.size, self.eos, self.unpredictable, self.tokens, {"unk": self.unk}])

    @cached_property
    def token_fingerprint(self) -> str:
        """The hash of the ids and their strings, whichever stands for unknown words: part of the ids of runs."""
        return _hash([self.size, self.eos, self.unpredictable, self.tokens])

    def __repr__(self) -> str:
        """The sizes and special ids on one line.

        >>> Vocabulary.from_words(["a", "b"])
        Vocabulary(size=4, eos=1, unk=0, tokens=('<unk>', '</s>', 'a', 'b'))
        """
        shown: dict[str, Any] = {"size": self.size, "eos": self.eos, "unk": self.unk}
        shown["unpredictable"] = shortened(self.unpredictable) if self.unpredictable else None
        shown["tokens"] = None if self.tokens is None else shortened(self.tokens)
        return f"Vocabulary({', '.join(f'{name}={value}' for name, value in shown.items() if value is not None)})"

    def _repr_html_(self) -> str:
        words = None if self.tokens is None else " ".join(self.tokens[:SHOWN])
        facts = {"ids": self.size, "events": self.event_count, "eos": self.eos, "unk": self.unk, "words": words}
        return html_table("Vocabulary", facts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the inverse is `from_dict`."""
        tokens = None if self.tokens is None else list(self.tokens)
        unpredictable = list(self.unpredictable)
        return {
            "size": self.size,
            "eos": self.eos,
            "unpredictable": unpredictable,
            "unk": self.unk,
            "tokens": tokens,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Vocabulary:
        """Undo `to_dict`.

        >>> vocab = Vocabulary.from_words(["a"]); Vocabulary.from_dict(vocab.to_dict()) == vocab
        True
        """
        return cls(**values)


def _hash(identity: list[Any]) -> str:
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _integer(name: str, value: Any) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise InputError(f"{name} of a vocabulary must be a whole number, not {value!r}", hint=f"pass an int as {name}=")


def _whole_numbers(ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
    array = np.asarray(ids)
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"ids must be whole numbers, not {array.dtype}", hint="encode the words first")
    return array.astype(np.int64, copy=False)


def _validate(vocab: Vocabulary) -> None:
    if vocab.size < 1:
        raise InputError(f"a vocabulary needs at least one id, not {vocab.size}", hint="use size >= 1")
    named = [("eos", vocab.eos), ("unk", vocab.unk), *(("unpredictable", t) for t in vocab.unpredictable)]
    for name, token in named:
        if token is not None and not 0 <= token < vocab.size:
            raise InputError(f"{name} id {token} is outside 0 to {vocab.size - 1}", hint="check size and special ids")
    if vocab.eos in vocab.unpredictable:
        raise InputError(f"eos id {vocab.eos} is listed as unpredictable", hint="sentences must end: leave eos out")
    if vocab.tokens is not None:
        _validate_tokens(vocab.tokens, vocab.size)


def _validate_tokens(tokens: tuple[str, ...], size: int) -> None:
    if len(tokens) != size:
        raise InputError(f"{len(tokens)} tokens given for {size} ids", hint="pass one string per id")
    if len(set(tokens)) != size:
        seen: set[str] = set()
        twice = next(token for token in tokens if token in seen or seen.add(token))  # type: ignore[func-returns-value]
        raise InputError(f"the token {twice!r} occurs twice in the vocabulary", hint="list each word once")


def _strings_of(tokenizer: Any, size: int | None) -> tuple[str, ...]:
    """The string of each id; `<unused-ID>` where the tokenizer has none."""
    strings = {number: string for string, number in tokenizer.get_vocab().items()}
    needed = max(strings, default=-1) + 1
    if size is not None and size < needed:
        raise InputError(
            f"size={size} is too small for a tokenizer with ids up to {needed - 1}",
            hint="pass the number of rows of the model's embedding matrix",
        )
    return tuple(strings.get(number, f"<unused-{number}>") for number in range(size or needed))


def _specials_of(tokenizer: Any) -> tuple[int, tuple[int, ...], int | None]:
    """The ids (eos, unpredictable, unk)."""
    ends = (getattr(tokenizer, name, None) for name in ("eos_token_id", "sep_token_id"))
    if (eos := next((end for end in ends if end is not None), None)) is None:
        raise InputError("the tokenizer has neither eos nor sep", hint="set tokenizer.eos_token")
    unk = getattr(tokenizer, "unk_token_id", None)
    others = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "pad", "cls", "mask")}
    unpredictable = sorted(token for token in others - {eos, unk} if token is not None)
    return eos, tuple(unpredictable), None if unk == eos else unk


def shortened(values: Sequence[Any]) -> str:
    """The first values, and their number.

    >>> shortened(("a", "b")), shortened(range(9000))
    ("('a', 'b')", '(0, 1, 2, 3, ... 9,000 in all)')
    """
    first = ", ".join(_brief(value) for value in values[:SHOWN])
    return f"({first}, ... {len(values):,} in all)" if len(values) > SHOWN else f"({first})"


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:20]}...{text[-1]}"


def html_table(title: str, facts: Mapping[str, Any]) -> str:
    """Names and values as an HTML table; None is left out, whole numbers get separators.

    >>> html_table("Counts", {"tokens": 12345, "thresholds": None})
    '<table><caption>Counts</caption><tr><th>tokens</th><td>12,345</td></tr></table>'
    """
    rows = (
        f"<tr><th>{escape(name)}</th><td>{escape(_text(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(rows)}</table>"


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
