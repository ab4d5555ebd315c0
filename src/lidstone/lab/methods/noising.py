"""Data noising as smoothing (Xie et al. 2017): a baseline that changes what the network reads, not its loss.

In training, each input token x is replaced with probability gamma(x); at evaluation nothing is.

    scheme       gamma(x)                   the input becomes       the target
    blank        gamma0                     a blank                 stays            (like interpolation)
    unigram      gamma0                     a draw from c(x)        stays            (like interpolation)
    kneser-ney   gamma0 N1+(x .) / c(x)     a draw from N1+(. x)    becomes another draw from N1+(. x)

c(x) counts x as a history, N1+(x .) the distinct words after it, N1+(. x) those before it. The sentence start is never
replaced and never drawn as an input. The blank is an id that an input has nowhere else. Draws come from
torch's own generator, which checkpoints keep: a resumed training sees the same noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lidstone.errors import InputError
from lidstone.lab.methods.base import BatchChange, Regularizer, StrengthMethod, TrainingText
from lidstone.ngram.counts import Counts
from lidstone.text.datasets import IGNORED

if TYPE_CHECKING:
    from lidstone.text.vocabulary import Vocabulary

Scheme = Literal["blank", "unigram", "kneser-ney"]
_INPUTS = ("decoder_input_ids", "input_ids")  # a translation model's source stays as it is
_LABELS = ("labels", "shift_labels")


class NoisingMethod(StrengthMethod):
    """Plain cross-entropy on noised batches."""

    kind = "noising"

    def check(self, settings: Regularizer) -> None:
        super().check(settings)
        if not 0 <= (settings.gamma or 0) <= 1:
            raise ValueError(f"gamma is {settings.gamma}, but noising needs a probability from 0 to 1")

    def batch_change(self, settings: Regularizer, text: TrainingText, model: Any) -> BatchChange:
        blank = blank_id(text.vocab, model.config.pad_token_id) if settings.noise == "blank" else 0
        return Noising(text.count(2), gamma=settings.strengths[0], scheme=settings.noise, blank=blank)

    def describe(self, settings: Regularizer) -> dict[str, Any]:
        return super().describe(settings) | {"parameters": {**settings.parameters, "noise": settings.noise}}


class Noising:
    """Replaces tokens of training batches; the counts are bigram counts of the training text.

    >>> from lidstone.ngram.counts import count
    >>> from lidstone.text.vocabulary import Vocabulary
    >>> counts = count([[3, 4], [3, 5], [3, 4]], Vocabulary(size=6, eos=2, unpredictable=(0, 1)), order=2)
    >>> noising = Noising(counts, gamma=0.6, scheme="kneser-ney", blank=1)
    >>> [round(noising.rates[word].item(), 4) for word in (3, 4)]    # after 3 come 4, 5, 4; after 4 twice eos
    [0.4, 0.3]
    """

    def __init__(self, counts: Counts, *, gamma: float, scheme: Scheme, blank: int) -> None:
        if not 0 <= gamma <= 1:
            raise InputError(f"the strength of noising is {gamma}", hint="it is a probability: use 0 <= gamma <= 1")
        if scheme not in get_args(Scheme):
            raise InputError(f"there is no scheme {scheme!r} of noising", hint=f"use {', '.join(get_args(Scheme))}")
        if counts.order < 2:
            raise InputError("noising needs bigram counts", hint="count with order=2")
        self.gamma, self.scheme, self.blank = gamma, scheme, blank
        rates, draws = _rates(counts, gamma, scheme), _proposal(counts, scheme)
        words = ~counts.vocab.boundaries[:-1]
        self.rates = torch.from_numpy(np.where(words, rates, 0.0))  # (V,)
        self.input_draws = torch.from_numpy(np.where(words, draws, 0.0))
        self.target_draws = torch.from_numpy(draws)

    @property
    def signature(self) -> dict[str, Any]:
        """Everything that determines the noise, except the random draws."""
        return {"noising": self.scheme, "gamma": self.gamma}

    def __call__(self, batch: Mapping[str, Any], strength: float = 1.0) -> dict[str, Any]:
        """The batch with noise; `strength` is a factor on the probabilities, for schedules."""
        name = next(name for name in _INPUTS if batch.get(name) is not None)
        tokens: Tensor = batch[name]
        replaced = torch.rand(tokens.shape, dtype=torch.float64) < strength * self.rates[tokens.cpu()]
        replaced = replaced.to(tokens.device)
        noised = {name: torch.where(replaced, self._inputs(tokens), tokens)}
        if self.scheme == "kneser-ney":
            noised |= self._targets(batch, replaced)
        return {**batch, **noised}

    def _inputs(self, tokens: Tensor) -> Tensor:
        if self.scheme == "blank":
            return torch.full_like(tokens, self.blank)
        return _draw(self.input_draws, tokens)

    def _targets(self, batch: Mapping[str, Any], replaced: Tensor) -> dict[str, Tensor]:
        """Replace labels: they are at the positions of the inputs that predict them, so one mask applies to both."""
        names = [name for name in _LABELS if batch.get(name) is not None]
        drawn = _draw(self.target_draws, batch[names[0]])
        return {name: torch.where(replaced & (batch[name] != IGNORED), drawn, batch[name]) for name in names}


def _draw(weights: Tensor, like: Tensor) -> Tensor:
    found = torch.multinomial(weights, like.numel(), replacement=True)
    return found.view(like.shape).to(like.device)


def _rates(counts: Counts, gamma: float, scheme: Scheme) -> NDArray[np.float64]:
    """gamma(x) of each word; (V,)."""
    size = counts.vocab.size
    if scheme != "kneser-ney":
        return np.full(size, gamma)
    followers = np.diff(counts.trie.first[: size + 1])  # N1+(x .): distinct bigrams that begin with x
    return gamma * followers / np.maximum(counts.totals[:size], 1)


def _proposal(counts: Counts, scheme: Scheme) -> NDArray[np.float64]:
    """The distribution of the replacements; (V,), not normalised."""
    size = counts.vocab.size
    if scheme != "kneser-ney":
        return counts.counts[:size].astype(np.float64)
    level = counts.trie.level(2)
    return np.bincount(counts.trie.words[level], minlength=size)[:size].astype(np.float64)


def blank_id(vocab: Vocabulary, pad: int | None) -> int:
    """An id that inputs do not have otherwise, and whose embedding is trained: that of padding is not.

    >>> from lidstone.text.vocabulary import Vocabulary
    >>> blank_id(Vocabulary(size=6, eos=2, unpredictable=(0, 1)), pad=0)
    1
    """
    unused = [token for token in vocab.unpredictable if token != pad]
    if not unused:
        raise InputError("the vocabulary has no id that can be the blank", hint="use noise: unigram or kneser-ney")
    return unused[0]


METHOD = NoisingMethod()
