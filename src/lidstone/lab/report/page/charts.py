"""The figures of the page as SVG, so that they work without scripts, in print and in a saved page.

The style sheet defines the colours, by the classes `c0`, `c1`, ... and `h0` to `h10`, for the light and the dark theme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lidstone.lab.report.labels import number as brief
from lidstone.lab.report.methods import Metric
from lidstone.lab.report.page.markup import Markup, join, tag
from lidstone.lab.report.render import number
from lidstone.lab.report.scales import Scale, padded, tick_text
from lidstone.lab.report.series import CostPoint, Curve, HeatMap, settled_values, style_of
from lidstone.lab.report.table import Row

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 28, 10, 48
SHAPES = {
    "circle": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0Z",
    "square": "M-3.2-3.2H3.2V3.2H-3.2Z",
    "triangle": "M0-4.2L4 3H-4Z",
    "down": "M0 4.2L4-3H-4Z",
    "diamond": "M0-4.6L4.6 0L0 4.6L-4.6 0Z",
    "plus": "M-1.3-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4V-1.3H-1.3Z",
    "cross": "M-3.4-3.4L3.4 3.4M-3.4 3.4L3.4-3.4",
    "left": "M-4.2 0L3-4V4Z",
    "right": "M4.2 0L-3-4V4Z",
    "star": "M0-5L1.3-1.3L5 0L1.3 1.3L0 5L-1.3 1.3L-5 0L-1.3-1.3Z",
    "bar": "M-1.2-4.6H1.2V4.6H-1.2Z",
    "dash": "M-4.6-1.2H4.6V1.2H-4.6Z",
}


def curve_chart(curves: Sequence[Curve], name: str, *, log: bool) -> Markup:
    """Means over seeds as lines, their range as bands."""
    steps = [x for c in curves for x in c.x]
    x = Scale(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    y = padded(settled_values(curves), HEIGHT - BOTTOM, TOP, log=log)
    title = f"{name} along training, mean and range over seeds, of " + ", ".join(c.label.text() for c in curves)
    window = tag("rect", x=LEFT, y=0, width=WIDTH - LEFT, height=HEIGHT - BOTTOM)
    clip = f"window-{name.lower().replace(' ', '-')}"
    lines = tag("g", *(_curve(c, x, y) for c in curves), clip_path=f"url(#{clip})")
    return _figure(title, axes(x, y, "training step", name), tag("clipPath", window, id=clip), lines)


def cost_chart(points: Sequence[CostPoint], metric: Metric) -> Markup:
    """Training time against test score."""
    reach = [v for p in points for v in (p.score - p.error, p.score + p.error)]
    x = padded([p.seconds for p in points], LEFT, WIDTH - RIGHT, pad=0.12)
    y = padded(reach, HEIGHT - BOTTOM, TOP, pad=0.12)
    title = f"Training time against {metric.name}: " + "; ".join(
        f"{p.label.text()} {p.seconds:.0f} s, {number(p.score)}" for p in points
    )
    return _figure(title, axes(x, y, "training time, seconds", metric.name), *(_cost(p, x, y) for p in points))


def heat_chart(heat_map: HeatMap, metric: Metric) -> Markup:
    """A validation metric over both strengths, a stronger colour is better, the best cell framed."""
    size, left, top = 62, 12 if heat_map.is_line else 92, 12
    values = [v for row in heat_map.cells for v in row if v is not None]
    ranks = Scale(min(values), max(values), 10, 0) if metric.lower_is_better else Scale(min(values), max(values), 0, 10)
    rows = len(heat_map.cells)
    cells = [
        _cell(heat_map, metric, ranks, i, j, left + j * size, top + (rows - 1 - i) * size * 0.6, size)
        for i in range(rows)
        for j in range(len(heat_map.minus))
    ]
    height = top + rows * size * 0.6
    labels = [
        *(
            _text(left - 10, height - (i + 0.4) * size * 0.6, brief(v), "tick", "end")
            for i, v in enumerate(heat_map.plus)
        ),
        *(_text(left + (j + 0.5) * size, height + 18, brief(v), "tick") for j, v in enumerate(heat_map.minus)),
        _text(left + len(heat_map.minus) * size / 2, height + 38, "γ" if heat_map.is_line else "γ₋", "axis-name"),
        *([] if heat_map.is_line else [_text(16, (top + height) / 2, "γ₊", "axis-name")]),
    ]
    over = "the strength" if heat_map.is_line else "both strengths"
    best = heat_map.strengths(*heat_map.best)
    title = f"{metric.name} on validation of {heat_map.label.long} over {over}; best at {best}"
    width = left + len(heat_map.minus) * size + 12
    return tag("svg", tag("title", title), *cells, *labels, viewBox=f"0 0 {width} {height + 46:.0f}", role="img",
               aria_label=title, class_="heat")  # fmt: skip


def forest_strip(row: Row, scale: Scale, baseline: float | None, style: int) -> Markup:
    """The seeds of a row as dots, mean and standard error as a bar, the baseline's mean as a line."""
    middle, colour = 14.0, style_of(style)[0]
    finite = [v for v in row.values if math.isfinite(v)]
    line = tag("path", d=f"M{scale(baseline):.1f} 0V28", class_="reference") if baseline is not None else None
    dots = [tag("circle", cx=scale(v), cy=middle, r=3, class_="seed") for v in finite]
    parts: list[Markup | None] = [line, *dots]
    if math.isfinite(row.value):
        error = row.error if math.isfinite(row.error) else 0.0
        reach = f"M{scale(row.value - error):.1f} {middle}H{scale(row.value + error):.1f}"
        parts += [tag("path", d=reach, class_="reach"), tag("path", d=f"M{scale(row.value):.1f} 7V21", class_="mean")]
    title = f"{row.label.text()}: seeds {', '.join(number(v) for v in row.values)}"
    return tag("svg", tag("title", title), *parts, viewBox="0 0 240 28", class_=f"strip c{colour}", role="img",
               aria_label=title)  # fmt: skip


def forest_axis(scale: Scale) -> Markup:
    """The scale that all strips share, for the head of their column."""
    texts = [_text(scale(tick), 11, tick_text(tick), "tick") for tick in scale.ticks(4)]
    return tag("svg", *texts, viewBox="0 0 240 14", class_="strip-axis", aria_hidden="true")


def swatch(style: int) -> Markup:
    """A short piece of a line, for a legend."""
    colour, dash, marker = style_of(style)
    line = tag("path", d="M1 8H33", class_="line", stroke_dasharray=dash or None)
    mark = tag("path", d=SHAPES[marker], transform="translate(17 8)", class_="mark")
    return tag("svg", line, mark, viewBox="0 0 34 16", class_=f"swatch c{colour}", aria_hidden="true")


def axes(x: Scale, y: Scale, x_name: str, y_name: str) -> Markup:
    """Grid lines, ticks and names of both axes."""
    floor, middle = HEIGHT - BOTTOM, (TOP + HEIGHT - BOTTOM) / 2
    grid = "".join(f"M{LEFT} {y(t):.1f}H{WIDTH - RIGHT}" for t in y.ticks())
    return tag(
        "g",
        tag("path", d=grid, class_="grid"),
        tag("path", d=f"M{LEFT} {floor}H{WIDTH - RIGHT}", class_="axis"),
        *(_text(LEFT - 8, y(t) + 4, tick_text(t), "tick", "end") for t in y.ticks()),
        *(_text(x(t), floor + 18, tick_text(t), "tick") for t in x.ticks()),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "axis-name"),
        tag(
            "text",
            y_name,
            transform=f"translate(14 {middle:.0f}) rotate(-90)",
            class_="axis-name",
            text_anchor="middle",
        ),
        aria_hidden="true",
    )


def _curve(curve: Curve, x: Scale, y: Scale) -> Markup:
    colour, dash, marker = style_of(curve.style)
    places = [x(step) for step in curve.x]
    upper = [f"{a:.1f} {y(v):.1f}" for a, v in zip(places, curve.high, strict=True)]
    lower = [f"{a:.1f} {y(v):.1f}" for a, v in zip(places, curve.low, strict=True)]
    line = [f"{a:.1f} {y(v):.1f}" for a, v in zip(places, curve.mean, strict=True)]
    every = max(1, len(line) // 7)
    marks = [_mark(marker, *map(float, at.split())) for at in line[curve.style % every :: every]]
    return tag(
        "g",
        tag("title", f"{curve.label.text()}, {curve.seeds} seeds, last {number(curve.mean[-1])}"),
        tag("path", d=f"M{'L'.join(upper + lower[::-1])}Z", class_="band") if curve.seeds > 1 else None,
        tag("path", d=f"M{'L'.join(line)}", class_="line", stroke_dasharray=dash or None),
        *marks,
        class_=f"series c{colour}",
        data_series=curve.key,
    )


def _cost(point: CostPoint, x: Scale, y: Scale) -> Markup:
    colour, _, marker = style_of(point.style)
    at, up, down = x(point.seconds), y(point.score + point.error), y(point.score - point.error)
    right = at > WIDTH - 170
    return tag(
        "g",
        tag("title", f"{point.label.text()}: {point.seconds:.0f} s, {number(point.score)} ± {number(point.error)}"),
        tag("path", d=f"M{at:.1f} {up:.1f}V{down:.1f}", class_="reach"),
        _mark(marker, at, y(point.score), 1.5),
        _text(
            at - 12 if right else at + 12,
            y(point.score) + 4,
            point.label.short,
            "point-name",
            "end" if right else "start",
        ),
        class_=f"series c{colour}",
        data_series=point.key,
    )


def _cell(heat: HeatMap, metric: Metric, ranks: Scale, i: int, j: int, x: float, y: float, size: float) -> Markup:
    value = heat.cells[i][j]
    height = size * 0.6
    if value is None:
        return tag("rect", x=x + 1, y=y + 1, width=size - 2, height=height - 2, rx=3, class_="no-run")
    level = round(ranks(value))
    title = f"{heat.strengths(i, j)}: {metric.name} {number(value)}"
    framed = " best" if (i, j) == heat.best else ""
    return tag(
        "g",
        tag("title", title),
        tag("rect", x=x + 1, y=y + 1, width=size - 2, height=height - 2, rx=3),
        _text(x + size / 2, y + height / 2 + 4, number(value), "cell-value"),
        class_=f"cell h{level}{framed}",
    )


def _mark(marker: str, x: float, y: float, scale: float = 1.0) -> Markup:
    at = f"translate({x:.1f} {y:.1f})" + (f" scale({scale})" if scale != 1 else "")
    return tag("path", d=SHAPES[marker], transform=at, class_="mark")


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> Markup:
    return tag("text", text, x=float(x), y=float(y), class_=kind, text_anchor=anchor)


def _figure(title: str, *parts: Markup) -> Markup:
    return tag("svg", tag("title", title), join(parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title,
               class_="chart")  # fmt: skip
