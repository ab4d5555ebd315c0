"""The mixture of a network and an n-gram model of the same text, mixed at test time.

    p(y | x) = (1 - weight) q(y | x) + weight p~(y | h)

q is the network, which reads the whole sentence before y; p~ the n-gram model, which reads the last n-1 words h. One
weight is used for all positions; expectation-maximization finds the best one on validation text. Scoring text needs two
numbers per token and no whole rows; `log_rows` and the logits processor give whole rows, which sum to one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.hf.perplexity import Floats, SentenceScores, evaluating, score_sentences
from lidstone.ngram.formats.validate import check_normalised
from lidstone.text.datasets import Ids
from lidstone.text.history import histories_of, history_after, recent

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LogitsProcessorList

    from lidstone.hf.ngram_module import FollowedRows
    from lidstone.ngram.table import BackoffTable

ROUNDS, CLOSE = 1000, 1e-7


class ThreeScores(NamedTuple):
    """The same sentences under the network, the n-gram model and their mixture."""

    network: SentenceScores
    ngram: SentenceScores
    mixture: SentenceScores


def mixture_weight(network: Floats, ngram: Floats) -> float:
    """The weight of the n-gram model that makes a text most probable, by expectation-maximization.

    Both are negative log-likelihoods of the same tokens. Each round sets the weight to the mean posterior probability
    that a token came from the n-gram model; the likelihood is concave in the weight, so there is one maximum.

    >>> one_each = np.log([2.0, 4.0]), np.log([4.0, 2.0])      # each model is the better one for one of two tokens
    >>> round(mixture_weight(*one_each), 6)
    0.5
    """
    if len(network) != len(ngram) or not len(network):
        raise InputError(
            f"{len(network)} scores of the network and {len(ngram)} of the n-gram model cannot be mixed",
            hint="score the same tokens with both",
        )
    ratio = np.exp(np.clip(ngram - network, -700, 700))  # q / p~
    weight = 0.5
    for _ in range(ROUNDS):
        before, weight = weight, float((weight / (weight + (1 - weight) * ratio)).mean())
        if abs(weight - before) < CLOSE:
            break
    return weight


def mixed_nll(network: Floats, ngram: Floats, weight: float) -> Floats:
    """Negative log-likelihoods of the mixture.

    >>> np.exp(-mixed_nll(np.log([2.0]), np.log([4.0]), weight=0.5)).tolist()      # (1/2 + 1/4) / 2
    [0.375]
    """
    with np.errstate(divide="ignore"):
        found: Floats = -np.logaddexp(np.log1p(-weight) - network, np.log(weight) - ngram)
        return found


def mix_scores(network: SentenceScores, ngram: Floats, weight: float) -> ThreeScores:
    """The three scores of sentences whose tokens were scored by both models."""
    assert network.token_nll is not None
    mixed = mixed_nll(network.token_nll, ngram, weight)
    return ThreeScores(network, *(_by_sentence(values, network.lengths) for values in (ngram, mixed)))


@dataclass(frozen=True)
class Process:
    """A logits processor that calls a function: `generate` looks at its parameters, which takes long for a method."""

    function: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: D102
        return self.function(input_ids, scores)


@dataclass(frozen=True, eq=False)
class Mixture:
    """A causal language model and an n-gram table over the same vocabulary, mixed with one weight.

    `fit` finds the weight by EM on sentences of ids, `logits_processor()` is for `generate`.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> from lidstone import Vocabulary, WittenBell, count
    >>> class Uniform(torch.nn.Linear):
    ...     def forward(self, input_ids, **_):
    ...         return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 3))
    >>> table = WittenBell().fit(count([[1, 2]] * 9, Vocabulary(size=3, eos=0), order=2))
    >>> mixture = Mixture(Uniform(1, 1), table).fit([[1, 2]])
    >>> scores = mixture.score([[1, 2]])
    >>> round(scores.network.perplexity, 3), scores.mixture.perplexity < 2
    (3.0, True)
    """

    model: Any
    """a torch module whose output has `.logits`, such as a causal model of transformers"""
    table: BackoffTable
    weight: float = 0.5
    """of the n-gram model, from 0 to 1"""
    limit: int | None = None
    """the longest row that the model reads when it scores; by default the longest it was trained on"""
    allow_unnormalised: bool = False
    """a table whose probabilities do not sum to one within 1% is refused otherwise"""

    def __post_init__(self) -> None:
        if not hasattr(self.table, "token_logprobs"):
            raise InputError(f"a mixture needs a table, not {type(self.table).__name__}", hint="fit a smoother first")
        if not 0 <= self.weight <= 1:
            raise InputError(f"the weight of a mixture is {self.weight}", hint="give a weight from 0 to 1, or call fit")
        if not self.allow_unnormalised:
            check_normalised(self.table, limit=0.01)

    def fit(self, valid: Sequence[Ids]) -> Mixture:
        """The same mixture with the weight that fits sentences of validation text best; ids without eos."""
        network, ngram = self._token_scores(valid)
        assert network.token_nll is not None
        if not np.isfinite(network.token_nll).all():
            raise InputError("the network's scores are not finite", hint="check its weights for NaN")
        return replace(self, weight=mixture_weight(network.token_nll, ngram))

    def score(self, sentences: Sequence[Ids]) -> ThreeScores:
        """Score sentences of ids, given without eos, under the network, the n-gram model and the mixture."""
        return mix_scores(*self._token_scores(sentences), self.weight)

    def log_rows(self, input_ids: Tensor) -> Tensor:
        """Log of the mixed distribution after every position of `input_ids` (batch, time): (batch, time, V) float64."""
        import torch

        with evaluating(self.model):
            logits = self.model(input_ids=input_ids).logits
            self._check_size(logits.shape[-1])
            vocab, order = self.table.vocab, self.table.order
            rows = [histories_of([vocab.bos, *row], vocab, order)[1:] for row in input_ids.tolist()]
            histories = [history for row in rows for history in row]
            network = torch.log_softmax(logits.double(), -1)
            ngram = torch.from_numpy(self.table.prob(histories)).to(logits.device).log().view(logits.shape)
            share = torch.tensor([1 - self.weight, self.weight], dtype=torch.float64, device=logits.device).log()
            return torch.logaddexp(network + share[0], ngram + share[1])

    def logits_processor(self) -> LogitsProcessorList:
        """For `model.generate(logits_processor=...)`: each step draws from the mixture."""
        from transformers import LogitsProcessorList

        return LogitsProcessorList([Process(self.process)])

    def process(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits of the next token (batch, V) as logarithms of the mixed probabilities, in the type of `scores`.

        Words that are masked in `scores`, with -inf, stay so; the others share the probability.
        """
        self._check_size(scores.shape[-1])
        network = scores.softmax(-1) if scores.dtype.itemsize > 4 else scores.float().softmax(-1)
        mixed = network.lerp(self._rows.probs(input_ids).to(network.dtype), self.weight)
        mixed = mixed.masked_fill_(scores.isneginf(), 0.0)
        return mixed.div_(mixed.sum(-1, keepdim=True)).log_().to(scores.dtype)

    def history(self, tokens: Sequence[int]) -> list[int]:
        """The n-gram model's history after these tokens: the last n-1, not beyond a sentence start.

        The first token of a row begins a sentence, whether eos stands before it or not.
        """
        return list(
            history_after([self.table.vocab.bos, *recent(tokens, self.table.order)], self.table.vocab, self.table.order)
        )

    def _token_scores(self, sentences: Sequence[Ids]) -> tuple[SentenceScores, Floats]:
        eos = self.table.vocab.eos
        if eos is None:
            raise InputError("a mixture needs a vocabulary with eos", hint="make the vocabulary with eos=")
        config = getattr(self.model, "config", None)
        self._check_size(getattr(config, "vocab_size", self.table.vocab.size))
        checked = [self._words(sentence, number) for number, sentence in enumerate(sentences, start=1)]
        network = score_sentences(self.model, checked, eos=eos, limit=self.limit)
        return network, ngram_nll(self.table, checked)

    def _words(self, sentence: Ids, number: int) -> NDArray[np.int64]:
        """The ids of a sentence, if each of them is a word."""
        if np.ndim(sentence) != 1:
            raise InputError(f"sentence {number} is not a list of ids", hint="pass a list of sentences")
        ids = self.table.vocab.check_ids(sentence) if len(sentence) else np.empty(0, np.int64)
        no_word = self.table.vocab.boundaries[ids]
        if no_word.any():
            token = ids[no_word][0]
            raise InputError(
                f"sentence {number} has the id {token}, which is no word", hint="leave out bos, eos and pad"
            )
        return ids

    @cached_property
    def _rows(self) -> FollowedRows:
        from lidstone.hf.ngram_module import FollowedRows

        return FollowedRows(self.table)

    def _check_size(self, size: int) -> None:
        if size != self.table.vocab.size:
            raise VocabularyMismatch(
                f"the table has {self.table.vocab.size} ids, the model {size}",
                hint="count and fit with the model's own tokenizer",
            )


def ngram_nll(table: BackoffTable, sentences: Sequence[Ids]) -> Floats:
    """Negative log-likelihood of every token under an n-gram model; ids without eos, whose end is scored too."""
    end = np.array([table.vocab.eos], dtype=np.int64)
    stream = np.concatenate([part for sentence in sentences for part in (np.asarray(sentence), end)])
    return -table.token_logprobs(stream)


def _by_sentence(values: Floats, lengths: NDArray[np.int64]) -> SentenceScores:
    starts = np.cumsum(lengths) - lengths
    return SentenceScores(np.add.reduceat(values, starts), lengths, values)
