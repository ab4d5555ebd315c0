"""Filter samples and divide them into splits: (source, target) pairs, or (target,) for language models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from lidstone.lab.recipe.sections import Corpus

Sample = tuple[str, ...]


def is_clean(sample: Sample, corpus: Corpus) -> bool:
    """Whether a training sample passes the filters of Moses' clean-corpus-n: lengths and their ratio.

    >>> pair = ("ein Haus", "a very big house")
    >>> is_clean(pair, Corpus()), is_clean(pair, Corpus(max_ratio=1.5)), is_clean(pair, Corpus(max_length=3))
    (True, False, False)
    """
    lengths = [len(text.split(" ")) if text else 0 for text in sample]
    shortest, longest = min(lengths), max(lengths)
    return (
        shortest >= max(corpus.min_length, 1)
        and (corpus.max_length is None or longest <= corpus.max_length)
        and (corpus.max_ratio is None or longest <= corpus.max_ratio * shortest)
    )


def distinct(splits: dict[str, list[Sample]]) -> dict[str, list[Sample]]:
    """Each sample once, in the last split of the dictionary that has it: test before validation before training.

    >>> distinct({"train": [("a",), ("b",), ("b",)], "test": [("a",), ("c",), ("c",)]})
    {'train': [('b',)], 'test': [('a',), ('c',)]}
    """
    seen: set[Sample] = set()
    kept = {}
    for split, samples in reversed(splits.items()):
        fresh = dict.fromkeys(samples)
        kept[split] = [sample for sample in fresh if sample not in seen]
        seen.update(fresh)
    return {split: kept[split] for split in splits}


def every_nth(samples: Sequence[Sample], step: int) -> tuple[list[Sample], list[Sample]]:
    """Split off every `step`-th sample, as fairseq's scripts do for validation.

    >>> every_nth([("a",), ("b",), ("c",), ("d",)], 2)
    ([('a',), ('c',)], [('b',), ('d',)])
    """
    rest = [sample for number, sample in enumerate(samples, 1) if number % step]
    return rest, list(samples[step - 1 :: step])


def evenly(samples: Sequence[Sample], fraction: float, limit: int | None) -> list[Sample]:
    """A share of the samples, evenly spread, and of these the first `limit`.

    >>> evenly([(letter,) for letter in "abcdef"], 0.5, 2)
    [('b',), ('d',)]
    """
    chosen = (
        sample
        for number, sample in enumerate(samples)
        if int((number + 1) * fraction + 1e-9) > int(number * fraction + 1e-9)
    )
    return list(islice(chosen, limit))
