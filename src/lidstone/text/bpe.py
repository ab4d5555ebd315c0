"""Subwords by byte-pair encoding: merges learnt as subword-nmt does, applied by tokenizers.

A word that is split has `@@` at the end of all its pieces but the last: `low@@ est`. The codes file is
subword-nmt's, version 0.2. `BPE.encode_lines` gives the result of `subword-nmt apply-bpe`, in parallel. Merges are not
learnt by tokenizers, whose merges differ from subword-nmt's. No glossaries and no dropout.

`learn_merges` learns them several times as fast as subword-nmt, which spends most of its time searching for the most
frequent pair among all pairs. Here there is one set of pairs per frequency, and a heap of the frequencies; words are
rewritten without regular expressions. Everything else, the pruning of rare pairs and its side effects included, is
subword-nmt's own code, so that the merges are the same.
"""

from __future__ import annotations

import copy
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lidstone.errors import FileFormatError, InputError, TextError
from lidstone.files import write_text
from lidstone.text.reader import read_lines

Pair = tuple[str, str]
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

    merges: tuple[Pair, ...]
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
            pieces = self._pieces(known)
            surface = [piece.removesuffix(_END) if piece.endswith(_END) else piece + _SPLIT for piece in pieces]
            self._engine.update(letters=known, tokenizer=self._build(pieces), surface=surface)
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


def _parse(lines: Sequence[str], name: str) -> tuple[Pair, ...]:
    if not lines or lines[0].strip() != _VERSION:
        raise FileFormatError(
            f"{name} is not a BPE codes file of version 0.2", hint=f"its first line must be {_VERSION}"
        )
    pairs = [tuple(line.strip("\r\n ").split(" ")) for line in lines[1:]]
    wrong = next((number for number, pair in enumerate(pairs, 2) if len(pair) != 2), None)
    if wrong is not None:
        raise FileFormatError(f"{name}, line {wrong} is not a pair of pieces", hint="copy the codes file again")
    return tuple(pairs)  # type: ignore[arg-type]


def learn_merges(words: Mapping[str, int], merges: int, min_frequency: int = 2) -> list[Pair]:
    """The first `merges` merges, best first, for words with these counts.

    >>> learn_merges({"low": 3, "lower": 1}, 2)
    [('l', 'o'), ('lo', 'w</w>')]
    """
    from subword_nmt.learn_bpe import get_pair_statistics, prune_stats, replace_pair, update_pair_statistics

    # to its regular expression an unusual space inside a word is the end of a symbol: leave such text to it
    spaced = any(len(word.split()) > 1 or word != word.strip() for word in words)
    replace = replace_pair if spaced else _replace_pair

    spelt = {(*word[:-1], f"{word[-1]}</w>"): count for word, count in words.items()}
    vocabulary = sorted(spelt.items(), key=lambda item: item[1], reverse=True)
    plain, indices = get_pair_statistics(vocabulary)
    everything = copy.copy(plain)
    stats = _RankedCounts(plain)
    threshold = max(plain.values(), default=0) / 10
    learnt: list[Pair] = []
    while len(learnt) < merges and everything:
        number = len(learnt)
        best = stats.best() if stats else None
        if best is None or (number and stats[best] < threshold):  # the best pair may be a pruned one
            prune_stats(stats, everything, threshold)
            stats = _RankedCounts(everything)
            best = stats.best()
            threshold = stats[best] * number / (number + 10000.0)
            prune_stats(stats, everything, threshold)
        if stats[best] < min_frequency:
            break
        learnt.append(best)
        update_pair_statistics(best, replace(best, vocabulary, indices), stats, indices)
        stats[best] = 0
        if not number % 100:
            prune_stats(stats, everything, threshold)
    return learnt


def _replace_pair(pair: Pair, vocabulary: list[tuple[tuple[str, ...], int]], indices: Any) -> list[Any]:
    """Join the pair in all words that have it; return (number, new word, old word, count) of each."""
    changes = []
    for number, occurrences in indices[pair].items():
        if occurrences > 0:
            old, count = vocabulary[number]
            vocabulary[number] = (_joined(old, *pair), count)
            changes.append((number, vocabulary[number][0], old, count))
    return changes


def _joined(word: tuple[str, ...], first: str, second: str) -> tuple[str, ...]:
    symbols: list[str] = []
    start = 0
    while start < len(word):
        if word[start] == first and word[start + 1 : start + 2] == (second,):
            symbols.append(first + second)
            start += 2
        else:
            symbols.append(word[start])
            start += 1
    return tuple(symbols)


class _RankedCounts(defaultdict[Pair, int]):
    """Counts of pairs with fast access to the most frequent one; of equals, the last in the alphabet.

    Equals `max(counts, key=lambda pair: (counts[pair], pair))`.
    """

    def __init__(self, counts: Mapping[Pair, int]) -> None:
        super().__init__(int)
        self._changed: set[Pair] = set()
        self._frequency: dict[Pair, int] = {}  # as ranked, which may be out of date for the changed ones
        self._ranks: dict[int, set[Pair]] = {}
        self._heap: list[int] = []
        self.update(counts)
        self._changed.update(counts)

    def __setitem__(self, pair: Pair, count: int) -> None:
        super().__setitem__(pair, count)
        self._changed.add(pair)

    def __delitem__(self, pair: Pair) -> None:
        super().__delitem__(pair)
        self._changed.add(pair)

    def best(self) -> Any:
        for pair in self._changed:
            self._rank(pair)
        self._changed.clear()
        while not self._ranks[-self._heap[0]]:
            del self._ranks[-heapq.heappop(self._heap)]
        return max(self._ranks[-self._heap[0]])

    def _rank(self, pair: Pair) -> None:
        old, new = self._frequency.pop(pair, None), self.get(pair)
        if old is not None:
            self._ranks[old].discard(pair)
        if new is not None:
            if new not in self._ranks:
                self._ranks[new] = set()
                heapq.heappush(self._heap, -new)
            self._ranks[new].add(pair)
            self._frequency[pair] = new
