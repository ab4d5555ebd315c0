"""The n-gram model of the training text and its mixture with the network, as a table shows them beside the network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lidstone.lab.report.methods import Metric
    from lidstone.lab.report.runs import Run


@dataclass(frozen=True)
class NgramAlone:
    """Modified Kneser-Ney of the training text on the same test set."""

    low: float
    high: float
    """differs from `low` where the runs were trained on different text"""
    orders: tuple[int, ...]
    scored: int
    """how many of the runs have these scores"""
    runs: int

    @property
    def label(self) -> str:
        """The name of its row."""
        return f"n-gram alone (MKN, n={'/'.join(map(str, self.orders))})"


def ngram_alone(runs: Sequence[Run], metric: Metric) -> NgramAlone | None:
    """The n-gram model of these runs; None if no run has its scores."""
    values = [run.beside("ngram", metric.key) for run in runs]
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return None
    orders = sorted({int(run.ngram["order"]) for run in runs if isinstance(run.ngram.get("order"), int)})
    return NgramAlone(min(kept), max(kept), tuple(orders), len(kept), len(runs))


def mixed_score(runs: Sequence[Run], metric: Metric) -> tuple[float, float, int]:
    """Mean and standard error of the mixture over the runs that have it, and their number; NaN if none does."""
    values = [run.beside("mixture", metric.key) for run in runs]
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return math.nan, math.nan, 0
    error = float(np.std(kept, ddof=1) / math.sqrt(len(kept))) if len(kept) > 1 else math.nan
    return float(np.mean(kept)), error, len(kept)


def describe(ngram: NgramAlone | None, values: Sequence[float], metric: Metric, task: str) -> str:
    """A sentence that compares the n-gram model with the networks of a table; empty for translation.

    >>> from lidstone.lab.report.methods import METRICS
    >>> describe(NgramAlone(106.0, 106.0, (4,), 2, 2), [135.0, 123.8], METRICS["perplexity"], "lm")[:88]
    'an n-gram model of the same training text (MKN, n=4) has 106.00: better than every netwo'
    """
    if task != "lm" or not metric.lower_is_better:
        return ""
    if ngram is None:
        return "these runs were not scored beside an n-gram model of the same text"
    beaten = sum(ngram.high < value for value in values)
    than = "every network" if beaten == len(values) else f"{beaten} of the {len(values)} networks" if beaten else ""
    verdict = f"better than {than} here" if than else "every network here is better"
    shown = f"{ngram.low:.2f}" if ngram.low == ngram.high else f"{ngram.low:.2f} to {ngram.high:.2f}"
    some = "" if ngram.scored == ngram.runs else f" ({ngram.scored} of {ngram.runs} runs were scored beside it)"
    orders = "/".join(map(str, ngram.orders))
    return (
        f"an n-gram model of the same training text (MKN, n={orders}) has {shown}: {verdict}{some}. + n-gram: network "
        "and n-gram model mixed at test time, one weight chosen on validation"
    )
