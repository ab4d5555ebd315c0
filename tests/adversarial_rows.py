"""Rows on which code that looks for histories goes wrong, for every such code to be tried on; see test_history.

    TRITON_INTERPRET=1 python -m tests.adversarial_rows

prints the nodes that the Triton programs find, as JSON.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from lidstone.loss.kernels.protocol import using
from lidstone.loss.targets import Targets
from lidstone.ngram.counts import Counts, count
from lidstone.ngram.smoothers.witten_bell import WittenBell
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary

ORDERS = range(1, 9)
VOCABULARIES = {
    "pad": Vocabulary(size=8, eos=1, unpredictable=(0,)),
    "bos is eos": Vocabulary(size=8, eos=0),  # as GPT-2 has it: one id begins and ends a text
    "many specials": Vocabulary(size=8, eos=7, unpredictable=(0, 1, 6)),
    "eos is the last id": Vocabulary(size=8, eos=7),
}
WORDS = (2, 3, 4)  # 5 is a word that the text does not have
TIME = 12


def rows(vocab: Vocabulary) -> list[list[int]]:
    """The tokens before each position, negative where unknown; (batch, TIME)."""
    eos, bos = vocab.eos, vocab.bos
    special = vocab.unpredictable[0] if vocab.unpredictable else eos
    made = [
        [bos, 2, 3, 2, 3, 4, 2, 2, 3, 2, 3, 4],  # one sentence from its start
        [2, 3, 2, 3, 4, 2, 2, 3, 2, 3, 4, 2],  # the middle of one: nothing is known before the row
        [eos, 2, 3, eos, 2, 3, 2, eos, eos, 4, eos, 2],  # a packed stream, with an empty sentence
        [bos] * TIME,
        [eos] * TIME,
        [special, special, 2, 3, special, 2, 2, special, eos, special, 3, 3],  # padding inside and at the start
        [eos, bos, special, 2, bos, eos, 3, special, bos, 2, 3, 4],  # boundaries next to each other
        [2, -100, 3, 2, -100, -100, 4, 2, 3, 2, 3, -100],  # masked labels as history
        [-1] * TIME,
        [bos, -1, 2, 3, eos, -1, bos, 2, -1, eos, 2, 3],  # unknown tokens beside boundaries
        [bos, 2, 5, 3, 2, 5, 5, 2, 3, 4, 5, 2],  # a word without n-grams
        [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4],  # a history that is longer than any in the text
    ]
    draw = random.Random(0)
    made += [[draw.choice((2, 2, 3, 4, eos, special, -1, bos)) for _ in range(TIME)] for _ in range(6)]
    return [row for row in made if len(row) == TIME]


def text(vocab: Vocabulary) -> list[list[int]]:
    """Sentences of few words, so that long histories are often known."""
    draw = random.Random(1)
    return [[draw.choice(WORDS) for _ in range(draw.randint(0, 9))] for _ in range(150)]


@cache
def fitted(name: str, order: int) -> tuple[BackoffTable, Counts]:
    """A table of the text and its counts."""
    counts = count(text(VOCABULARIES[name]), VOCABULARIES[name], order)
    return WittenBell().fit(counts), counts


def kernel_nodes(kernels: str, name: str, order: int, contexts: Sequence[Sequence[int]]) -> list[int]:
    """The nodes that the kernels of the loss find for contexts (batch, time)."""
    targets = Targets(fitted(name, order)[0], None, "token")
    given = torch.tensor(contexts, dtype=torch.int64).reshape(len(contexts), -1)
    with using(kernels):
        found: list[int] = targets.histories(given)[0].tolist()
    return found


def main() -> None:
    warnings.filterwarnings("ignore", category=RuntimeWarning)  # numpy's, in the interpreter
    found: dict[str, Any] = {
        f"{name} {order}": kernel_nodes("triton", name, order, rows(vocab))
        for name, vocab in VOCABULARIES.items()
        for order in ORDERS
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
