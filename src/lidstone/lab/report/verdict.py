"""The result in one or two sentences: the best method, by how much, and whether it could be chance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lidstone.lab.report.render import number, p_text, signed
from lidstone.lab.report.table import Row

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report


def verdict(report: Report) -> str:
    """The outcome of the main table in words."""
    rows = [row for row in report.table().rows if math.isfinite(row.value) and row.alone]
    if not rows:
        return "Every run diverged."
    best = min(rows, key=lambda row: report.metric.order(row.value))
    lowest = "lowest" if report.metric.lower_is_better else "highest"
    baseline = next((row for row in rows if row.key == report.baselines[0]), None)
    name = report.metric.name if report.metric.name.isupper() else report.metric.name.lower()
    if len(rows) == 1:
        return f"There is one method, {best.label.long}, with a {name} of {_score(best)}."
    if baseline is best:
        return f"No method beats {baseline.label.long}: it has the {lowest} {name}, {_score(best)}."
    first = f"{best.label.long} has the {lowest} {name}, {_score(best)}"
    if baseline is None:
        return f"{first}. There is no unregularized baseline to compare it with."
    return f"{first}, against {_score(baseline)} for {baseline.label.long}. {_chance(best)}"


def _score(row: Row) -> str:
    return number(row.value) + (f" ± {number(row.error)}" if math.isfinite(row.error) else "")


def _chance(row: Row) -> str:
    tested = next((c for c in row.comparisons if c.get("p_value") is not None), None)
    if tested is None:
        return "Whether that is more than chance was not tested."
    effect = tested.get("effect") or {}
    interval = ""
    if effect.get("low") is not None:
        interval = (
            f" of {signed(effect['difference'])} (95 % interval {signed(effect['low'])} to {signed(effect['high'])})"
        )
    sure = "is significant" if row.marks else "could be chance"
    return f"The improvement{interval} {sure}: {p_text(tested.get('adjusted_p'))}, {tested['test']} over seeds."
