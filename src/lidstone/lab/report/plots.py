"""Figures as files, for papers: the drawings of the page in the colours of its light theme.

An SVG is the drawing with its style written out, as most programs do not read style sheets with variables. For other
formats (PNG, PDF) matplotlib paints the same elements.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, tostring

from lidstone.errors import LidstoneError
from lidstone.files import atomic_write
from lidstone.lab.report import figures
from lidstone.lab.report.drawing import HEIGHT, WIDTH, draw, padded, picture, style_of, swatch, text, tick_text

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report

INCH = 100
"""Units of a drawing that are an inch on paper."""
PAINT = {"fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight"}
"""The properties of the style sheet that are applied; SVG has attributes of the same names."""
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that a name may have and XML may not."""
LETTER = 7.0
"""About the width of a letter."""


def write_plots(report: Report, folder: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write every figure that the runs have data for; the same runs give the same files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "choose another folder"
        raise LidstoneError(f"cannot create the folder {folder}: {error.strerror}", hint=hint) from error
    written = []
    for name, drawing in _figures(report):
        _apply_style(drawing)
        for kind in formats:
            written.append(folder / f"{name}.{kind}")
            with atomic_write(written[-1]) as temporary:
                _save(drawing, temporary, kind)
    return written


def file_name(text: str) -> str:
    """A method's key as a safe part of a file name.

    >>> file_name("katz form=exact"), file_name("../../x")
    ('katz-form-exact', 'x')
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:60] or "method"


def _figures(report: Report) -> Iterator[tuple[str, Element]]:
    """Names and drawings; what the page says beside a drawing, in a table or caption, is drawn here."""
    yield "scores", _scores(report)
    for field in dict.fromkeys((figures.curve_field(report), "train_loss")):
        if lines := figures.curves(report, field, points=200):
            drawing = figures.curve_picture(lines, field.replace("_", " "), log="perplexity" in field)
            yield f"curves-{field.replace('_', '-')}", _with_legend(drawing, lines)
    names: list[str] = []
    for heat in figures.heat_maps(report):
        names.append(file_name(heat.key))
        again = names.count(names[-1])  # what differs between two names may not be safe in a file name
        title = f"{_shortened(heat.label.long, 32)}: {report.chosen_by.name} on validation"
        drawing = _with_title(figures.heat_picture(heat, report.chosen_by), title)
        yield f"strengths-{names[-1]}" + (f"-{again}" if again > 1 else ""), drawing
    if points := figures.cost_points(report):
        yield "cost", figures.cost_picture(points, report.metric)


def _scores(report: Report) -> Element:
    """The rows of the main table: names, strips and their axis."""
    rows, style, (width, height) = report.table().rows, figures.styles(report), figures.STRIP
    rows = tuple(row for row in rows if math.isfinite(row.value))
    names = [_shortened(row.label.text()) for row in rows]
    left, floor = LETTER * max(map(len, names), default=0) + 20, height * len(rows) + 6
    scale = padded([v for row in rows for v in row.values if math.isfinite(v)] or [0.0], left, left + 1.5 * width)
    base = next((row.value for row in rows if row.key == report.baselines[0]), None)
    parts = [draw("path", d="".join(f"M{scale(t):.1f} 0V{floor}" for t in scale.ticks()), class_="grid")]
    for place, (row, name) in enumerate(zip(rows, names, strict=True)):
        at, kind = f"translate(0 {place * height})", f"strip c{style_of(style[row.key])[0]}"
        parts.append(draw("g", *figures.strip(row, scale, base), transform=at, class_=kind))
        parts.append(text(left - 10, place * height + 18, name, "point-name", "end"))
    parts += [text(scale(tick), floor + 14, tick_text(tick)) for tick in scale.ticks()]
    metric = f"{report.metric.name} {report.metric.arrow}"
    parts.append(text(left + 0.75 * width, floor + 34, metric, "axis-name"))
    return picture(f"{metric} of every seed", *parts, width=left + 1.5 * width + 8, height=floor + 42, kind="chart")


def _with_legend(drawing: Element, lines: Sequence[figures.Curve]) -> Element:
    names = [_shortened(line.label.text()) for line in lines]
    for place, (line, name) in enumerate(zip(lines, names, strict=True)):
        at, kind = f"translate({WIDTH} {20 * place})", f"c{style_of(line.style)[0]}"
        drawing.append(draw("g", *swatch(line.style), text(42, 12, name, anchor="start"), transform=at, class_=kind))
    drawing.set("viewBox", f"0 0 {WIDTH + 54 + LETTER * max(map(len, names)):.0f} {max(HEIGHT, 20 * len(lines))}")
    return drawing


def _with_title(drawing: Element, title: str) -> Element:
    _, _, width, height = map(float, drawing.attrib["viewBox"].split())
    drawing.append(text(8, -8, title, "point-name", "start"))
    drawing.set("viewBox", f"0 -26 {max(width, 1.2 * LETTER * len(title) + 16):.0f} {height + 26:.0f}")
    return drawing


def _shortened(text: str, most: int = 64) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


@cache
def _style_sheet() -> list[tuple[list[set[str]], dict[str, str]]]:
    """The rules of the page's light theme: the steps of a selector, each a set of element and classes, and values."""
    sheet = (resources.files("lidstone.lab.report") / "assets" / "report.css").read_text(encoding="utf-8")
    sheet = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", sheet)
    return [
        (
            [set(re.findall(r"[.:]?[\w-]+", step)) for step in selector.split()],
            dict(re.findall(r"([\w-]+): ([^;]+)", body)),
        )
        for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet)
        for selector in selectors.split(",")
        if re.fullmatch(r":root|[\w. -]+", selector.strip())
    ]


def _apply_style(
    element: Element, above: tuple[set[str], ...] = (), known: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write what the style sheet says about an element, and those below it, into their attributes."""
    me = {element.tag, *(f".{name}" for name in element.get("class", "").split()), *([] if above else [":root"])}
    found: dict[str, str] = {}
    for steps, values in _style_sheet():
        places = iter(above)
        if steps[-1] <= me and all(any(step <= place for place in places) for step in steps[:-1]):
            found |= values
    known = {**known, **found}
    for name in PAINT & found.keys():
        value = found[name]
        while value.startswith("var("):
            value = known[value[4:-1]]
        element.set(name, value.removesuffix("px"))
    for child in element:
        _apply_style(child, (*above, me), known)


def _save(drawing: Element, path: Path, kind: str) -> None:
    left, top, width, height = map(float, drawing.attrib["viewBox"].split())
    if kind == "svg":
        size = {"xmlns": "http://www.w3.org/2000/svg", "width": f"{width:.0f}", "height": f"{height:.0f}"}
        drawing.attrib |= size | {"font-family": "sans-serif"}
        path.write_text(NOT_XML.sub(" ", tostring(drawing, encoding="unicode")), encoding="utf-8")
        return
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # a name in a rare script
        figure = Figure(figsize=(width / INCH, height / INCH))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(left, left + width), ylim=(top + height, top))
        axes.set_axis_off()
        _paint(drawing, axes, axes.transData)
        figure.savefig(path, format=kind, dpi=200, metadata={"CreationDate": None} if kind == "pdf" else None)


def _paint(element: Element, axes: Any, place: Any, window: Any = None) -> None:
    """Paint an element and those below it; `place` is their coordinate system, `window` what they are clipped to."""
    from matplotlib.patches import PathPatch
    from matplotlib.transforms import Affine2D

    here = Affine2D()
    for name, numbers in reversed(re.findall(r"(translate|scale)\(([^)]*)\)", element.get("transform", ""))):
        getattr(here, name)(*map(float, numbers.split()))
    place = here + place
    size = {key: float(element.get(key, usual)) * 72 / INCH for key, usual in (("font-size", 12), ("stroke-width", 1))}
    if element.tag == "text":
        turned = 90 if "rotate(-90)" in element.get("transform", "") else 0
        axes.text(
            float(element.get("x", 0)), float(element.get("y", 0)), element.text or "", transform=place,
            ha={"start": "left", "end": "right"}.get(element.get("text-anchor", "start"), "center"), rotation=turned,
            rotation_mode="anchor", color=element.get("fill"), fontsize=size["font-size"],
            fontweight=int(element.get("font-weight", 400)),
        )  # fmt: skip
    elif element.tag == "path":
        width, stroke = size["stroke-width"], element.get("stroke", "none")
        dashes = tuple(float(part) * 72 / INCH / width for part in element.get("stroke-dasharray", "").split())
        patch = PathPatch(
            _outline(element.attrib["d"]), transform=place, facecolor=element.get("fill", "none"), edgecolor=stroke,
            linewidth=width, linestyle=(0, dashes) if dashes else "-", alpha=float(element.get("opacity", 1)),
        )  # fmt: skip
        axes.add_patch(patch).set_clip_path(window)
    if (clip := element.find("clipPath")) is not None:
        window = PathPatch(_outline(clip[0].attrib["d"]), transform=place)
    for child in element:
        if child is not clip:
            _paint(child, axes, place, window)


def _outline(d: str) -> Any:
    """The path of matplotlib for one of SVG."""
    from fontTools.pens.recordingPen import RecordingPen
    from fontTools.svgLib.path import parse_path
    from matplotlib.path import Path as Outline

    pen = RecordingPen()
    parse_path(d, pen)
    codes = {
        "moveTo": Outline.MOVETO,
        "lineTo": Outline.LINETO,
        "curveTo": Outline.CURVE4,
        "closePath": Outline.CLOSEPOLY,
    }
    steps = [(point, codes[name]) for name, points in pen.value if name in codes for point in points or [(0, 0)]]
    return Outline([point for point, _ in steps], [code for _, code in steps])
