"""Sentences to begin with: the corpus that comes with Python, its words, and how it is split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from lidstone.errors import InputError

Sentence = TypeVar("Sentence")


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

    >>> len(embedded_corpus()) > 1000
    True
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
