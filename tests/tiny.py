"""A language and a translation task small enough to train in a second, for tests of the pipelines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from lidstone.lab.recipe.recipe import Recipe, make_recipe

NOUNS = ("haus hund baum fluss kind", "house dog tree river child")
SIX_METHODS = str(Path(__file__).with_name("six_methods.yaml"))
"""a recipe with the rows of the paper's tables"""
ADJECTIVES = ("alte kleine rote", "old small red")


def write_texts(folder: Path, counts: tuple[int, int, int] = (200, 30, 30)) -> dict[str, dict[str, str]]:
    """Parallel sentences by a tiny grammar: paths of each split's two sides."""
    rng = random.Random(7)
    files: dict[str, dict[str, str]] = {}
    for split, count in zip(("train", "valid", "test"), counts, strict=True):
        pairs = [_pair(rng) for _ in range(count)]
        files[split] = {}
        for side, name in ((0, "source"), (1, "target")):
            path = folder / f"{split}.{name}"
            path.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
            files[split][name] = str(path)
    return files


def _pair(rng: random.Random) -> tuple[str, str]:
    nouns, adjectives = ([words.split() for words in part] for part in (NOUNS, ADJECTIVES))
    noun, other, adjective = rng.randrange(5), rng.randrange(5), rng.randrange(3)
    german = f"das {adjectives[0][adjective]} {nouns[0][noun]} sieht das {nouns[0][other]}"
    english = f"the {adjectives[1][adjective]} {nouns[1][noun]} sees the {nouns[1][other]}"
    extra = rng.random() < 0.3
    return german + (" heute" if extra else ""), english + (" today" if extra else "")


def lm_values(files: dict[str, dict[str, str]], **training: Any) -> dict[str, Any]:
    """A language-model recipe as plain values."""
    return {
        "task": "lm",
        "name": "tiny",
        "corpus": {split: sides["target"] for split, sides in files.items()},
        "tokenizer": {"kind": "word"},
        "model": {"layers": 1, "width": 16, "heads": 2, "ffn": 32, "max_positions": 16, "dropout": 0.1},
        "regularizer": {"smoother": "kneser-essen-ney", "parameters": {"discount": 0.5}, "gamma": 0.2},
        "training": _training(**training),
    }


def mt_values(files: dict[str, dict[str, str]], **training: Any) -> dict[str, Any]:
    """A translation recipe as plain values."""
    return {
        "task": "mt",
        "name": "tiny",
        "corpus": dict(files),
        "tokenizer": {"kind": "bpe", "merges": 40},
        "model": {"layers": 1, "width": 16, "heads": 2, "ffn": 32, "max_positions": 32, "dropout": 0.1},
        "regularizer": {"smoother": "add-lambda", "parameters": {"lam": 0.1}, "gamma": 0.1},
        "training": _training(**training),
        "evaluation": {"metric": "bleu", "beam": 2},
    }


def recipe(values: dict[str, Any]) -> Recipe:
    return make_recipe(values)


def _training(**changes: Any) -> dict[str, Any]:
    usual = {
        "epochs": None,
        "max_steps": 12,
        "batch_tokens": 128,
        "accumulation": 1,
        "learning_rate": 0.01,
        "warmup_steps": 2,
        "block_length": None,
        "eval_every": 4,
        "patience": None,
        "threads": 1,
    }
    return usual | changes
