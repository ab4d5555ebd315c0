"""Tests of significance: is the difference between two systems more than chance?

    rank_sum             over seeds: Wilcoxon's rank-sum test, exact or by the paper's normal approximation
    paired_permutations  over sentences: sign flips of log-likelihood differences, statistic their mean
    paired_bootstrap     over sentences: sacreBLEU's paired bootstrap resampling (in `translation`)
    holm                 several systems against one baseline: p-values adjusted for the number of tests

Each result is a `Comparison` with its signature. This module scores nothing and runs no model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lidstone.errors import InputError
from lidstone.files import jsonable
from lidstone.lab.evaluation.effect import Effect, checked, mean_difference, paired_difference

LEVEL = 0.05
BLOCK_BYTES = 1 << 21  # of float64 flips held at a time: they stay in the cache
TIE = 1e-10  # relative: sums that differ by less are equal, whatever the order of addition


@dataclass(frozen=True)
class Comparison:
    """One system against one baseline under one test."""

    test: str
    """`rank-sum`, `paired-permutation` (each perhaps with `-exact`) or `paired-bootstrap`."""
    system: str
    baseline: str
    statistic_name: str
    statistic: float
    p_value: float | None
    """None when there are too few values; `warnings` has the reason."""
    n: tuple[int, int]
    """Seeds or sentences of the system and of the baseline."""
    effect: Effect
    permutations: int | None = None
    """Number of random flips or resamples; for an exact test, of all flips."""
    seed: int | None = None
    adjusted_p: float | None = None
    """After the correction; equal to `p_value` without one."""
    correction: str = "none"
    metric: str = ""
    """Signature of what was compared, e.g. sacreBLEU's."""
    warnings: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """Everything needed to repeat the test, in the format of sacreBLEU's signatures."""
        parts = {
            "test": self.test,
            "statistic": self.statistic_name.replace(" ", "-"),
            "n": f"{self.n[0]}+{self.n[1]}" if self.test.startswith("rank-sum") else str(self.n[0]),
            "permutations": self.permutations,
            "seed": self.seed,
            "sided": 2,
            "correction": self.correction,
            "interval": f"{self.effect.method}-{self.effect.level:g}",
        }
        return "|".join(f"{key}:{value}" for key, value in parts.items() if value is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and for reports; not-a-number becomes None."""
        return dict(jsonable(asdict(self) | {"signature": self.signature}))


def rank_sum(
    system: ArrayLike,
    baseline: ArrayLike,
    *,
    exact: bool = True,
    names: tuple[str, str] = ("system", "baseline"),
) -> Comparison:
    """Wilcoxon's rank-sum test over independent seeds, two-sided.

    With `exact=False` it is `scipy.stats.ranksums`, the normal approximation that the paper uses. With few seeds it can
    be smaller than any exact p-value (three against three: 0.0495, exact 0.1), which gives a warning.

    >>> answer = rank_sum([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0])
    >>> answer.p_value == 2 / 252, answer.signature
    (True, 'test:rank-sum-exact|statistic:rank-sum|n:5+5|sided:2|correction:none|interval:welch-t-0.95')
    """
    from scipy import stats

    x, y = checked(system, f"the scores of {names[0]}"), checked(baseline, f"the scores of {names[1]}")
    test, n = "rank-sum-exact" if exact else "rank-sum", (len(x), len(y))
    effect = mean_difference(x, y)
    ranks = np.asarray(stats.rankdata(np.concatenate([x, y])))
    statistic, p_value = float(ranks[: len(x)].sum()), None
    if min(n) >= 2:
        p_value = _rank_sum_exact(ranks, len(x)) if exact else float(stats.ranksums(x, y).pvalue)
    return Comparison(
        test,
        *names,
        "rank sum",
        statistic,
        p_value,
        n,
        effect,
        adjusted_p=p_value,
        warnings=warnings_for(test, n),
    )


def paired_permutations(
    systems: Mapping[str, ArrayLike],
    baseline: ArrayLike,
    *,
    permutations: int = 10_000,
    seed: int = 1,
    name: str = "baseline",
) -> list[Comparison]:
    """Paired permutation tests over sentence log-likelihoods (or seeds) on the mean difference, two-sided.

    All systems share the flips, and each answer is that of the system alone.

    >>> (answer,) = paired_permutations({"system": [2.0, 4.0, 6.0, 8.0, 10.0]}, [1.0, 2.0, 3.0, 4.0, 5.0])
    >>> answer.p_value, answer.warnings[0]  # 2 of 32 flips
    (0.0625, 'paired-permutation with 5 pairs cannot go below p = 0.0625, so 0.05 is out of reach')
    """
    if permutations < 1:
        raise InputError(f"permutations is {permutations}", hint="use at least 1, better 10,000")
    base = checked(baseline, f"the sentences of {name}")
    columns = [checked(values, f"the sentences of {key}") for key, values in systems.items()]
    for key, column in zip(systems, columns, strict=True):
        same_length(key, len(column), name, len(base))
    if not columns:
        return []
    differences = np.stack(columns, axis=1) - base[:, None]  # (sentences, systems)
    n, exact = len(base), is_exact(len(base), permutations)
    test = "paired-permutation-exact" if exact else "paired-permutation"
    p_values = sign_flip_p_values(differences, permutations, seed).tolist() if n >= 2 else [None] * len(columns)
    return [
        Comparison(
            test, key, name, "mean difference", float(column.mean()), p, (n, n),
            paired_difference(column), permutations=2**n if exact else permutations,
            seed=None if exact else seed, adjusted_p=p,
            warnings=warnings_for(test, (n, n), permutations),
        )
        for key, column, p in zip(systems, differences.T, p_values, strict=True)
    ]  # fmt: skip


def holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Adjust the p-values of several comparisons; those without one are not counted.

    >>> low, high = holm([rank_sum([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])] * 2)
    >>> low.p_value, low.adjusted_p, low.correction
    (0.1, 0.2, 'holm-2')
    """
    tested = [c.p_value for c in comparisons if c.p_value is not None]
    adjusted = iter(holm_adjust(tested))
    return [
        replace(
            c,
            adjusted_p=None if c.p_value is None else next(adjusted),
            correction=f"holm-{len(tested)}" if len(tested) > 1 else "none",
            warnings=warnings_for(c.test, c.n, c.permutations, len(tested)),
        )
        for c in comparisons
    ]


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the k-th smallest of m times (m - k + 1), made monotone, at most 1.

    >>> holm_adjust([0.01, 0.04, 0.03])  # 0.01*3, then 0.03*2; 0.04*1 may not fall below 0.06
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for step, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - step)))
        adjusted[index] = highest
    return adjusted


def _rank_sum_exact(ranks: np.ndarray, n: int) -> float:
    """Share of all choices of n ranks whose sum is at least as far from its mean; ties keep their mid-ranks."""
    doubled = np.rint(2 * ranks).astype(int).tolist()  # mid-ranks are multiples of one half
    ways = _subset_sums(doubled, n)
    centre = n * sum(doubled) / len(doubled)
    seen = abs(sum(doubled[:n]) - centre) - 1e-9
    return sum(count for total, count in ways.items() if abs(total - centre) >= seen) / sum(ways.values())


def _subset_sums(values: list[int], size: int) -> dict[int, int]:
    """How many subsets of `size` members have each sum."""
    ways: list[dict[int, int]] = [{0: 1}] + [{} for _ in range(size)]
    for value in values:
        for taken in range(size, 0, -1):
            for total, count in ways[taken - 1].items():
                ways[taken][total + value] = ways[taken].get(total + value, 0) + count
    return ways[size]


def same_length(system: str, n: int, baseline: str, m: int) -> None:
    """Raise an error if two systems cannot be paired: they have different numbers of sentences."""
    if n != m:
        raise InputError(
            f"a paired test needs the same sentences: {system} has {n}, {baseline} has {m}",
            hint="score both systems on the same test set",
        )


def smallest_p(test: str, n: tuple[int, int], permutations: int | None = None) -> float:
    """The smallest p-value that `test` can give with so many values, however clear the difference.

    >>> smallest_p("rank-sum-exact", (5, 5)) == 2 / 252, smallest_p("paired-permutation", (5, 5))
    (True, 0.0625)
    """
    if test == "rank-sum-exact":
        return min(1.0, 2 / math.comb(sum(n), n[0]))
    if test == "rank-sum":
        z = n[0] * n[1] / 2 / math.sqrt(n[0] * n[1] * (sum(n) + 1) / 12)
        return math.erfc(z / math.sqrt(2))
    random = 0.0 if permutations is None else 1 / (permutations + 1)
    if test == "paired-bootstrap":
        return random
    flips = min(1.0, 2.0 ** (1 - n[0]))
    return flips if is_exact(n[0], permutations or 2**20) else max(flips, random)


def warnings_for(test: str, n: tuple[int, int], permutations: int | None = None, systems: int = 1) -> tuple[str, ...]:
    """Limits of a p-value at the level of 0.05 that the reader must know.

    >>> warnings_for("rank-sum", (1, 5))
    ('no p-value: rank-sum needs at least two seeds of each, got 1 and 5',)
    """
    over_seeds = test.startswith("rank-sum")
    unit = "seeds" if over_seeds else "pairs"
    if min(n) < 2:
        return (f"no p-value: {test} needs at least two {unit} of each, got {n[0]} and {n[1]}",)
    exact = test if test != "rank-sum" else "rank-sum-exact"
    least = smallest_p(exact, n, permutations) * systems
    if least <= LEVEL:
        return ()
    size = f"{n[0]} and {n[1]} seeds" if over_seeds else f"{n[0]} pairs"
    many = f" for {systems} systems together" if systems > 1 else ""
    name = test.removesuffix("-exact") if not over_seeds else test
    if test == "rank-sum" and smallest_p(test, n) * systems <= LEVEL:
        return (f"rank-sum with {size}{many} is optimistic: the exact test cannot go below p = {least:.3g}",)
    return (f"{name} with {size}{many} cannot go below p = {min(1, least):.3g}, so {LEVEL} is out of reach",)


def sign_flip_p_values(differences: NDArray[np.float64], permutations: int, seed: int) -> NDArray[np.floating]:
    """Two-sided p-values of the columns of `differences` (sentences, systems); all columns share the flips.

    Under the null hypothesis the two systems of a pair could be swapped at any sentence, so every difference d_i
    could as well be -d_i. The p-value is the share of such flips whose mean difference is as large as the observed one:

        p = (b + 1) / (m + 1)         b of m random flips with |mean(s * d)| >= |mean(d)|
        p = b / 2^n                   when all 2^n flips are computed, the identity included

    The same, computed in blocks, as `signs = choice([-1, 1], (permutations, n)); abs(signs @ d) >= abs(d.sum(0))`.
    If there are at most `permutations` flips, each is computed once and the p-values are exact.

    >>> sign_flip_p_values(np.array([[1.0], [2.0], [3.0]]), permutations=100, seed=1)  # +++ and --- of 8
    array([0.25])
    """
    n, _ = differences.shape
    if is_exact(n, permutations):
        found: NDArray[np.floating] = _extreme_flips(differences, _all_flips(n)) / 2.0**n
        return found
    extreme = _extreme_flips(differences, _random_flips(n, permutations, seed))
    return (extreme + 1.0) / (permutations + 1.0)


def is_exact(n: int, permutations: int) -> bool:
    """Whether `permutations` are enough for all 2^n flips.

    >>> is_exact(5, 10_000), is_exact(14, 10_000)
    (True, False)
    """
    return n < 30 and 2**n <= permutations


def _extreme_flips(differences: NDArray[np.float64], blocks: Iterator[NDArray[np.uint8]]) -> NDArray[np.int64]:
    """Count, per column, the flips whose sum is at least as far from zero as the observed sum."""
    total = differences.sum(axis=0)
    slack = TIE * np.abs(differences).sum(axis=0)
    columns = np.ascontiguousarray(differences.T)  # (systems, sentences)
    extreme = np.zeros(len(total), dtype=np.int64)
    for flips in blocks:  # (block, sentences), 1 where the pair is swapped: sum(s d) = sum(d) - 2 flips . d
        # einsum, not @: BLAS's threads do not speed up such a narrow product, and on a busy machine they stall
        sums = total - 2.0 * np.einsum("pn,kn->pk", flips.astype(np.float64), columns)
        extreme += (np.abs(sums) >= np.abs(total) - slack).sum(axis=0)
    return extreme


def _random_flips(n: int, permutations: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    row_bytes = (n + 63) // 64 * 8  # whole words of the generator, so that blocks do not change the stream
    block = max(1, BLOCK_BYTES // (8 * n))
    for start in range(0, permutations, block):
        rows = min(block, permutations - start)
        random_bytes = np.frombuffer(rng.bytes(rows * row_bytes), dtype=np.uint8)
        yield np.unpackbits(random_bytes.reshape(rows, row_bytes), axis=1, count=n)


def _all_flips(n: int) -> Iterator[NDArray[np.uint8]]:
    block = max(1, BLOCK_BYTES // (8 * n))
    for start in range(0, 2**n, block):
        numbers = np.arange(start, min(start + block, 2**n), dtype=np.int64)
        yield ((numbers[:, None] >> np.arange(n)) & 1).astype(np.uint8)
