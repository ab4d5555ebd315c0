"""Which p-values a test can reach: with few seeds some levels are unreachable."""

from __future__ import annotations

import math

from lidstone.lab.evaluation.permutation import is_exact

LEVEL = 0.05


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
