"""The figures of a report, for the page and for files: what they show, and how it is drawn.

scores       every seed of every row, with mean and standard error
curves       a metric along training, mean and range over seeds
strengths    a validation metric over the strengths that were searched
cost         training time against test score
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

import numpy as np

from lidstone.lab.report.drawing import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    axes,
    box,
    draw,
    mark,
    padded,
    picture,
    polygon,
    style_of,
    text,
    tick_text,
)
from lidstone.lab.report.labels import Label, brief
from lidstone.lab.report.methods import Method, Metric, Setting, standard_error
from lidstone.lab.report.render import number
from lidstone.lab.report.tables import Row

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report
    from lidstone.lab.report.runs import Run

SHOWN = 8
"""At most so many curves in one figure: the baselines and the best on validation."""
STRIP = 240, 28
"""Width and height of the drawing of one row's seeds."""


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


def _settled_values(curves: Sequence[Curve]) -> list[float]:
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
        error = standard_error(values) if len(values) > 1 else 0.0
        point = CostPoint(
            method.key, method.label, style[method.key], float(np.mean(seconds)), float(np.mean(values)), error
        )
        if math.isfinite(point.seconds) and math.isfinite(point.score):
            points.append(point)
    return points


def strip(row: Row, scale: Scale, baseline: float | None) -> list[Element]:
    """The seeds of a row as dots, mean and standard error as a bar, the baseline's mean as a line."""
    middle = STRIP[1] / 2
    parts = [mark("circle", scale(v), middle, 0.85, "seed") for v in row.values if math.isfinite(v)]
    if baseline is not None:
        parts.insert(0, draw("path", d=f"M{scale(baseline):.1f} 0V{STRIP[1]}", class_="reference"))
    if math.isfinite(row.value):
        error = row.error if math.isfinite(row.error) else 0.0
        reach = f"M{scale(row.value - error):.1f} {middle}H{scale(row.value + error):.1f}"
        parts.append(draw("path", d=reach, class_="reach"))
        parts.append(draw("path", d=f"M{scale(row.value):.1f} 7V21", class_="mean"))
    return parts


def strip_picture(row: Row, scale: Scale, baseline: float | None, style: int) -> Element:
    """The seeds of one row, for a table."""
    title = f"{row.label.text()}: seeds {', '.join(number(v) for v in row.values)}"
    width, height = STRIP
    kind = f"strip c{style_of(style)[0]}"
    return picture(title, *strip(row, scale, baseline), width=width, height=height, kind=kind)


def strip_axis(scale: Scale) -> Element:
    """The scale that all strips share, for the head of their column."""
    ticks = [text(scale(tick), 11, tick_text(tick)) for tick in scale.ticks(4)]
    return draw("svg", *ticks, viewBox=f"0 0 {STRIP[0]} 14", class_="strip-axis", aria_hidden="true")


def curve_picture(curves: Sequence[Curve], name: str, *, log: bool) -> Element:
    """Means over seeds as lines, their range as bands."""
    steps, floor = [x for c in curves for x in c.x], HEIGHT - BOTTOM
    x = Scale(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    y = padded(_settled_values(curves), floor, TOP, log=log)
    title = f"{name} along training, mean and range over seeds, of " + ", ".join(c.label.text() for c in curves)
    clip = f"window-{name.lower().replace(' ', '-')}"
    corners = polygon([(LEFT, 0), (WIDTH, 0), (WIDTH, floor), (LEFT, floor)], closed=True)
    window = draw("clipPath", draw("path", d=corners), id=clip)
    lines = draw("g", window, *(_draw_curve(c, x, y) for c in curves), clip_path=f"url(#{clip})")
    return picture(title, axes(x, y, "training step", name), lines, kind="chart")


def heat_picture(heat: HeatMap, metric: Metric) -> Element:
    """A validation metric over both strengths, a stronger colour is better, the best cell framed."""
    width, height, left, top = 62, 37.2, 12 if heat.is_line else 92, 12
    floor = top + len(heat.cells) * height
    values = [v for row in heat.cells for v in row if v is not None]
    levels = (10, 0) if metric.lower_is_better else (0, 10)
    level = Scale(min(values), max(values), *levels)
    parts = [
        _draw_cell(heat, metric, level, i, j, left + j * width + 1, floor - (i + 1) * height + 1)
        for i in range(len(heat.cells))
        for j in range(len(heat.minus))
    ]
    parts += [text(left - 10, floor - (i + 0.4) * height, brief(v), anchor="end") for i, v in enumerate(heat.plus)]
    parts += [text(left + (j + 0.5) * width, floor + 18, brief(v)) for j, v in enumerate(heat.minus)]
    right = left + len(heat.minus) * width
    parts.append(text((left + right) / 2, floor + 38, "γ" if heat.is_line else "γ₋", "axis-name"))
    if not heat.is_line:
        parts.append(text(16, (top + floor) / 2, "γ₊", "axis-name"))
    over = "the strength" if heat.is_line else "both strengths"
    title = f"{metric.name} on validation of {heat.label.long} over {over}; best at {heat.strengths(*heat.best)}"
    return picture(title, *parts, width=right + 12, height=round(floor + 46), kind="heat")


def cost_picture(points: Sequence[CostPoint], metric: Metric) -> Element:
    """Training time against test score."""
    reach = [v for p in points for v in (p.score - p.error, p.score + p.error)]
    x = padded([p.seconds for p in points], LEFT, WIDTH - RIGHT, pad=0.12)
    y = padded(reach, HEIGHT - BOTTOM, TOP, pad=0.12)
    listed = "; ".join(f"{p.label.text()} {p.seconds:.0f} s, {number(p.score)}" for p in points)
    title = f"Training time against {metric.name}: {listed}"
    frame = axes(x, y, "training time, seconds", metric.name)
    return picture(title, frame, *(_draw_cost(p, x, y) for p in points), kind="chart")


def _draw_curve(curve: Curve, x: Scale, y: Scale) -> Element:
    colour, dash, marker = style_of(curve.style)
    upper, lower, line = (
        [(x(step), y(v)) for step, v in zip(curve.x, values, strict=True)]
        for values in (curve.high, curve.low, curve.mean)
    )
    every = max(1, len(line) // 7)
    band = draw("path", d=polygon([*upper, *reversed(lower)], closed=True), class_="band")
    return draw(
        "g",
        draw("title", f"{curve.label.text()}, {curve.seeds} seeds, last {number(curve.mean[-1])}"),
        band if curve.seeds > 1 else None,
        draw("path", d=polygon(line), class_="line", stroke_dasharray=dash or None),
        *(mark(marker, *at) for at in line[curve.style % every :: every]),
        class_=f"series c{colour}",
        data_series=curve.key,
    )


def _draw_cell(heat: HeatMap, metric: Metric, level: Scale, i: int, j: int, x: float, y: float) -> Element:
    value, (width, height) = heat.cells[i][j], (60, 35.2)
    outline = box(x, y, width, height, 3)
    if value is None:
        return draw("path", d=outline, class_="no-run")
    return draw(
        "g",
        draw("title", f"{heat.strengths(i, j)}: {metric.name} {number(value)}"),
        draw("path", d=outline),
        text(x + width / 2, y + height / 2 + 4, number(value), "cell-value"),
        class_=f"cell h{round(level(value))}" + (" best" if (i, j) == heat.best else ""),
    )


def _draw_cost(point: CostPoint, x: Scale, y: Scale) -> Element:
    colour, _, marker = style_of(point.style)
    at, up, down = x(point.seconds), y(point.score + point.error), y(point.score - point.error)
    side, anchor = (-12, "end") if at > WIDTH - 170 else (12, "start")
    return draw(
        "g",
        draw("title", f"{point.label.text()}: {point.seconds:.0f} s, {number(point.score)} ± {number(point.error)}"),
        draw("path", d=f"M{at:.1f} {up:.1f}V{down:.1f}", class_="reach"),
        mark(marker, at, y(point.score), 1.5),
        text(at + side, y(point.score) + 4, point.label.short, "point-name", anchor),
        class_=f"series c{colour}",
        data_series=point.key,
    )


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
