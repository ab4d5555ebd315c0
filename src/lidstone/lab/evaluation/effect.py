"""The size of a difference, with its confidence interval.

A p-value shows whether there is a difference; an `Effect` is its size, with the method of its interval:

    welch-t     difference of two means of independent seeds, Welch's degrees of freedom
    paired-t    mean of paired differences, n - 1 degrees of freedom
    bootstrap   percentiles of the differences over paired resamples
    hierarchical-bootstrap   percentiles over resamples of the seeds of each system and of the sentences of both: how
                             much the difference would change with other seeds and with other text
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lidstone.errors import InputError


@dataclass(frozen=True)
class Effect:
    """A difference, system minus baseline, with its confidence interval."""

    difference: float
    low: float
    high: float
    level: float
    """Of confidence, 0.95 for a 95 % interval."""
    method: str
    """`welch-t`, `paired-t`, `bootstrap` or `hierarchical-bootstrap`; `none` when there are too few values."""

    def reversed(self) -> Effect:
        """The effect with the opposite sign: baseline minus system.

        >>> str(Effect(-2.0, -3.0, -1.0, 0.95, "welch-t").reversed())
        '+2 [+1, +3] (95%, welch-t)'
        """
        return Effect(-self.difference, -self.high, -self.low, self.level, self.method)

    def __str__(self) -> str:
        if self.method == "none":
            return f"{self.difference:+.4g} (no interval: fewer than two values)"
        return f"{self.difference:+.4g} [{self.low:+.4g}, {self.high:+.4g}] ({self.level:.0%}, {self.method})"


def standard_error(values: Sequence[float]) -> float:
    """Give sd / sqrt(n) with n - 1 in the variance, as in the paper; not a number for fewer than two values.

    >>> round(standard_error([1.0, 2.0, 3.0]), 6)  # sd = 1, n = 3
    0.57735
    """
    if len(values) < 2:
        return math.nan
    return float(np.std(np.asarray(values, dtype=np.float64), ddof=1) / math.sqrt(len(values)))


def mean_difference(system: ArrayLike, baseline: ArrayLike, *, level: float = 0.95) -> Effect:
    """Difference of the means of two independent samples, with Welch's interval.

    >>> str(mean_difference([10.0, 11.0, 12.0], [20.0, 21.0, 22.0]))  # 10 -+ 2.776 * sqrt(2/3)
    '-10 [-12.27, -7.733] (95%, welch-t)'
    """
    x, y = checked(system, "the system"), checked(baseline, "the baseline")
    difference = float(x.mean() - y.mean())
    if min(len(x), len(y)) < 2:
        return Effect(difference, math.nan, math.nan, level, "none")
    u, v = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    if u + v == 0:
        return Effect(difference, difference, difference, level, "welch-t")
    freedom = (u + v) ** 2 / (u**2 / (len(x) - 1) + v**2 / (len(y) - 1))
    return _around(difference, math.sqrt(u + v), float(freedom), level, "welch-t")


def paired_difference(differences: ArrayLike, *, level: float = 0.95) -> Effect:
    """Mean of paired differences with the interval of Student's t.

    >>> str(paired_difference([1.0, 2.0, 3.0]))  # 2 -+ 4.303 / sqrt(3)
    '+2 [-0.4841, +4.484] (95%, paired-t)'
    """
    d = checked(differences, "the differences")
    if len(d) < 2:
        return Effect(float(d.mean()), math.nan, math.nan, level, "none")
    return _around(float(d.mean()), standard_error(d.tolist()), len(d) - 1.0, level, "paired-t")


Score = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""The score of a text from sums over its sentences: (..., statistics) -> (...)."""


def hierarchical_bootstrap(
    system: NDArray[np.float64],  # (seeds, sentences, statistics)
    baseline: NDArray[np.float64],  # (seeds, the same sentences, statistics)
    score: Score,
    *,
    samples: int = 1000,
    seed: int = 1,
    level: float = 0.95,
) -> Effect:
    """Difference of the mean scores, with percentiles over resamples of seeds and sentences.

    Each resample draws seeds of each system, and sentences that both systems share. With one seed each, only sentences
    are drawn: the interval is then too narrow for a claim about the method.

    >>> nll = np.array([[[2.0, 1.0], [4.0, 2.0]]])  # one seed, two sentences: -log q and tokens
    >>> str(hierarchical_bootstrap(nll, nll, lambda sums: sums[..., 0] / sums[..., 1]))
    '+0 [+0, +0] (95%, hierarchical-bootstrap)'
    """
    if system.shape[1:] != baseline.shape[1:]:
        raise InputError(
            f"one system has statistics of {system.shape[1]} sentences, the other of {baseline.shape[1]}",
            hint="score both systems on the same test set",
        )
    rng = np.random.default_rng(seed)
    sentences = system.shape[1]
    weights = rng.multinomial(sentences, np.full(sentences, 1 / sentences), size=samples).astype(np.float64)

    def resampled(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = score(np.einsum("rs,nsk->rnk", weights, statistics, optimize=True))  # (samples, seeds)
        drawn = rng.integers(len(statistics), size=scores.shape)
        found: NDArray[np.float64] = np.take_along_axis(scores, drawn, 1).mean(1)
        return found

    difference = float(score(system.sum(1)).mean() - score(baseline.sum(1)).mean())
    tail = 50 * (1 - level)
    low, high = np.percentile(resampled(system) - resampled(baseline), [tail, 100 - tail])
    return Effect(difference, float(low), float(high), level, "hierarchical-bootstrap")


def checked(values: ArrayLike, what: str) -> np.ndarray:
    """`values` as a float64 vector; empty or not finite values are an error."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise InputError(f"{what}: one number per run or sentence is needed, got shape {array.shape}")
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise InputError(f"{what}: value {bad} is {array[bad]}", hint="leave diverged runs out, and report it")
    return array


def _around(difference: float, error: float, freedom: float, level: float, method: str) -> Effect:
    from scipy.special import stdtrit  # Student's quantile; scipy.stats takes ten times as long to import

    reach = float(stdtrit(freedom, 0.5 + level / 2)) * error
    return Effect(difference, difference - reach, difference + reach, level, method)
