"""Figures for papers by matplotlib: the page's figures with the same colours, as PNG and SVG."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lidstone.errors import LidstoneError
from lidstone.files import atomic_write
from lidstone.lab.report.labels import number as brief
from lidstone.lab.report.render import number
from lidstone.lab.report.scales import Scale, padded, tick_text
from lidstone.lab.report.series import (
    PALETTE,
    HeatMap,
    cost_points,
    curve_field,
    curves,
    heat_maps,
    settled_values,
    style_of,
)

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report

MARKS = {"cross": "x", "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "plus": "P", "down": "v",
         "left": "<", "right": ">", "star": "*", "bar": "|", "dash": "_"}  # fmt: skip
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
         "legend.frameon": False, "svg.hashsalt": "lidstone", "text.parse_math": False}  # fmt: skip


def write_plots(report: Report, folder: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write every figure that the runs have data for; the same runs give the same files."""
    from matplotlib import rc_context

    _make_folder(folder)
    written = []
    with rc_context(STYLE):
        for name, figure in _figures(report):
            for kind in formats:
                written.append(_save(figure, folder / f"{name}.{kind}"))
    return written


def _figures(report: Report) -> Iterator[tuple[str, Any]]:
    yield "scores", _scores(report)
    for field in dict.fromkeys((curve_field(report), "train_loss")):
        figure = _curves(report, field)
        if figure is not None:
            yield f"curves-{field.replace('_', '-')}", figure
    names: list[str] = []
    for heat_map in heat_maps(report):
        names.append(file_name(heat_map.key))
        again = names.count(names[-1])  # what differs between two names may not be safe in a file name
        yield f"strengths-{names[-1]}" + (f"-{again}" if again > 1 else ""), _heat(report, heat_map)
    if cost_points(report):
        yield "cost", _cost(report)


def file_name(text: str) -> str:
    """A method's key as a safe part of a file name.

    >>> file_name("katz form=exact"), file_name("../../x")
    ('katz-form-exact', 'x')
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:60] or "method"


def _shortened(text: str, most: int = 64) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _scores(report: Report) -> Any:
    rows = [row for row in report.table().rows if math.isfinite(row.value)]
    longest = max((len(_shortened(row.label.text())) for row in rows), default=0)
    figure, axes = _new(3.2 + 0.075 * longest, 0.8 + 0.34 * max(len(rows), 2))
    for place, row in enumerate(reversed(rows)):
        colour = "#0072b2" if row.rank != 1 else "#d55e00"
        axes.plot(row.values, [place] * len(row.values), ".", color=colour, alpha=0.35)
        error = row.error if math.isfinite(row.error) else None
        axes.errorbar(row.value, place, xerr=error, fmt="o", color=colour, capsize=3)
    axes.set_yticks(range(len(rows)), [_shortened(row.label.text()) for row in reversed(rows)])
    axes.set_xlabel(f"{report.metric.name} {report.metric.arrow}")
    return figure


def _curves(report: Report, field: str) -> Any | None:
    lines = curves(report, field, points=200)
    if not lines:
        return None
    figure, axes = _new(7.6, 3.4)
    for line in lines:
        colour, dash, marker = style_of(line.style)
        axes.plot(line.x, line.mean, color=PALETTE[colour], linestyle=_dash(dash), label=_shortened(line.label.text()),
                  marker=MARKS[marker], markevery=max(1, len(line.x) // 7), markersize=4)  # fmt: skip
        axes.fill_between(line.x, line.low, line.high, color=PALETTE[colour], alpha=0.15, linewidth=0)
    _scale(axes, padded(settled_values(lines), 0, 1, log="perplexity" in field))
    axes.set_xlabel("training step")
    axes.set_ylabel(field.replace("_", " "))
    figure.legend(fontsize=7, loc="outside right upper")  # beside the curves, not over them
    return figure


def _scale(axes: Any, scale: Scale) -> None:
    axes.set_yscale("log" if scale.log else "linear")
    axes.set_yticks(scale.ticks(), [tick_text(tick) for tick in scale.ticks()])
    axes.minorticks_off()
    axes.set_ylim(scale.low, scale.high)


def _heat(report: Report, heat: HeatMap) -> Any:
    import numpy as np

    figure, axes = _new(0.9 + 0.7 * len(heat.minus), 0.9 + 0.5 * len(heat.cells))
    cells = np.array([[math.nan if value is None else value for value in row] for row in heat.cells])
    axes.imshow(cells, cmap="Blues_r" if report.chosen_by.lower_is_better else "Blues", origin="lower", aspect="auto")
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (i, j), value in np.ndenumerate(cells):
        if math.isfinite(value):
            dark = (value < middle) == report.chosen_by.lower_is_better
            weight = "bold" if (i, j) == heat.best else "normal"
            axes.text(j, i, number(value), ha="center", va="center", color="white" if dark else "black", weight=weight)
    axes.set_xticks(range(len(heat.minus)), [brief(value) for value in heat.minus])
    axes.set_yticks(range(len(heat.plus)), [brief(value) for value in heat.plus])
    axes.set(xlabel="γ" if heat.is_line else "γ₋", ylabel="" if heat.is_line else "γ₊")
    axes.set(title=f"{_shortened(heat.label.long, 32)}: {report.chosen_by.name} on validation")
    axes.grid(False)
    return figure


def _cost(report: Report) -> Any:
    figure, axes = _new(5.2, 3.4)
    for point in cost_points(report):
        colour, _, marker = style_of(point.style)
        axes.errorbar(
            point.seconds, point.score, yerr=point.error, color=PALETTE[colour], marker=MARKS[marker], capsize=3
        )
        axes.annotate(
            _shortened(point.label.short, 24), (point.seconds, point.score), xytext=(7, -3), textcoords="offset points"
        )
    axes.set_xlabel("training time, seconds")
    axes.set_ylabel(f"{report.metric.name} {report.metric.arrow}")
    return figure


def _new(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _dash(dash: str) -> Any:
    return (0, tuple(float(part) / 2 for part in dash.split())) if dash else "-"


def _save(figure: Any, path: Path) -> Path:
    kind = path.suffix.lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with atomic_write(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # a name in a rare script
        figure.savefig(temporary, format=kind, dpi=200, metadata=metadata)
    return path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LidstoneError(
            f"cannot create the folder {folder}: {error.strerror}", hint="choose another folder"
        ) from error
