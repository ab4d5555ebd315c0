"""How far the probabilities of the networks can be trusted, before and after one temperature: a table of the report.

    temperature   the one that makes the validation text most probable; above 1, the network is too sure of itself
    ECE, Brier    see `hf/calibration.py`; lower is better

Runs record these since they exist; a method is in the table if all runs in its row have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lidstone.lab.report.labels import Label
from lidstone.lab.report.methods import Method
from lidstone.lab.report.runs import Run

MEASURES = {"perplexity": ("Perplexity", 2), "ece": ("ECE", 4), "brier": ("Brier", 4)}
"""Of a calibrated text: the heads of their columns and their digits."""
HEADS = ("Temperature", *(head for name, _ in MEASURES.values() for head in (name, f"{name}, after")))
CAPTION = (
    "Calibration on the test set, means over seeds: perplexity, expected calibration error and Brier score of the "
    "network as it is, and after one temperature chosen on validation. Lower is better"
)


@dataclass(frozen=True)
class CalibrationRow:
    """The means of a method, with the columns of `HEADS`."""

    key: str
    label: Label
    values: tuple[float, ...]
    """the temperature; then each measure before and after it"""

    @property
    def cells(self) -> list[str]:
        """The values as text.

        >>> CalibrationRow("none", Label("none"), (1.21, 25.39, 24.8, 0.05, 0.01, 0.6, 0.59)).cells[:4]
        ['1.21', '25.39', '24.80', '0.0500']
        """
        digits = [2, *(count for _, count in MEASURES.values() for _ in range(2))]
        return [f"{value:.{count}f}" for value, count in zip(self.values, digits, strict=True)]

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = ["temperature", *(key for measure in MEASURES for key in (measure, f"{measure}_after"))]
        return {"method": self.key, **dict(zip(names, self.values, strict=True))}


def calibration_rows(methods: Iterable[Method]) -> list[CalibrationRow]:
    """The rows of the methods whose runs all have a calibration."""
    found = ((method, [_values(run) for run in method.chosen.runs]) for method in methods)
    return [
        CalibrationRow(method.key, method.label, tuple(map(fmean, zip(*kept, strict=True))))
        for method, values in found
        if len(kept := [value for value in values if value]) == len(values)
    ]


def _values(run: Run) -> Sequence[float]:
    """The columns of one run; empty if it lacks any of them."""
    before, after = (run.calibration.get(when) for when in ("before", "after"))
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return ()
    pairs = [scores.get(measure) for measure in MEASURES for scores in (before, after)]
    values = [run.calibration.get("temperature"), *pairs]
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return numbers if len(numbers) == len(values) else ()
