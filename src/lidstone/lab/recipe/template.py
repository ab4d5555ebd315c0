"""`lidstone init`: write a commented recipe for a user's own text.

The methods are those that docs/getting-started.md recommends. The sizes of network and training depend on the size of
the text. Its language, and whether it is tokenized, are guesses from frequent words and punctuation: they are printed
and written into the recipe, where the user can change them. The text of the recipe is in `recipes/new_*.template`.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import Template
from typing import Literal

import yaml

from lidstone.errors import DataError, RecipeError
from lidstone.files import write_text
from lidstone.lab.recipe.recipe import RECIPES, make_recipe
from lidstone.lab.recipe.yaml import parse_yaml
from lidstone.text.reader import aligned, read_lines
from lidstone.text.source import COMPRESSED

Tokenization = Literal["none", "moses", "done"]
SAMPLE = 20_000  # lines that the guesses are based on


@dataclass(frozen=True)
class Size:
    """The sizes of network and training for an amount of text."""

    words: float
    """Up to so many words of training text."""
    merges: int
    layers: int
    width: int
    ffn: int
    learning_rate: str
    warmup_steps: int
    accumulation: int
    pair_tokens: int
    """Target tokens per batch of a translation."""
    updates: int
    """So many a translation needs at most."""
    why: str

    def epochs(self, words: int) -> int:
        """The epochs of a translation that make `updates`, within bounds for very little and very much text.

        >>> SIZES[0].epochs(23_578), SIZES[0].epochs(100), SIZES[2].epochs(10**9)
        (55, 100, 10)
        """
        per_epoch = TOKENS_PER_WORD * words / (self.pair_tokens * self.accumulation)
        return min(max(math.ceil(self.updates / per_epoch), 10), 100)


EVALUATIONS = 20
"""How often a translation is evaluated, if it does not stop early."""
TOKENS_PER_WORD = 1.2
"""Of a text: eight tenths of it are for training, and a word has one and a half tokens, padding included."""
_CHOICES = yaml.safe_load((RECIPES.parent / "choices.yaml").read_text(encoding="utf-8"))
SIZES = tuple(Size(**size) for size in _CHOICES["sizes"])
FREQUENT = _CHOICES["frequent_words"]


@dataclass(frozen=True)
class TextFacts:
    """Size of a text, and guesses about it."""

    samples: int
    words: int
    tokenization: Tokenization
    why: str
    """the reason for the guess of the tokenization, in a few words"""
    language: str


@dataclass(frozen=True)
class Choices:
    """The choices that a recipe is written from."""

    task: str
    name: str
    files: tuple[str, ...]
    facts: tuple[TextFacts, ...]
    """of source and target for a translation; of all text for a language model"""
    size: Size

    @property
    def tokenization(self) -> str:
        """The recipe's value: language models leave tokenized text as it is; translations are detokenized."""
        guessed = self.facts[-1].tokenization
        if self.task == "mt":
            return "moses" if guessed == "none" else guessed
        return "none" if guessed == "done" else guessed

    def lines(self) -> list[str]:
        """What was chosen and why, for the user."""
        target = self.facts[-1]
        return [
            f"{target.samples:,} samples, {target.words:,} words: {self.size.why}",
            f"name: {self.name}",
            f"language: {' to '.join(facts.language for facts in self.facts)}",
            f"tokenization: {self.tokenization}, because {target.why}",
            "methods: none, label smoothing, modified Kneser-Ney trigrams (what docs/getting-started.md recommends)",
        ]


def write_recipe(
    task: str, files: Sequence[str], output: str | Path, *, name: str | None = None, force: bool = False
) -> Choices:
    """Write a recipe for these files, and return what was chosen; the recipe is checked before it is written."""
    path = Path(output)
    if path.exists() and not force:
        raise RecipeError(f"{path} exists already", hint="choose another --output, or --force to replace it")
    choices = choose(task, files, name=name)
    write_text(path, recipe_text(choices, folder=path.parent))
    return choices


def choose(task: str, files: Sequence[str], *, name: str | None = None) -> Choices:
    """Read the text and choose sizes and settings; for `mt` the two files are source and target."""
    if task not in ("lm", "mt"):
        raise RecipeError(f"there is no task {task!r}", hint="use lm or mt")
    sides = _read(task, files)
    facts = tuple(examine(lines, file) for lines, file in sides)
    size = next(size for size in SIZES if facts[-1].words <= size.words)
    return Choices(task, name or study_name(files), tuple(files), facts, size)


def recipe_text(choices: Choices, *, folder: Path | None = None) -> str:
    """The YAML of a recipe; paths are relative to `folder`."""
    places = [_quoted(os.path.relpath(file, folder or Path())) for file in choices.files]
    size, facts = choices.size, choices.facts[-1]
    template = Template((RECIPES / f"new_{choices.task}.template").read_text(encoding="utf-8"))
    text = template.substitute(
        {
            key: getattr(size, key)
            for key in ("merges", "layers", "width", "accumulation", "learning_rate", "warmup_steps", "pair_tokens")
        },
        epochs=size.epochs(facts.words),
        eval_every=size.updates // EVALUATIONS,
        ffn=size.ffn if choices.task == "lm" else size.ffn // 2,
        size=size.why,
        samples=f"{facts.samples:,}",
        words=f"{facts.words:,}",
        name=_quoted(choices.name),
        source=places[0],
        target=places[-1],
        files="".join(f"\n    - {place}" for place in places),
        source_language=_quoted(choices.facts[0].language),
        language=_quoted(facts.language),
        tokenization=f"tokenization: {choices.tokenization}".ljust(30),
        why=facts.why,
    )
    make_recipe(parse_yaml(text), origin="the new recipe")
    return text


def _read(task: str, files: Sequence[str]) -> list[tuple[list[str], str]]:
    """The non-empty lines of each side, with one of its files; files that cannot be used are an error."""
    if task == "mt" and len(files) != 2:
        raise RecipeError(f"translation needs two files, not {len(files)}", hint="give SOURCE and TARGET")
    if not files:
        raise RecipeError("no text given", hint="give one or more text files")
    texts = [list(read_lines(file)) for file in files]
    if task == "mt":
        aligned(texts, files)
        sides = [([line for line in text if line.strip()], file) for text, file in zip(texts, files, strict=True)]
    else:
        sides = [([line for text in texts for line in text if line.strip()], files[0])]
    if not sides[-1][0]:
        raise DataError(f"{files[-1]} has no text", hint="use a file with one sentence per line")
    return sides


def _quoted(text: str) -> str:
    """A string as YAML would write it on one line."""
    return yaml.safe_dump(text, allow_unicode=True, width=10**6, default_style='"').strip()


def examine(lines: Sequence[str], file: str | Path) -> TextFacts:
    """Size and guesses from the non-empty lines of a text.

    >>> facts = examine(["Das ist nicht der Hund.", "Und die Katze, ist das eine?"], "text.txt")
    >>> facts.tokenization, facts.language
    ('moses', 'de')
    """
    sample = list(islice(lines, SAMPLE))
    tokenization, why = guess_tokenization(sample)
    words = sum(len(line.split()) for line in lines)
    return TextFacts(len(lines), words, tokenization, why, language_in(file) or guess_language(sample) or "en")


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
