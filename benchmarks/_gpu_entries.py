"""How many n-grams of a table are listed under a position's history, measured on real text for several vocabularies.

The text is all English and German of the corpora here: WikiText-2, IWSLT-14, Multi30k and Tatoeba, about 7 million
words. A vocabulary of size V has its most frequent words; all others are `<unk>`, a frequent word with many followers.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lidstone as ld
from lidstone.loss.targets import Targets
from lidstone.ngram.counts import count
from lidstone.text.reader import read_lines

FOLDER = Path(os.environ.get("LIDSTONE_DATA", str(Path(__file__).parents[2] / "shared" / "data")))
TEXT = "WikiText-2, IWSLT-14, Multi30k and Tatoeba, English and German"
FILES = (
    "wikitext-2/wiki.train.tokens.xz",
    *(f"iwslt14-de-en/train.subset.{language}.xz" for language in ("en", "de")),
    *(f"multi30k-de-en/train.{language}.gz" for language in ("en", "de")),
    "tatoeba-de-en/deu-eng.2018-05-13.tsv.xz",
)
BLOCKS, LENGTH = 16, 4_096  # positions at which lists are measured: so many blocks, spread evenly over the text


def lines_of_text() -> Iterator[str]:
    """The lines of all files; a row of Tatoeba has a sentence of each language."""
    for name in FILES:
        if not (FOLDER / name).exists():
            sys.exit(f"error: {FOLDER / name} is not here\nhint: set LIDSTONE_DATA to the folder with the corpora")
        for line in read_lines(FOLDER / name):
            yield from (part for part in line.split("\t")[-2:] if part.strip())


def entries_by_vocabulary(sizes: tuple[int, ...], orders: tuple[int, ...] = (2, 3, 4)) -> dict[str, Any]:
    """For each vocabulary: tokens of the text, the share of `<unk>`, and the n-grams per position of each order."""
    lines = [line.split() for line in lines_of_text()]
    counts = Counter(word for line in lines for word in line)
    ranks = {word: rank for rank, (word, _) in enumerate(counts.most_common())}
    stream = np.array([rank for line in lines for rank in (*(ranks[word] for word in line), -1)], np.int64)
    found = {}
    for size in sizes:
        vocab = ld.Vocabulary(size=size, eos=0, unk=1)
        ids = np.where(stream < size - 2, stream + 2, vocab.unk).astype(np.int32)
        ids[stream < 0] = vocab.eos
        lists = {str(order): entries_per_position(ids, vocab, order) for order in orders}
        found[str(size)] = {"tokens": len(ids), "unknown": float((ids == vocab.unk).mean()), "orders": lists}
        print(f"V = {size:,}:", found[str(size)], flush=True)
    return found


def entries_per_position(ids: np.ndarray, vocab: ld.Vocabulary, order: int) -> dict[str, float]:
    """N-grams under each position's history and its suffixes: mean and median."""
    targets = Targets(ld.WittenBell().fit(count(ids, vocab, order)), None, "token")
    starts = np.linspace(0, len(ids) - LENGTH, BLOCKS).astype(np.int64)
    blocks = torch.from_numpy(np.stack([ids[start : start + LENGTH] for start in starts]).astype(np.int64))
    states, _ = targets.histories(blocks)
    widths = torch.cat([targets.table.first.diff(), torch.zeros(1, dtype=torch.int32)])
    total = torch.zeros(len(states), dtype=torch.int64)
    for _ in range(order - 1):
        total += widths[states]
        states = targets.table.suffixes[states].long()
    return {"mean": total.double().mean().item(), "median": total.median().item()}
