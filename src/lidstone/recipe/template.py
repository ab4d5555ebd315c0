"""`lidstone init`: look at a user's own text and write a commented recipe to start from."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from lidstone.errors import DataError, RecipeError
from lidstone.files import write_text
from lidstone.recipe.recipe import make_recipe
from lidstone.recipe.yaml import parse_yaml
from lidstone.text.corpora import aligned, read_lines
from lidstone.text.streams import COMPRESSED


@dataclass(frozen=True)
class Size:
    """A network that suits an amount of text, and the training that suits the network."""

    words: float
    """Up to so many words of training text."""
    merges: int
    layers: int
    width: int
    ffn: int
    learning_rate: str
    warmup_steps: int
    accumulation: int
    why: str


SIZES = (
    Size(300_000, 2_000, 2, 128, 512, "2e-3", 100, 1, "little text: a small network, minutes on two CPU cores"),
    Size(3_000_000, 8_000, 4, 256, 1024, "1e-3", 500, 1, "some text: a middling network, a GPU is a help"),
    Size(float("inf"), 16_000, 6, 512, 2048, "5e-4", 4000, 4, "the paper's network: needs a GPU"),
)


def write_recipe(
    task: str, files: Sequence[str], output: str | Path, *, name: str | None = None, force: bool = False
) -> Path:
    """Write a recipe for these files; it is checked before it is written."""
    path = Path(output)
    if path.exists() and not force:
        raise RecipeError(f"{path} exists already", hint="choose another --output, or --force to replace it")
    write_text(path, recipe_text(task, files, folder=path.parent, name=name or path.stem))
    return path


def recipe_text(task: str, files: Sequence[str], *, folder: Path | None = None, name: str = "mine") -> str:
    """The YAML of a recipe: for `mt` the two files are source and target; paths are relative to `folder`."""
    if task not in ("lm", "mt"):
        raise RecipeError(f"there is no task {task!r}", hint="give lm or mt")
    samples, words = _measure(task, files)
    size = next(size for size in SIZES if words <= size.words)
    places = [os.path.relpath(file, folder or Path()) for file in files]
    text = "\n".join(
        [
            _head(task, name, samples, words, size),
            _corpus(task, places, files),
            _network(task, size),
            METHODS,
            _training(task, size),
        ]
    )
    make_recipe(parse_yaml(text), origin="the new recipe")
    return text


def _measure(task: str, files: Sequence[str]) -> tuple[int, int]:
    """Samples and words of the training text; files that cannot be used are refused now rather than later."""
    if task == "mt" and len(files) != 2:
        raise RecipeError(f"translation needs two files, not {len(files)}", hint="give SOURCE and TARGET")
    if not files:
        raise RecipeError("no text given", hint="give one or more text files")
    texts = [list(read_lines(file)) for file in files]
    if task == "mt":
        aligned(texts, files)
    counted = texts[-1:] if task == "mt" else texts
    lines = [line for text in counted for line in text if line.strip()]
    if not lines:
        raise DataError(f"{files[-1]} has no text", hint="give a file with one sentence a line")
    return len(lines), sum(len(line.split()) for line in lines)


def _head(task: str, name: str, samples: int, words: int, size: Size) -> str:
    kind = "a language model" if task == "lm" else "a translation model"
    return f"""\
# A recipe for {kind} on your own text: {samples:,} samples, {words:,} words.
# Start it with: lidstone train THIS_FILE
# Every key is explained in docs/recipes.md; --set key.sub=value changes one for a single run.
# Chosen for the amount of text: {size.why}.
task: {task}
name: {_quoted(name)}
"""


def _corpus(task: str, places: Sequence[str], files: Sequence[str]) -> str:
    if task == "lm":
        listed = "".join(f"\n    - {_quoted(place)}" for place in places)
        return f"""\
corpus:
  train:                          # paths are relative to this file; several files are read one after the other{listed}
  # valid: FILE                   # without these two, every ninth and tenth block of ten lines is held out
  # test: FILE
  lowercase: false
  tokenization: none              # moses: split off punctuation, for running text
  # fraction: 0.1                 # use a part only, to try things out
"""
    source, target = (Path(file).suffixes for file in files)
    languages = [_language(suffixes, default) for suffixes, default in ((source, "de"), (target, "en"))]
    return f"""\
corpus:
  train:                          # paths are relative to this file; line n of one translates line n of the other
    source: {_quoted(places[0])}
    target: {_quoted(places[1])}
  # valid: {{source: FILE, target: FILE}}   # without these two, every ninth and tenth block of ten pairs is held out
  # test: {{source: FILE, target: FILE}}
  source_language: {_quoted(languages[0])}          # language codes, for Moses
  target_language: {_quoted(languages[1])}
  tokenization: moses             # done: if your files are tokenized already
  lowercase: false
  max_length: 175                 # as fairseq's script for IWSLT-14
  max_ratio: 1.5                  # the same
"""


def _network(task: str, size: Size) -> str:
    kind = "transformer-lm" if task == "lm" else "transformer-mt"
    ffn = size.ffn if task == "lm" else size.ffn // 2
    return f"""\
tokenizer:
  kind: bpe                       # word: split at spaces only
  merges: {size.merges}

model:
  kind: {kind}            # auto, with checkpoint: FOLDER, continues a Hugging Face causal model
  layers: {size.layers}
  width: {size.width}
  heads: 4
  ffn: {ffn}
  dropout: {0.1 if task == "lm" else 0.3}                    # the paper's
  max_positions: 512
"""


METHODS = """\
regularizer:                      # for all methods below
  order: 2                        # n-grams of this length; the paper uses 2, try 3
  form: exact                     # the signed identity; published: as the paper prints it
  empirical: token

methods:                          # what is compared; delete what you do not need
  - {name: none}
  - {kind: label_smoothing, gamma: 0.1}
  - {smoother: kneser-essen-ney, gamma: 0.25}
  - {smoother: jelinek-mercer, parameters: {weights: 0.75}, gamma: 0.25}
"""


def _training(task: str, size: Size) -> str:
    block = "\n  block_length: 128               # tokens read at a time" if task == "lm" else ""
    return f"""\
training:
  epochs: 30                      # at most: patience ends it earlier
  max_steps: null
  batch_tokens: {2048 if task == "lm" else 4096}
  accumulation: {size.accumulation}
  learning_rate: {size.learning_rate}
  warmup_steps: {size.warmup_steps}
  clip: 1.0{block}
  patience: 3                     # evaluations without a better validation score
  seed: 1

evaluation:
  metric: {"perplexity" if task == "lm" else "bleu"}

sweep:                            # lidstone sweep THIS_FILE
  axes:
    regularizer.gamma: [0.1, 0.25, 0.5]
  seeds: [1, 2, 3]
"""


def _language(suffixes: Sequence[str], default: str) -> str:
    """The language code in a file name such as train.de or train.de.gz."""
    codes = [suffix[1:] for suffix in suffixes if re.fullmatch(r"\.[a-z]{2}", suffix) and suffix not in COMPRESSED]
    return codes[-1] if codes else default


def _quoted(text: str) -> str:
    """A string as YAML would write it on one line."""
    return yaml.safe_dump(text, allow_unicode=True, width=10**6, default_style='"').strip()
