"""Drawing in SVG: elements, scales with round ticks, axes, marks, and the look of a series.

A drawing has classes instead of colours. The style sheet (`assets/report.css`) defines the colours of the classes
`c0`, `c1`, ... and `h0` to `h10` for the light and the dark theme; `plots` applies it to figures in files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree.ElementTree import Element

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 28, 10, 48
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


def draw(name: str, /, *children: Element | str | None, **attributes: str | float | None) -> Element:
    """An element of SVG. In names of attributes a trailing `_` is removed, others become hyphens; None omits a value.

    >>> from xml.etree.ElementTree import tostring
    >>> tostring(draw("text", "1 < 2", x=1.5, class_="tick", text_anchor=None), encoding="unicode")
    '<text x="1.5" class="tick">1 &lt; 2</text>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    made = Element(name, {key: value if isinstance(value, str) else coordinate(value) for key, value in given.items()})
    for child in children:
        if isinstance(child, str):
            made.text = child
        elif child is not None:
            made.append(child)
    return made


def coordinate(value: float) -> str:
    """A coordinate with at most two decimals.

    >>> coordinate(3), coordinate(2.50), coordinate(1 / 3)
    ('3', '2.5', '0.33')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def picture(title: str, *parts: Element | None, width: float = WIDTH, height: float = HEIGHT, kind: str) -> Element:
    """A drawing of this size, with a title for screen readers and pointers; `kind` is its class."""
    box = f"0 0 {coordinate(width)} {coordinate(height)}"
    return draw("svg", draw("title", title), *parts, viewBox=box, role="img", aria_label=title, class_=kind)


def text(x: float, y: float, words: str, kind: str = "tick", anchor: str = "middle") -> Element:
    """A line of text at a point."""
    return draw("text", words, x=x, y=y, class_=kind, text_anchor=anchor)


def mark(marker: str, x: float, y: float, scale: float = 1.0, kind: str = "mark") -> Element:
    """A marker at a point."""
    at = f"translate({x:.1f} {y:.1f})" + (f" scale({scale})" if scale != 1 else "")
    return draw("path", d=MARKERS[marker], transform=at, class_=kind)


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


def swatch(style: int) -> list[Element]:
    """A short piece of a series' line, 34 wide and 16 high, for a legend."""
    _, dash, marker = style_of(style)
    return [draw("path", d="M1 8H33", class_="line", stroke_dasharray=dash or None), mark(marker, 17, 8)]


def axes(x: Scale, y: Scale, x_name: str, y_name: str) -> Element:
    """Grid lines, ticks and names of both axes."""
    floor, middle = HEIGHT - BOTTOM, (TOP + HEIGHT - BOTTOM) / 2
    turned = f"translate(14 {middle:.0f}) rotate(-90)"
    return draw(
        "g",
        draw("path", d="".join(f"M{LEFT} {y(t):.1f}H{WIDTH - RIGHT}" for t in y.ticks()), class_="grid"),
        draw("path", d=f"M{LEFT} {floor}H{WIDTH - RIGHT}", class_="axis"),
        *(text(LEFT - 8, y(t) + 4, tick_text(t), anchor="end") for t in y.ticks()),
        *(text(x(t), floor + 18, tick_text(t)) for t in x.ticks()),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "axis-name"),
        draw("text", y_name, transform=turned, class_="axis-name", text_anchor="middle"),
        aria_hidden="true",
    )


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
