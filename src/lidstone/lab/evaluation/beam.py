"""Beam search over batches of sentences, by `generate` of transformers.

Every sentence has its own limit on the length of its translation, so the result does not depend on what else is in the
batch. Ids that are never predicted (padding, unused rows) are excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from lidstone.errors import InputError
from lidstone.hf.inference import evaluating
from lidstone.section import Positive, Section
from lidstone.text.sequences import Ids, length_batches, padded

if TYPE_CHECKING:
    from torch import Tensor

    from lidstone.text.vocabulary import Vocabulary


class Beam(Section):
    """How translations are searched: part of the section `evaluation` of a recipe.

    >>> Beam().limit(20)
    34
    """

    beam: Positive = 5
    """Hypotheses kept at each step; 1 is greedy search."""
    length_penalty: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Scores are divided by length to this power."""
    max_length_factor: Annotated[float, Field(ge=0)] = 1.2
    """A translation has at most factor x source length + extra tokens."""
    max_length_extra: Annotated[int, Field(ge=0)] = 10
    """See max_length_factor."""
    batch_size: Positive = 64
    """Sentences searched together."""

    def limit(self, source_length: int) -> int:
        """The largest number of tokens in a translation of a source of this length, at least one."""
        return max(1, int(self.max_length_factor * source_length) + self.max_length_extra)


def translate_ids(
    model: Any,
    sources: Sequence[Ids],
    vocab: Vocabulary,
    beam: Beam,
    *,
    source_eos: int | None = None,
    advance: Callable[[float], None] = lambda amount: None,
) -> list[list[int]]:
    """Translate sources, given without eos, in batches of similar length; the results have neither start nor eos."""
    eos = vocab.eos if source_eos is None else source_eos
    check_source_lengths(sources, model)
    found: list[list[int]] = [[] for _ in sources]
    for batch in length_batches([len(source) for source in sources], size=beam.batch_size):
        rows = _generate(model, [sources[i] for i in batch], vocab, beam, eos)
        for number, row in zip(batch, rows, strict=True):
            found[number] = row
        advance(len(batch))
    return found


def _generate(model: Any, sources: Sequence[Ids], vocab: Vocabulary, beam: Beam, eos: int) -> list[list[int]]:
    import torch

    device, pad = next(model.parameters()).device, model.config.pad_token_id
    longest = model.config.max_position_embeddings - 1
    limits = [min(beam.limit(len(source) + 1), longest) for source in sources]
    with evaluating(model):
        output = model.generate(
            input_ids=torch.from_numpy(padded([np.append(source, eos) for source in sources], pad)).to(device),
            attention_mask=torch.from_numpy(padded([np.ones(len(s) + 1, np.int64) for s in sources], 0)).to(device),
            num_beams=beam.beam,
            do_sample=False,
            length_penalty=beam.length_penalty,
            early_stopping=beam.beam > 1 or None,
            max_new_tokens=max(limits),
            suppress_tokens=list(vocab.unpredictable) or None,
            logits_processor=[_OwnLimit(limits, beam.beam, vocab.eos)],
        )
    return [_until_eos(row, vocab.eos) for row in output[:, 1:].tolist()]


class _OwnLimit:
    """Allow nothing but eos once a sentence has as many tokens as its own limit."""

    def __init__(self, limits: Sequence[int], beams: int, eos: int) -> None:
        import torch

        self.limits = torch.tensor(limits).repeat_interleave(beams)  # one per hypothesis
        self.eos = eos

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        over = (self.limits.to(scores.device) <= input_ids.shape[1])[:, None]  # the first token is the start
        end = scores[:, self.eos].clone()
        scores = scores.masked_fill(over, float("-inf"))
        scores[:, self.eos] = end
        return scores


def _until_eos(row: list[int], eos: int) -> list[int]:
    return row[: row.index(eos)] if eos in row else row


def check_source_lengths(sources: Sequence[Ids], model: Any, first: int = 1) -> None:
    """Raise an error for a source that is longer than the model reads; `first` is the number of the first one."""
    longest = model.config.max_position_embeddings
    for number, source in enumerate(sources, first):
        if len(source) + 1 > longest:
            raise InputError(
                f"sentence {number} has {len(source) + 1} tokens, but the model reads at most {longest}",
                hint="split the sentence, or train with a larger model.max_positions",
            )
