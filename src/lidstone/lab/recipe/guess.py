"""What `lidstone init` finds out about a text: its size, whether it is tokenized, its language, a name for the study.

These are guesses from frequent punctuation and frequent words. They are printed and written into the recipe, where the
user can change them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from lidstone.text.source import COMPRESSED

Tokenization = Literal["none", "moses", "done"]
SAMPLE = 20_000  # lines that the guesses are based on
FREQUENT = {
    "de": "der die und das nicht ist ein eine zu mit",
    "en": "the of and to in is that was for it",
    "es": "el los las que y en una por con se",
    "fr": "le les des et est une dans du pas que",
    "it": "il di che la e un per non sono della",
    "nl": "de het een van en dat niet zijn op voor",
    "pt": "o os que do da em uma não com para",
}
"""Ten frequent words of each language that Moses has rules for; a language code in the file name has priority."""


@dataclass(frozen=True)
class Facts:
    """Size of a text, and guesses about it."""

    samples: int
    words: int
    tokenization: Tokenization
    why: str
    """the reason for the guess of the tokenization, in a few words"""
    language: str


def examine(lines: Sequence[str], file: str | Path) -> Facts:
    """Size and guesses from the non-empty lines of a text.

    >>> facts = examine(["Das ist nicht der Hund.", "Und die Katze, ist das eine?"], "text.txt")
    >>> facts.tokenization, facts.language
    ('moses', 'de')
    """
    sample = list(islice(lines, SAMPLE))
    tokenization, why = guess_tokenization(sample)
    words = sum(len(line.split()) for line in lines)
    return Facts(len(lines), words, tokenization, why, language_in(file) or guess_language(sample) or "en")


def guess_tokenization(lines: Iterable[str]) -> tuple[Tokenization, str]:
    """Whether punctuation is separated from words, with the reason.

    >>> guess_tokenization(["no , it is n't"]), guess_tokenization(["so it is"])
    (('done', 'punctuation stands apart from words'), ('none', 'it has no punctuation'))
    """
    apart = attached = 0
    for line in lines:
        for word in line.split():
            if re.fullmatch(r"[.,;:!?]+", word):
                apart += 1
            elif re.search(r"\w[.,;:!?]+$", word):
                attached += 1
    if not apart + attached:
        return "none", "it has no punctuation"
    if apart >= attached:
        return "done", "punctuation stands apart from words"
    return "moses", f"punctuation is attached to words in {attached / (apart + attached):.0%} of cases"


def guess_language(lines: Iterable[str]) -> str | None:
    """The language whose frequent words occur most; None if none of them occurs.

    >>> guess_language(["le chat est dans la maison"])
    'fr'
    """
    counts = Counter(word for line in lines for word in line.lower().split())
    found = {code: sum(counts[word] for word in words.split()) for code, words in FREQUENT.items()}
    best = max(found, key=lambda code: found[code])
    return best if found[best] else None


def language_in(file: str | Path) -> str | None:
    """The language code in a file name.

    >>> language_in("train.de.gz"), language_in("train.txt")
    ('de', None)
    """
    codes = [suffix[1:] for suffix in Path(file).suffixes if _is_language(suffix)]
    return codes[-1] if codes else None


def study_name(files: Sequence[str | Path]) -> str:
    """A name for the study: that of its first text, without suffixes.

    >>> study_name(["text/news.de.txt.gz", "text/news.en.txt.gz"])
    'news'
    """
    path = Path(files[0])
    while path.suffix in (*COMPRESSED, ".txt", ".text", ".tok") or _is_language(path.suffix):
        path = path.with_suffix("")
    return path.name if files[0] != "-" else "text"


def _is_language(suffix: str) -> bool:
    return bool(re.fullmatch(r"\.[a-z]{2}", suffix)) and suffix not in COMPRESSED
