"""The figures of a report, for the page and for files: what they show, on which scales, in which style.

scores       every seed of every row, with mean and standard error
curves       a metric along training, mean and range over seeds
strengths    a validation metric over the strengths that were searched

The template `assets/figures.jinja` draws them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lidstone.lab.report import render
from lidstone.lab.report.labels import Label, brief
from lidstone.lab.report.methods import Method, Metric, Setting
from lidstone.lab.report.tables import Row

if TYPE_CHECKING:
    from jinja2 import Environment

    from lidstone.lab.report.report import Report
    from lidstone.lab.report.runs import Run

SHOWN = 8
"""At most so many curves in one figure: the baselines and the best on validation."""
LEFT, RIGHT, TOP, FLOOR = 64, 732, 10, 352
"""The place of the axes in a drawing."""
COLOURS = 7
"""Okabe and Ito's colours without black and yellow, grey first: colour-blind readers can distinguish them."""
DASHES = ("5 4", "", "8 3", "2 3", "9 3 2 3", "12 3", "4 2 1 2")
MARKERS = {
    "cross": "M-3.4-3.4L3.4 3.4M-3.4 3.4L3.4-3.4",
    "circle": "M-3.5 0C-3.5-4.67 3.5-4.67 3.5 0C3.5 4.67-3.5 4.67-3.5 0Z",
    "square": "M-3.2-3.2H3.2V3.2H-3.2Z",
    "triangle": "M0-4.2L4 3H-4Z",
    "diamond": "M0-4.6L4.6 0L0 4.6L-4.6 0Z",
    "plus": "M-1.3-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4V-1.3H-1.3Z",
    "down": "M0 4.2L4-3H-4Z",
    "left": "M-4.2 0L3-4V4Z",
    "right": "M4.2 0L-3-4V4Z",
    "star": "M0-5L1.3-1.3L5 0L1.3 1.3L0 5L-1.3 1.3L-5 0L-1.3-1.3Z",
    "bar": "M-1.2-4.6H1.2V4.6H-1.2Z",
    "dash": "M-4.6-1.2H4.6V1.2H-4.6Z",
}
"""Markers of a series, as paths around the origin."""


@dataclass(frozen=True)
class Scale:
    """Maps `low..high` onto `start..end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The position of a value; values outside the axis are extrapolated.

        >>> Scale(0, 10, 100, 200)(5), Scale(1, 100, 0, 10, log=True)(10)
        (150.0, 5.0)
        """
        low, high, at = (math.log(max(v, 1e-300)) if self.log else v for v in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round numbers along the axis.

        >>> Scale(0, 10, 0, 1).ticks(), Scale(90, 1100, 0, 1, log=True).ticks()
        ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [100, 200, 500, 1000])
        """
        return _log_ticks(self.low, self.high, count) if self.log else _linear_ticks(self.low, self.high, count)


def padded(values: list[float], start: float, end: float, *, log: bool = False, pad: float = 0.06) -> Scale:
    """A scale that holds all values with some room on both sides."""
    low, high = min(values), max(values)
    if log and low > 0:
        room = (high / low) ** pad if high > low else 1.05
        return Scale(low / room, high * room, start, end, log=True)
    room = (high - low) * pad or abs(high) * pad or 1.0
    return Scale(low - room, high + room, start, end)


def tick_text(value: float) -> str:
    """A tick label in the shortest form.

    >>> [tick_text(v) for v in (0.0, 0.25, 1500.0, 2_000_000.0)]
    ['0', '0.25', '1,500', '2,000,000']
    """
    return f"{value:,.0f}" if value == int(value) else f"{value:.6g}"


def style_of(style: int) -> tuple[int, str, str]:
    """Colour, dash pattern and marker of a style; colour and marker together are distinct for 67 styles.

    >>> style_of(1), style_of(7)
    ((1, '', 'circle'), (1, '8 3', 'square'))
    >>> len({(style_of(style)[0], style_of(style)[2]) for style in range(67)})
    67
    """
    markers = tuple(MARKERS)
    if style == 0:
        return 0, DASHES[0], markers[0]
    cycle, colour = divmod(style - 1, COLOURS - 1)
    dash, marker = (1 + (colour + cycle) % (len(looks) - 1) for looks in (DASHES, markers))
    return 1 + colour, DASHES[dash], markers[marker]


def coordinate(value: float) -> str:
    """A coordinate with at most two decimals.

    >>> coordinate(3), coordinate(2.50), coordinate(1 / 3)
    ('3', '2.5', '0.33')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def box(x: float, y: float, width: float, height: float, corner: float) -> str:
    """The path of a rectangle with rounded corners.

    >>> box(1, 1, 6, 4, corner=1)[:28]
    'M2 1h4a1 1 0 0 1 1 1v2a1 1 0'
    """
    left, top, w, h, r = map(coordinate, (x + corner, y, width - 2 * corner, height - 2 * corner, corner))
    turn = f"a{r} {r} 0 0 1 "
    return f"M{left} {top}h{w}{turn}{r} {r}v{h}{turn}-{r} {r}h-{w}{turn}-{r}-{r}v-{h}{turn}{r}-{r}Z"


def polygon(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """The path through points.

    >>> polygon([(0, 1), (2.25, 3)], closed=True)
    'M0.0 1.0L2.2 3.0Z'
    """
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ("Z" if closed else "")


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

    def points(self, values: Sequence[float], x: Scale, y: Scale) -> list[tuple[float, float]]:
        """Where some of its values are drawn."""
        return [(x(step), y(value)) for step, value in zip(self.x, values, strict=True)]


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
    seeds: tuple[int, ...] = (1,)
    """Those that every setting has: a mean over other seeds would be another comparison."""

    @property
    def is_line(self) -> bool:
        """Whether one gamma sets both strengths."""
        return not self.plus

    def strengths(self, row: int, column: int) -> str:
        """The strengths of a cell, in words."""
        minus = brief(self.minus[column])
        return f"γ={minus}" if self.is_line else f"γ₊={brief(self.plus[row])}, γ₋={minus}"

    def shade(self, value: float, metric: Metric) -> int:
        """The step of the colour of a cell, 10 for the best value."""
        values = [v for row in self.cells for v in row if v is not None]
        return round(Scale(min(values), max(values), *((10, 0) if metric.lower_is_better else (0, 10)))(value))


def styles(report: Report) -> dict[str, int]:
    """A style number for each method: 0 for the baseline, then the shown methods; see `drawing.style_of`."""
    first, shown = report.baselines[0], [m.key for m in shown_methods(report)]
    others = [key for key in dict.fromkeys([*shown, *(m.key for m in report.methods)]) if key != first]
    return {**({first: 0} if first else {}), **{key: place for place, key in enumerate(others, 1)}}


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


def heat_maps(report: Report) -> list[HeatMap]:
    """One map for each method whose strengths were searched: in both directions, or along one gamma."""
    made = (_heat_map(method, report.chosen_by) for method in report.methods)
    return [heat_map for heat_map in made if heat_map is not None]


def strip_scale(rows: Sequence[Row], start: float, end: float) -> Scale:
    """The scale of the seeds of all rows."""
    return padded([v for row in rows for v in row.values if math.isfinite(v)] or [0.0], start, end)


def _curve_scales(curves: Sequence[Curve], log: bool) -> tuple[Scale, Scale]:
    steps = [x for c in curves for x in c.x]
    return Scale(min(steps), max(steps), LEFT, RIGHT), padded(_settled_values(curves), FLOOR, TOP, log=log)


@cache
def templates() -> Environment:
    """The templates of the page and of the figures; they escape everything that is not markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("lidstone.lab.report", "assets")
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader)
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    made.filters |= {"is_finite": math.isfinite, "number": render.number}
    made.filters |= {function.__name__: function for function in (brief, coordinate, polygon)}
    words = (render.direction_text, render.mixed_cell, render.ngram_value, render.number, render.p_text,
             render.score_heads, style_of, tick_text, box, strip_scale)  # fmt: skip
    made.globals |= {function.__name__: function for function in words}
    places = {"LEFT": LEFT, "RIGHT": RIGHT, "TOP": TOP, "FLOOR": FLOOR}
    made.globals |= {"MARKERS": MARKERS, "curve_scales": _curve_scales, **places}
    return made


def drawing(name: str, *values: Any, **options: Any) -> str:
    """A figure as SVG: the macro of this name in the template."""
    return str(getattr(templates().get_template("figures.jinja").module, name)(*values, **options))


def _settled_values(curves: Sequence[Curve]) -> list[float]:
    """The values that set a figure's scale, without the steep fall of the first steps."""
    steps = [x for c in curves for x in c.x]
    start = min(steps) + 0.15 * (max(steps) - min(steps))
    return [v for c in curves for x, *pair in zip(c.x, c.low, c.high, strict=True) if x >= start for v in pair]


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
    found: np.ndarray = inside[np.unique(np.linspace(0, len(inside) - 1, points).round().astype(int))]
    return found


def _heat_map(method: Method, metric: Metric) -> HeatMap | None:
    seeds = _common_seeds(method)
    found: dict[tuple[float, float], float] = {}
    for setting in method.settings if seeds else ():
        strengths, value = _strengths(setting), setting.mean("valid", metric, seeds)
        if strengths and math.isfinite(value) and metric.better(value, found.get(strengths, math.nan)):
            found[strengths] = value
    plus, minus = (tuple(sorted({pair[axis] for pair in found})) for axis in (0, 1))
    if len(minus) < 2 or len(plus) < 2:
        return None
    best = min(found, key=lambda pair: metric.order(found[pair]))
    if all(a == b for a, b in found):
        line, place = tuple(found[gamma, gamma] for gamma in minus), (0, minus.index(best[1]))
        return HeatMap(method.key, method.label, (), minus, (line,), place, seeds)
    cells = tuple(tuple(found.get((a, b)) for b in minus) for a in plus)
    return HeatMap(method.key, method.label, plus, minus, cells, (plus.index(best[0]), minus.index(best[1])), seeds)


def _common_seeds(method: Method) -> tuple[int, ...]:
    """The seeds that every setting with strengths has."""
    seeds = [{run.seed for run in setting.runs} for setting in method.settings if _strengths(setting)]
    return tuple(sorted(set.intersection(*seeds))) if seeds else ()


def _strengths(setting: Setting) -> tuple[float, float] | None:
    method = setting.runs[0].method
    plus, minus = method.get("gamma_plus"), method.get("gamma_minus")
    return (float(plus), float(minus)) if _number(plus) and _number(minus) else None  # type: ignore[arg-type]


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _linear_ticks(low: float, high: float, count: int) -> list[float]:
    rough = (high - low) / max(count, 1)
    if rough <= 0 or not math.isfinite(rough):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10**p if p >= 0 else m / 10**-p for p in powers for m in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    return inside if len(inside) >= 3 else _linear_ticks(low, high, count)
