"""How well the probabilities of a network are calibrated, and its perplexity after one temperature.

A perplexity mixes what a network knows with how sure it is. Dividing all logits by one temperature T, fitted on
validation text, changes only the second:

    q_T(w | x) = softmax(z / T)(w)

The log-likelihood is concave in 1/T, so Newton's method finds the best T in a few passes over the text. Beside the
perplexity at T stand two measures of the probabilities, before and after:

    ece      expected calibration error: |share of right first guesses - mean probability of the first guess|, in 15
             bins of that probability, weighted by the number of tokens in a bin
    brier    mean of sum_w (q(w) - [w is the token])^2, from 0 to 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.hf.perplexity import Inputs, logits_of, perplexity_of
from lidstone.text.datasets import IGNORED

if TYPE_CHECKING:
    from torch import Tensor

Batches = Callable[[], Iterable[tuple[Any, Inputs, NDArray[np.int64]]]]
"""Makes the batches of a text: `text_batches` or `pair_batches` with their arguments."""
BINS, ROUNDS, CLOSE = 15, 12, 1e-4
BLOCK = 1 << 22
"""of float64 logits at a time"""
LOWEST, HIGHEST = 0.1, 10.0
"""of a temperature"""


@dataclass(frozen=True)
class Calibration:
    """The measures of one text."""

    perplexity: float
    ece: float
    brier: float

    def to_dict(self) -> dict[str, float]:
        """The measures by name, for JSON."""
        return asdict(self)


def fit_temperature(model: Any, batches: Batches) -> float:
    """The temperature at which a text is most probable, from 0.1 to 10, by Newton's method in 1/T."""
    inverse = 1.0
    for _ in range(ROUNDS):
        slope, curvature = np.sum(_of_tokens(model, batches, inverse, _slopes), axis=0)
        if not np.isfinite([slope, curvature]).all():
            raise InputError("the network's logits are not finite", hint="check its weights for NaN")
        newton = inverse - slope / curvature if curvature > 0 else inverse
        before, least, most = inverse, max(inverse / 2, 1 / HIGHEST), min(inverse * 2, 1 / LOWEST)
        inverse = float(np.clip(newton, least, most))
        if abs(inverse - before) < CLOSE * before:
            break
    return 1 / inverse


def calibration(model: Any, batches: Batches, temperature: float = 1.0) -> Calibration:
    """Perplexity, calibration error and Brier score of a text at a temperature."""
    parts = _of_tokens(model, batches, 1 / temperature, _measures)
    nll, brier, confidence, right = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Calibration(perplexity_of(float(nll.mean())), calibration_error(confidence, right), float(brier.mean()))


def calibration_error(confidence: NDArray[np.float64], right: NDArray[np.float64], bins: int = BINS) -> float:
    """The expected calibration error of first guesses with these probabilities, of which some were right.

    >>> calibration_error(np.array([0.9, 0.9, 0.3, 0.3]), np.array([1.0, 0.0, 0.0, 0.0]))  # (|.5-.9| + |0-.3|) / 2
    0.35
    """
    number = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(number, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def _of_tokens(model: Any, batches: Batches, inverse: float, measure: Callable[..., Any]) -> list[Any]:
    """A measure of the tokens of a text, block by block, from logits, scaled log-probabilities and labels."""
    import torch

    found = []
    with torch.inference_mode():
        for _, inputs, labels in batches():
            gold = torch.from_numpy(labels)
            logits, wanted = logits_of(model, inputs).cpu()[gold != IGNORED], gold[gold != IGNORED]
            rows = max(1, BLOCK // logits.shape[-1])
            for block, words in zip(torch.split(logits, rows), torch.split(wanted, rows), strict=True):
                exact = block.double()
                found.append(measure(exact, (exact * inverse).log_softmax(-1), words))
    if not found:
        raise InputError("there are no sentences to score", hint="pass a text that is not empty")
    return found


def _slopes(logits: Tensor, logprobs: Tensor, gold: Tensor) -> tuple[float, float]:
    """First and second derivative in 1/T of the negative log-likelihood: E[z] - z_y, and the variance of z, summed."""
    q = logprobs.exp()
    finite = logits.masked_fill(logits.isneginf(), 0)  # a masked word has probability 0
    mean = (q * finite).sum(-1)
    variance = (q * finite.square()).sum(-1) - mean.square()
    return float((mean - finite.gather(-1, gold[:, None])[:, 0]).sum()), float(variance.sum())


def _measures(logits: Tensor, logprobs: Tensor, gold: Tensor) -> tuple[NDArray[np.float64], ...]:
    """Of each token: negative log-likelihood, Brier score, probability of the first guess, and whether it is right."""
    q = logprobs.exp()
    nll = -logprobs.gather(-1, gold[:, None])[:, 0]
    confidence, guess = q.max(-1)
    brier = q.square().sum(-1) - 2 * (-nll).exp() + 1
    return nll.numpy(), brier.numpy(), confidence.numpy(), (guess == gold).double().numpy()
