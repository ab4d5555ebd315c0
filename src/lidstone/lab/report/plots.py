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
from xml.etree.ElementTree import Element, fromstring, tostring

from lidstone.errors import LidstoneError
from lidstone.files import atomic_write
from lidstone.lab.report import figures

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report

INCH = 100
"""Units of a drawing that are an inch on paper."""
PAINT = {"fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight"}
"""The properties of the style sheet that are applied; SVG has attributes of the same names."""
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that a name may have and XML may not."""


def write_plots(report: Report, folder: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write every figure that the runs have data for; the same runs give the same files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "choose another folder"
        raise LidstoneError(f"cannot create the folder {folder}: {error.strerror}", hint=hint) from error
    written = []
    for name, drawn in _figures(report):
        drawing = fromstring(NOT_XML.sub(" ", drawn))
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


def _figures(report: Report) -> Iterator[tuple[str, str]]:
    """Names and drawings; what the page says beside a drawing, in a table or caption, is drawn here."""
    rows = [row for row in report.table().rows if math.isfinite(row.value)]
    base = next((row.value for row in rows if row.key == report.baselines[0]), None)
    metric = f"{report.metric.name} {report.metric.arrow}"
    yield "scores", figures.drawing("score_chart", rows, base, figures.styles(report), metric)
    for field in dict.fromkeys((figures.curve_field(report), "train_loss")):
        if lines := figures.curves(report, field, points=200):
            shown = field.replace("_", " "), "perplexity" in field
            yield f"curves-{field.replace('_', '-')}", figures.drawing("curve_chart", lines, *shown, legend=True)
    names: list[str] = []
    for heat in figures.heat_maps(report):
        names.append(file_name(heat.key))
        again = names.count(names[-1])  # what differs between two names may not be safe in a file name
        name = heat.label.long if len(heat.label.long) <= 32 else heat.label.long[:31] + "…"
        drawn = figures.drawing("heat_map", heat, report.chosen_by, f"{name}: {report.chosen_by.name} on validation")
        yield f"strengths-{names[-1]}" + (f"-{again}" if again > 1 else ""), drawn


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
    for name in sorted(PAINT & found.keys()):  # in one order whatever the seed of hashes
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
        path.write_text(tostring(drawing, encoding="unicode"), encoding="utf-8")
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
