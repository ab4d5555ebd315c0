"""What a benchmark of several sizes will take, so that it fits into a given time and into memory."""

from __future__ import annotations

import os
from typing import Any

PER_MILLION = {"memory": 0.25, "disk": 1.0, "ray 1": 2.0, "ray 2": 1.5, "lmplz": 2.5}
"""Seconds per million tokens at order 5, until there are figures of the machine itself."""
START = {"ray 1": 30.0, "ray 2": 30.0, "lmplz": 0.5}
"""Seconds to start a process with warm kernels; others take `USUAL_START`."""
USUAL_START = 8.0
WRITING = 1.2
"""Seconds to draw a million tokens of text"""


def seconds(method: str, tokens: int, order: int, runs: dict[str, Any]) -> float:
    """How long one measurement takes: as the measured one that is nearest in size, in proportion."""
    known = [
        (abs(run["order"] - order), abs(run["tokens"] - tokens), run)
        for run in runs.values()
        if method in run["methods"]
    ]
    rate = PER_MILLION.get(method, 2.0) * 1e-6 / 4
    if known:
        run = min(known, key=lambda item: item[:2])[2]
        rate = run["methods"][method]["seconds"] / run["tokens"] / (run["order"] - 1)
    return START.get(method, USUAL_START) + rate * tokens * (order - 1)


def fits_in_memory(tokens: int, order: int) -> bool:
    """Whether counting and fitting in memory is safe: about 20 bytes per token and order above the first."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 20 * tokens * (order - 1) < 0.9 * free and tokens * (order - 1) < 2**31 - 2**22


def missing(methods: list[str], tokens: int, order: int, runs: dict[str, Any], name: str) -> list[str]:
    """The methods to measure at this size: those without figures that can work."""
    done = runs.get(name, {}).get("methods", {})
    fitting = fits_in_memory(tokens, order)
    return [m for m in methods if m not in done and (fitting or m != "memory")]


def rounds_within(per_round: float, wanted: int, left: float) -> int:
    """How many rounds fit into the time that is left.

    >>> rounds_within(10, 3, 25), rounds_within(10, 3, float("inf")), rounds_within(10, 3, 5)
    (2, 3, 0)
    """
    return wanted if per_round * wanted <= left else int(left // per_round)
