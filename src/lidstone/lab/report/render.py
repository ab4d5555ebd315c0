"""Tables as text, Markdown, LaTeX, CSV and JSON. Each renderer escapes what its format could misread."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lidstone.files import jsonable
from lidstone.lab.report.calibration import CAPTION, HEADS, CalibrationRow
from lidstone.lab.report.labels import Label, latex_escape
from lidstone.lab.report.runs import NOISE
from lidstone.lab.report.tables import NgramBaseline, Row, Table


def markdown_escape(text: str) -> str:
    r"""Text escaped for Markdown.

    >>> print(markdown_escape("a|b *c* <script>"))
    a\|b \*c\* &lt;script&gt;
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return re.sub(r"([\\`*_\[\]|~$!])", r"\\\1", escaped)


@dataclass(frozen=True)
class Style:
    """How a format writes the parts of a table."""

    label: Callable[[Label], str]
    escape: Callable[[str], str] = str
    ranks: Mapping[int, str] = field(default_factory=dict)
    """around the best and the second best value"""
    marks: Callable[[str], str] = str
    error: str = " ± {}"


TEXT = Style(Label.text, ranks={1: "*{}*", 2: "_{}_"})
MARKDOWN = Style(lambda label: markdown_escape(label.text()), markdown_escape, {1: "**{}**", 2: "<u>{}</u>"})
LATEX = Style(
    Label.latex,
    latex_escape,
    {1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"},
    lambda marks: f"$^{{{marks}}}$".translate({0x2020: r"\dagger", 0x2021: r"\ddagger", 0x2013: r"\mbox{--}"}),
    r" {{\small $\pm {}$}}",
)


def _cells(table: Table, style: Style, first: str) -> list[list[str]]:
    """The head of a table, whose first column is called `first`, and its rows, the n-gram model's last."""
    lines = [[first, *map(style.escape, score_heads(table)), "seeds" if table.kind == "seeds" else "seed"]]
    lines += [
        [
            style.label(row.label),
            _value(row, style),
            *(_ranked(style, row.mixed_rank, style.escape(cell)) for cell in mixed_cell(table, row)),
            str(len(row.values)) if table.kind == "seeds" else f"{row.seeds[0]} of {row.settings_tried}",
        ]
        for row in table.rows
    ]
    if table.ngram:
        value = _ranked(style, table.ngram.rank, ngram_value(table.ngram))
        lines.append([style.escape(table.ngram.label), value, "", ""])
    return lines


def _value(row: Row, style: Style) -> str:
    value = _ranked(style, row.rank, style.escape(number(row.value)))
    error = style.error.format(number(row.error)) if math.isfinite(row.error) else ""
    return value + (style.marks(row.marks) if row.marks else "") + error


def _ranked(style: Style, rank: int, text: str) -> str:
    return style.ranks.get(rank, "{}").format(text)


def _joined(cells: Sequence[str], separator: str) -> str:
    return separator.join(f" {cell} " if cell else " " for cell in cells)


def to_text(table: Table) -> str:
    """Columns for a terminal: `*best*`, `_second_`."""
    return _text_columns(_cells(table, TEXT, "method"), _plain_caption(table))


def _text_columns(cells: Sequence[Sequence[str]], caption: str) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = ["-" * width for width in widths]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in (cells[0], rule, *cells[1:])]
    return "\n".join([*lines, "", caption]) + "\n"


def to_markdown(table: Table) -> str:
    """A GitHub table: bold best, second underlined."""
    return _markdown_columns(_cells(table, MARKDOWN, "Method"), table.caption)


def _markdown_columns(cells: Sequence[Sequence[str]], caption: str) -> str:
    lines = [f"|{_joined(line, '|')}|" for line in cells]
    lines.insert(1, "|:--|" + "--:|" * (len(cells[0]) - 1))
    return "\n".join([*lines, "", markdown_escape(caption)]) + "\n"


def calibration_to_text(rows: Sequence[CalibrationRow]) -> str:
    """The table of calibration for a terminal."""
    return _text_columns([["method", *HEADS], *([TEXT.label(row.label), *row.cells] for row in rows)], f"{CAPTION}.")


def calibration_to_markdown(rows: Sequence[CalibrationRow]) -> str:
    """The table of calibration for GitHub."""
    cells = [["Method", *HEADS], *([MARKDOWN.label(row.label), *row.cells] for row in rows)]
    return _markdown_columns(cells, f"{CAPTION}.")


def to_latex(table: Table, label: str = "") -> str:
    r"""A `table` for `\usepackage{booktabs}`, in the paper's own form."""
    head, *body = [_joined(cells, "&").strip() + r" \\" for cells in _cells(table, LATEX, "Smoothing method")]
    if table.ngram:
        body.insert(-1, r"\midrule")
    if 0 < table.rule_after < len(table.rows):
        body.insert(table.rule_after, r"\midrule")
    columns = "l" * (2 + len(score_heads(table)))
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body]
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{latex_escape(table.caption)}}}"]
    lines.append(rf"\label{{{label or 'tab:' + table.kind}}}")
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def verdict(table: Table, baseline_key: str | None, comparisons: Sequence[Mapping[str, Any]] = ()) -> str:
    """The outcome of a table of means in words: the best method, by how much, and whether it could be chance.

    Without a test over seeds it names that of the best seeds over sentences, if `comparisons` have one.
    """
    metric = table.metric
    rows = [row for row in table.rows if metric.tells(row.value) and row.alone]
    if not rows:
        noise = any(math.isfinite(row.value) for row in table.rows)
        return f"No method has learned to translate: every BLEU is below {NOISE:g}." if noise else "Every run diverged."
    best = min(rows, key=lambda row: metric.order(row.value))
    lowest = "lowest" if metric.lower_is_better else "highest"
    baseline = next((row for row in rows if row.key == baseline_key), None)
    name = metric.name if metric.name.isupper() else metric.name.lower()
    value, lead = f"{number(best.value)}{_error(best)}", _better_than(best, table)
    alone = "Of the networks alone, " if lead else ""
    if len(rows) == 1:
        return f"{lead}There is one method, {best.label.long}, with a {name} of {value}."
    if baseline is best:
        none = "Alone, no method" if lead else "No method"
        return f"{lead}{none} beats {baseline.label.long}: it has the {lowest} {name}, {value}."
    first = f"{lead}{alone}{best.label.long} has the {lowest} {name}, {value}"
    if baseline is None:
        return f"{first}. There is no unregularized baseline to compare it with."
    against = [c for c in comparisons if (c.get("system"), c.get("baseline")) == (best.key, baseline_key)]
    other = f"{number(baseline.value)}{_error(baseline)} for {baseline.label.long}"
    return f"{first}, against {other}. {_chance(best, against)}"


def _better_than(best: Row, table: Table) -> str:
    """A sentence on the mixtures and the n-gram model, if they are better than the best network alone."""
    metric, ngram, told = table.metric, table.ngram, []
    if ngram is None:
        return ""
    mixed = min(table.rows, key=lambda row: metric.order(row.mixed))
    if all(metric.better(mixed.mixed, other) for other in (best.value, ngram.high)):
        value = mixed_cell(table, mixed)[0]
        told.append(f"{mixed.label.long} mixed with the n-gram model is best of all, {value}")
    if metric.better(ngram.high, best.value):
        told.append(f"the n-gram model alone, {ngram_value(ngram)}, is better than every network alone")
    text = "; ".join(told)
    return f"{text[0].upper()}{text[1:]}. " if text else ""


def _chance(row: Row, against: Sequence[Mapping[str, Any]]) -> str:
    by_sentences = [c for c in against if c.get("scope") == "best-seed" and c.get("p_value") is not None]
    tested = next((c for c in row.comparisons if c.get("p_value") is not None), None)
    more = f"for the best seed of each it is {_test(by_sentences[0])} over sentences" if by_sentences else ""
    if tested is None:
        unknown = "Whether that is more than chance was not tested."
        return f"That was not tested over seeds; {more}." if more else unknown
    few = any("out of reach" in warning for warning in tested.get("warnings") or ())
    sure = "is significant" if row.marks else "cannot be told from chance by so few seeds" if few else "could be chance"
    return (
        f"The improvement{_interval(tested)} {sure}: {_test(tested)} over seeds{f'; {more}' if few and more else ''}."
    )


def _test(tested: Mapping[str, Any]) -> str:
    return f"{p_text(tested.get('adjusted_p'))}, {tested['test']}"


def _interval(tested: Mapping[str, Any]) -> str:
    effect = tested.get("effect") or {}
    if effect.get("low") is None:
        return ""
    return f" of {signed(effect['difference'])} (95 % interval {signed(effect['low'])} to {signed(effect['high'])})"


def to_csv(tables: Sequence[Table]) -> str:
    """One line for each row of each table, full precision."""
    records = [record for table in tables for record in table.records()]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_safe(value) for key, value in record.items()} for record in records)
    return out.getvalue()


def to_dict(tables: Sequence[Table], **more: Any) -> dict[str, Any]:
    """Rows, captions and `more` as values that JSON can represent."""
    plain = [{"kind": table.kind, "caption": table.caption, "rows": table.records()} for table in tables]
    return dict(jsonable({"schema": 1, **more, "tables": plain}))


def to_json(value: Any) -> str:
    """Values as strict JSON."""
    return json.dumps(jsonable(value), indent=1, ensure_ascii=False, allow_nan=False)


def csv_safe(value: Any) -> Any:
    """A cell that spreadsheets do not interpret as a formula.

    >>> csv_safe("=1+1"), csv_safe(-1.5), csv_safe("katz")
    ("'=1+1", -1.5, 'katz')
    """
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def number(value: float, digits: int = 2) -> str:
    """A score for a table.

    >>> number(137.413), number(float("inf")), number(float("nan")), number(2.5e7)
    ('137.41', '∞', 'diverged', '2.50e+07')
    """
    if math.isnan(value):
        return "diverged"
    if math.isinf(value):
        return "∞"
    return f"{value:.{digits}f}" if abs(value) < 1e5 else f"{value:.2e}"


def signed(value: float) -> str:
    """A difference with its sign; minus is U+2212.

    >>> signed(-9.694), signed(0.5)
    ('−9.69', '+0.50')
    """
    return f"{value:+.2f}".replace("-", "−")


def p_text(p: float | None) -> str:
    """A p-value as text.

    >>> p_text(0.0312), p_text(0.00001), p_text(None)
    ('p = 0.031', 'p < 0.001', 'no p-value')
    """
    if p is None:
        return "no p-value"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def direction_text(comparison: Mapping[str, Any]) -> str:
    """The direction of a difference, to be followed by the name of the baseline.

    >>> direction_text({"direction": "worse"}), direction_text({"direction": None})
    ('worse than', 'against')
    """
    words = {"better": "better than", "worse": "worse than", "equal": "equal to"}
    return words.get(str(comparison.get("direction")), "against")


def score_heads(table: Table) -> list[str]:
    """The columns of scores: one, or the network alone and with the n-gram model."""
    name = f"{table.metric.name} {table.metric.arrow}"
    return [f"{name}, alone", "+ n-gram"] if table.ngram else [name]


def mixed_cell(table: Table, row: Row) -> list[str]:
    """The cell with the score of the mixture; no cell if the table has no such column."""
    if not table.ngram:
        return []
    if not math.isfinite(row.mixed):
        return ["–"]
    error = f" ± {number(row.mixed_error)}" if math.isfinite(row.mixed_error) else ""
    fewer = f" ({row.mixed_runs} of {len(row.values)})" if row.mixed_runs < len(row.values) else ""
    return [number(row.mixed) + error + fewer]


def ngram_value(ngram: NgramBaseline) -> str:
    """The score of the n-gram model; a range where the runs have different training text."""
    return number(ngram.low) if ngram.low == ngram.high else f"{number(ngram.low)} to {number(ngram.high)}"


def _error(row: Row) -> str:
    return f" ± {number(row.error)}" if math.isfinite(row.error) else ""


def _plain_caption(table: Table) -> str:
    return table.caption.replace("in bold, second underlined", "as *best*, second as _second_")
