"""Sentences to begin with: the corpus that comes with Python, its words, and how it is split; the folder of corpora."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from lidstone.errors import DataError, InputError

Sentence = TypeVar("Sentence")


def data_root() -> Path | None:
    """The folder of corpora named by the environment variable `LIDSTONE_DATA`, if it is set."""
    folder = os.environ.get("LIDSTONE_DATA")
    return Path(folder) if folder else None


def tokenize(text: str) -> list[str]:
    """Lower-case `text`; runs of word characters, with inner apostrophes, are words; other characters are tokens.

    >>> tokenize('It doesn’t (yet) call "__init__".')
    ['it', 'doesn’t', '(', 'yet', ')', 'call', '"', '__init__', '"', '.']
    """
    return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", text.lower())


def embedded_corpus() -> list[list[str]]:
    """Sentences of Python's own reference text, `pydoc_data.topics`: English on every machine with CPython.

    Paragraphs end at blank lines, sentences at `.`, `!`, `?` or `:` before white space. Grammar rules,
    interpreter sessions, tables, ruled lines and repeated paragraphs are left out. The text differs a
    little between versions of Python.
    """
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = dict.fromkeys(re.split(r"\n\s*\n", re.sub(r"(?m)^\s*[*=~^-]+$", "", text)))
    prose = (paragraph for paragraph in paragraphs if not re.search(r"::=|>>>|\+--", paragraph))
    sentences = (tokenize(part) for paragraph in prose for part in re.split(r"(?<=[.!?:])\s+", paragraph))
    return [sentence for sentence in sentences if sentence]


def split_sentences(
    sentences: Sequence[Sentence], block: int = 10
) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """Split sentences into 80 % training, 10 % validation and 10 % test, in blocks of neighbours.

    Of every ten blocks the ninth is for validation and the tenth for test.

    >>> train, valid, test = split_sentences(range(20), block=1)
    >>> valid, test
    ([8, 18], [9, 19])
    """
    if block < 1:
        raise InputError(f"a block has at least one sentence, not {block}", hint="use block >= 1")
    parts: tuple[list[Sentence], list[Sentence], list[Sentence]] = ([], [], [])
    for number, sentence in enumerate(sentences):
        parts[max(0, number // block % 10 - 7)].append(sentence)
    return parts


def aligned(texts: Sequence[Iterable[str]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Line n of each text is sample n; texts of different length are an error.

    >>> aligned([["a", "b"], ["A"]], ["x.de", "x.en"])
    Traceback (most recent call last):
    lidstone.errors.DataError: x.de has 2 lines but x.en has 1: line 2 has no partner. hint: ...
    """
    columns = [list(text) for text in texts]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise DataError(
            f"{names[0]} has {lengths[0]} lines but {names[1]} has {lengths[1]}: "
            f"line {min(lengths) + 1} has no partner",
            hint="line n of one file must translate line n of the other",
        )
    return list(zip(*columns, strict=True))
