"""Subwords by byte-pair encoding: merges learnt as subword-nmt does, applied by tokenizers.

A word that is split has `@@` at the end of all its pieces but the last: `low@@ est`. The codes file is
subword-nmt's, version 0.2. `BPE.encode_lines` gives the result of `subword-nmt apply-bpe`, in parallel. Merges are not
learnt by tokenizers, whose merges differ from subword-nmt's. No glossaries and no dropout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lidstone.errors import FileFormatError, InputError, TextError
from lidstone.files import write_text
from lidstone.text.merges import learn_merges
from lidstone.text.reader import read_lines
from lidstone.text.vocabulary import EOS, UNK, Vocabulary

PAD = "<pad>"
_SPLIT = "@@"  # ends each piece of a word but the last
_END = "</w>"  # ends the last piece of a word inside the codes file
_VERSION = "#version: 0.2"


def learn_bpe(lines: Iterable[str], merges: int, min_frequency: int = 2) -> BPE:
    """Learn up to `merges` merges from words between spaces; fewer, if no pair has `min_frequency`.

    >>> learn_bpe(["low low lower lowest"], merges=2).merges
    (('l', 'o'), ('w', 'e'))
    """
    if merges < 1:
        raise InputError(f"cannot learn {merges} merges", hint="use merges >= 1")
    words = Counter(word for line in lines for word in line.strip("\r\n ").split(" ") if word)
    if not any(len(word) > 1 for word in words):
        raise TextError(
            "no word of two letters to learn merges from",
            hint="use more text, or split at spaces only (in a recipe, tokenizer.kind: word)",
        )
    return BPE(tuple(learn_merges(words, merges, min_frequency)))


@dataclass(frozen=True)
class BPE:
    """A list of merges, best first.

    >>> bpe = BPE((("l", "o"), ("lo", "w</w>")))
    >>> bpe.encode_lines(["low lows"])
    [['low', 'lo@@', 'w@@', 's']]
    >>> bpe.decode(["low", "lo@@", "w@@", "s"])
    'low lows'
    """

    merges: tuple[tuple[str, str], ...]
    """Pairs of pieces; `</w>` marks the end of a word."""
    _engine: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def load(cls, path: str | Path) -> BPE:
        """Read a codes file of subword-nmt, plain or compressed."""
        return cls(_parse(list(read_lines(path)), str(path)))

    def save(self, path: str | Path) -> None:
        """Write the codes file, which subword-nmt reads too."""
        write_text(path, "\n".join([_VERSION, *(" ".join(pair) for pair in self.merges), ""]))

    def encode_lines(self, lines: Sequence[str]) -> list[list[str]]:
        """Split the words of each line, separated by spaces, into pieces."""
        tokenizer, surface = self._tokenizer_for(lines)
        encoded = tokenizer.encode_batch_fast([line.strip("\r\n ") for line in lines], add_special_tokens=False)
        return [[surface[piece] for piece in one.ids] for one in encoded]

    def decode(self, pieces: Sequence[str]) -> str:
        """Join pieces to words again."""
        return f"{' '.join(pieces)} ".replace(f"{_SPLIT} ", "").removesuffix(" ")

    def _tokenizer_for(self, lines: Sequence[str]) -> tuple[Any, list[str]]:
        """The tokenizer and the surface of its ids, built again if the lines have new letters."""
        letters = set().union(*lines) - self._engine.get("letters", set())
        if letters or not self._engine:
            known = self._engine.get("letters", set()) | letters
            vocabulary = self._pieces(known)
            self._engine.update(letters=known, tokenizer=self._build(vocabulary), surface=_surfaces(vocabulary))
        return self._engine["tokenizer"], self._engine["surface"]

    def _pieces(self, letters: Iterable[str]) -> list[str]:
        """All pieces that can occur: letters within and at the end of words, and what the merges join."""
        alphabet = (form for letter in sorted(letters) for form in (letter, letter + _END))
        joined = (piece for left, right in self.merges for piece in (left, right, left + right))
        return list(dict.fromkeys((*alphabet, *joined)))

    def _build(self, pieces: Sequence[str]) -> Any:
        from tokenizers import Tokenizer, models, pre_tokenizers

        ids = {piece: number for number, piece in enumerate(pieces)}
        tokenizer = Tokenizer(models.BPE(ids, list(dict.fromkeys(self.merges)), end_of_word_suffix=_END))
        tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
        return tokenizer


def subword_vocabulary(
    lines: Iterable[Sequence[str]],
    *,
    specials: Sequence[str] = (PAD, UNK, EOS),
    min_count: int = 1,
) -> Vocabulary:
    """The vocabulary of encoded lines: specials, then pieces by falling frequency, ties by spelling.

    `</s>` must be among the specials. `<pad>` and `<s>` are unpredictable.

    >>> subword_vocabulary([["b@@", "a"], ["a"]]).tokens
    ('<pad>', '<unk>', '</s>', 'a', 'b@@')
    """
    if EOS not in specials:
        raise InputError(f"the specials {tuple(specials)} lack {EOS}", hint=f"add {EOS}")
    counts = Counter(piece for line in lines for piece in line)
    pieces = sorted(counts, key=lambda piece: (-counts[piece], piece))
    frequent = (piece for piece in pieces if counts[piece] >= min_count)
    tokens = tuple(dict.fromkeys((*specials, *frequent)))
    unpredictable = tuple(number for number, token in enumerate(specials) if token in (PAD, "<s>"))
    unk = tokens.index(UNK) if UNK in specials else None
    return Vocabulary(len(tokens), tokens.index(EOS), unpredictable, unk, tokens)


def _parse(lines: Sequence[str], name: str) -> tuple[tuple[str, str], ...]:
    if not lines or lines[0].strip() != _VERSION:
        raise FileFormatError(
            f"{name} is not a BPE codes file of version 0.2", hint=f"its first line must be {_VERSION}"
        )
    pairs = [tuple(line.strip("\r\n ").split(" ")) for line in lines[1:]]
    wrong = next((number for number, pair in enumerate(pairs, 2) if len(pair) != 2), None)
    if wrong is not None:
        raise FileFormatError(f"{name}, line {wrong} is not a pair of pieces", hint="copy the codes file again")
    return tuple(pairs)  # type: ignore[arg-type]


def _surfaces(pieces: Sequence[str]) -> list[str]:
    return [piece.removesuffix(_END) if piece.endswith(_END) else piece + _SPLIT for piece in pieces]
