"""The numbers behind the figures: learning curves with seed bands, strengths searched, cost against quality.

Nothing is drawn here; `charts` draws them for the page and `plots` for papers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lidstone.lab.report.labels import Label
from lidstone.lab.report.labels import number as brief
from lidstone.lab.report.methods import Method, Metric, Setting

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report
    from lidstone.lab.report.runs import Run

PALETTE = ("#6b6b6b", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
"""Okabe and Ito's colours without black and yellow, grey first: colour-blind readers can distinguish them."""
DASHES = ("5 4", "", "8 3", "2 3", "9 3 2 3", "12 3", "4 2 1 2")
MARKERS = ("cross", "circle", "square", "triangle", "diamond", "plus", "down", "left", "right", "star", "bar", "dash")
SHOWN = 8
"""At most so many curves in one figure: the baselines and the best on validation."""


@dataclass(frozen=True)
class Curve:
    """Mean and range over seeds along training."""

    key: str
    label: Label
    style: int
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    seeds: int


@dataclass(frozen=True)
class HeatMap:
    """A validation metric over both strengths; None where no run was made.

    Where the two strengths were always equal there is one row, without a `plus`: a line over gamma.
    """

    key: str
    label: Label
    plus: tuple[float, ...]
    minus: tuple[float, ...]
    cells: tuple[tuple[float | None, ...], ...]
    """One row for each `plus`, one column for each `minus`."""
    best: tuple[int, int]

    @property
    def is_line(self) -> bool:
        """Whether one gamma sets both strengths."""
        return not self.plus

    def strengths(self, row: int, column: int) -> str:
        """The strengths of a cell, in words."""
        minus = brief(self.minus[column])
        return f"γ={minus}" if self.is_line else f"γ₊={brief(self.plus[row])}, γ₋={minus}"


@dataclass(frozen=True)
class CostPoint:
    """Training time and test score of a method, mean over seeds."""

    key: str
    label: Label
    style: int
    seconds: float
    score: float
    error: float


def styles(report: Report) -> dict[str, int]:
    """A style number for each method: 0 for the baseline, then the shown methods; see `style_of`."""
    first, shown = report.baselines[0], [m.key for m in shown_methods(report)]
    others = [key for key in dict.fromkeys([*shown, *(m.key for m in report.methods)]) if key != first]
    return {**({first: 0} if first else {}), **{key: place for place, key in enumerate(others, 1)}}


def style_of(style: int) -> tuple[int, str, str]:
    """Colour index, dash pattern and marker of a style; colour and marker together are distinct for 67 styles.

    >>> style_of(1), style_of(7)
    ((1, '', 'circle'), (1, '8 3', 'square'))
    >>> len({(style_of(style)[0], style_of(style)[2]) for style in range(67)})
    67
    """
    if style == 0:
        return 0, DASHES[0], MARKERS[0]
    cycle, colour = divmod(style - 1, len(PALETTE) - 1)
    dash, marker = (1 + (colour + cycle) % (len(looks) - 1) for looks in (DASHES, MARKERS))
    return 1 + colour, DASHES[dash], MARKERS[marker]


def shown_methods(report: Report) -> list[Method]:
    """The methods that figures show: the baselines, then the best on validation, in the order of the table."""
    order = sorted(report.methods, key=lambda m: m.chosen.place(report.metric))
    first = [m for m in report.methods if m.key in report.baselines]
    keep = {m.key for m in [*first, *(m for m in order if m not in first)][:SHOWN]}
    return [m for m in report.methods if m.key in keep]


def curve_field(report: Report) -> str:
    """The field that learning curves show: the report's metric on validation, or else the loss."""
    wanted = f"valid_{report.metric.key}"
    found = any(wanted in point for run in report.runs for point in run.curve[:1])
    return wanted if found else "valid_loss"


def curves(report: Report, field: str, points: int = 60) -> list[Curve]:
    """Mean and range over seeds of a field of the runs' curves, on at most `points` steps."""
    style = styles(report)
    made = (_curve(m, style[m.key], field, points) for m in shown_methods(report))
    return [curve for curve in made if curve is not None]


def settled_values(curves: Sequence[Curve]) -> list[float]:
    """The values that set a figure's scale, without the steep fall of the first steps."""
    steps = [x for c in curves for x in c.x]
    start = min(steps) + 0.15 * (max(steps) - min(steps))
    return [v for c in curves for x, *pair in zip(c.x, c.low, c.high, strict=True) if x >= start for v in pair]


def heat_maps(report: Report) -> list[HeatMap]:
    """One map for each method whose strengths were searched: in both directions, or along one gamma."""
    made = (_heat_map(method, report.chosen_by) for method in report.methods)
    return [heat_map for heat_map in made if heat_map is not None]


def cost_points(report: Report) -> list[CostPoint]:
    """Training time and test score of every method that has its time."""
    style, points = styles(report), []
    for method in report.methods:
        seconds = [float((run.cost or {}).get("train_seconds") or math.nan) for run in method.chosen.runs]
        values = method.chosen.values("test", report.metric)
        error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
        point = CostPoint(
            method.key, method.label, style[method.key], float(np.mean(seconds)), float(np.mean(values)), error
        )
        if math.isfinite(point.seconds) and math.isfinite(point.score):
            points.append(point)
    return points


def _curve(method: Method, style: int, field: str, points: int) -> Curve | None:
    lines = [line for line in (_line(run, field) for run in method.chosen.runs) if len(line[0])]
    if not lines:
        return None
    steps = _common_steps([steps for steps, _ in lines], points)
    stacked = np.stack([np.interp(steps, own, values) for own, values in lines])  # (seeds, steps)
    mean, low, high = (_floats(values) for values in (stacked.mean(0), stacked.min(0), stacked.max(0)))
    return Curve(method.key, method.label, style, _floats(steps), mean, low, high, len(lines))


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))


def _line(run: Run, field: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = sorted(
        (float(p["step"]), float(p[field])) for p in run.curve if _number(p.get(field)) and _number(p.get("step"))
    )
    return np.array([x for x, _ in pairs]), np.array([y for _, y in pairs])


def _common_steps(lines: Sequence[np.ndarray], points: int) -> np.ndarray:
    """Steps that all seeds reached, thinned: a mean over fewer seeds would jump."""
    start, end = max(line[0] for line in lines), min(line[-1] for line in lines)
    own = np.unique(np.concatenate(lines))
    inside = own[(own >= start) & (own <= end)]
    if not len(inside):
        return np.array([lines[0][0]])
    return inside[np.unique(np.linspace(0, len(inside) - 1, points).round().astype(int))]


def _heat_map(method: Method, metric: Metric) -> HeatMap | None:
    found: dict[tuple[float, float], float] = {}
    for setting in method.settings:
        strengths, value = _strengths(setting), setting.mean("valid", metric)
        if strengths and math.isfinite(value) and metric.better(value, found.get(strengths, math.nan)):
            found[strengths] = value
    plus, minus = (tuple(sorted({pair[axis] for pair in found})) for axis in (0, 1))
    if len(minus) < 2 or len(plus) < 2:
        return None
    best = min(found, key=lambda pair: metric.order(found[pair]))
    if all(a == b for a, b in found):
        line = tuple(found[gamma, gamma] for gamma in minus)
        return HeatMap(method.key, method.label, (), minus, (line,), (0, minus.index(best[1])))
    cells = tuple(tuple(found.get((a, b)) for b in minus) for a in plus)
    return HeatMap(method.key, method.label, plus, minus, cells, (plus.index(best[0]), minus.index(best[1])))


def _strengths(setting: Setting) -> tuple[float, float] | None:
    method = setting.runs[0].method
    plus, minus = method.get("gamma_plus"), method.get("gamma_minus")
    return (float(plus), float(minus)) if _number(plus) and _number(minus) else None  # type: ignore[arg-type]


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
