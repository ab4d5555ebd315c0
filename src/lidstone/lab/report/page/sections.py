"""The sections of the page, each a heading, a sentence on how to read it, and a table or figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lidstone.lab.report.beside import NgramAlone
from lidstone.lab.report.labels import Label
from lidstone.lab.report.methods import Setting
from lidstone.lab.report.page.charts import cost_chart, curve_chart, forest_axis, forest_strip, heat_chart, swatch
from lidstone.lab.report.page.markup import Markup, join, tag
from lidstone.lab.report.render import direction_text, mixed_cell, ngram_value, number, p_text, score_heads, signed
from lidstone.lab.report.scales import padded
from lidstone.lab.report.series import cost_points, curve_field, curves, heat_maps, styles
from lidstone.lab.report.table import Row, Table

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report

Section = tuple[str, str, Markup]
MOST_SETTINGS = 1_500


def all_sections(report: Report, explorer: Mapping[str, Any] | None) -> list[Section]:
    """Key, name and content of every section that has something to show."""
    made = [
        ("results", "Results", results(report)),
        ("best-seeds", "Best seeds", best_seeds(report)),
        ("curves", "Learning curves", learning_curves(report)),
        ("strengths", "Strengths", strengths(report)),
        ("cost", "Cost and quality", cost(report)),
        ("explorer", "Explorer", explorer_form() if explorer else None),
        ("tests", "Tests", tests(report)),
        ("details", "Details", details(report)),
    ]
    return [(key, name, _section(key, name, content)) for key, name, content in made if content is not None]


def results(report: Report) -> Markup:
    """The main table, with a strip that shows every seed."""
    table = report.table()
    style = styles(report)
    values = [v for row in table.rows for v in row.values if math.isfinite(v)]
    scale = padded(values, 6, 234)
    baseline = next((row.value for row in table.rows if row.key == report.baselines[0]), None)
    base = baseline if baseline is not None and math.isfinite(baseline) else None
    rows = [
        tag("tr", _name_cell(row), _value_cell(row), *_mixed_cell(table, row),
            tag("td", _difference(row), class_="number"),
            tag("td", forest_strip(row, scale, base, style[row.key]), class_="seeds"),
            tag("td", len(row.values), class_="number"), class_="best" if row.rank == 1 else None)
        for row in table.rows
    ]  # fmt: skip
    against = f"Improvement over {_names(report).get(report.baselines[0] or '', report.baseline_name)}"
    each = join(["Each seed", forest_axis(scale)])
    heads = ["Method", *score_heads(table), against, each, "Seeds"]
    if table.ngram:
        rows.append(_ngram_row(table.ngram, len(heads)))
    return join([_warnings(report), _table(table.caption, heads, rows)])


def _mixed_cell(table: Table, row: Row) -> list[Markup]:
    return [tag("td", cell, class_="number") for cell in mixed_cell(table, row)]


def _ngram_row(ngram: NgramAlone, columns: int) -> Markup:
    value = tag("td", ngram_value(ngram), class_="number")
    return tag("tr", tag("th", ngram.label, scope="row"), value, tag("td", colspan=str(columns - 2)))


def best_seeds(report: Report) -> Markup:
    """The best-seed table."""
    table: Table = report.best_seed_table()
    names = _names(report)
    rows = [
        tag("tr", _name_cell(row), _value_cell(row), *_mixed_cell(table, row),
            tag("td", f"{row.seeds[0]}", class_="number"),
            tag("td", _against(row, names), class_="words"),
            class_="best" if row.rank == 1 else None)
        for row in table.rows
    ]  # fmt: skip
    return _table(table.caption, ["Method", *score_heads(table), "Seed", "Tests"], rows)


def _against(row: Row, names: Mapping[str, str]) -> str:
    return "; ".join(f"{direction_text(c)} {names[c['baseline']]}, {_p_text(c)}" for c in row.comparisons) or "—"


def _p_text(comparison: Mapping[str, Any]) -> str:
    return p_text(comparison.get("adjusted_p"))


def _names(report: Report) -> dict[str, str]:
    """Full names by key; the rest of a key, such as `form=exact`, follows the name."""
    return {m.key: m.key.replace(m.name, m.label.long, 1) for m in report.methods}


def learning_curves(report: Report) -> Markup | None:
    """The metric on validation and the training loss, with legends that switch lines on and off."""
    fields = [(curve_field(report), "on validation"), ("train_loss", "in training")]
    figures = []
    for field, where in fields:
        lines = curves(report, field)
        if lines:
            name = "Loss" if field.endswith("loss") else report.metric.name
            log = name == "Perplexity" or "perplexity" in field
            caption = f"{name} {where}{', logarithmic' if log else ''}. Lines are means, bands the range over seeds; "
            caption += "the scale leaves out the first steps."
            legend = _legend([(c.key, c.label, c.style) for c in lines])
            figures.append(tag("figure", curve_chart(lines, name, log=log), legend, tag("figcaption", caption)))
    return tag("div", *figures, class_="figures") if figures else None


def strengths(report: Report) -> Markup | None:
    """Heat maps of both strengths, or a line if one gamma sets both."""
    maps = heat_maps(report)
    if not maps:
        return None
    figures = [tag("figure", heat_chart(m, report.chosen_by), tag("figcaption", _map_caption(m.label))) for m in maps]
    about = f"{report.metric.name} on validation for each strength or pair of strengths; a stronger blue is better, "
    about += "the best is framed. Where other parameters were searched too, the best of them is shown."
    return join([tag("p", about, class_="how"), tag("div", *figures, class_="maps")])


def cost(report: Report) -> Markup | None:
    """Training time against quality."""
    points = cost_points(report)
    if not points:
        return None
    caption = "Mean training time and test score over seeds; bars are standard errors."
    return tag("figure", cost_chart(points, report.metric), tag("figcaption", caption))


def explorer_form() -> Markup:
    """The form in which the script shows p, p~, p+ and p-; without scripts, a note."""
    fields = [("history", "History"), ("smoother", "Smoother"), ("order", "Sort by")]
    search = tag("div", tag("label", "Find a history", for_="explorer-search"),
                 tag("input", id="explorer-search", type="search", autocomplete="off", spellcheck="false"),
                 class_="field")  # fmt: skip
    selects = [
        tag("div", tag("label", name, for_=f"explorer-{key}"), tag("select", id=f"explorer-{key}"), class_="field")
        for key, name in fields
    ]
    about = "Choose a history and a smoother to see the empirical distribution (p), the smoothed one (p̃), "
    about += "and the two distributions that smoothing adds and subtracts: p̃ = p + Z (p₊ − p₋)."
    return join(
        [
            tag("p", about, class_="how"),
            tag("form", search, *selects, id="explorer-form"),
            tag("p", id="explorer-says", aria_live="polite"),
            tag("div", tag("table", id="explorer-table"), class_="scroll", tabindex="0", role="region",
                aria_label="Words and probabilities"),
            tag("noscript", tag("p", "The explorer needs JavaScript; everything else on this page does not.")),
        ]
    )  # fmt: skip


def tests(report: Report) -> Markup | None:
    """Every comparison with its effect; the signatures, which many share, follow below."""
    if not report.comparisons:
        return None
    names = _names(report)
    signatures = list(dict.fromkeys(str(c.get("signature")) for c in report.comparisons if c.get("signature")))
    rows = [
        tag("tr", tag("th", names.get(c["system"], c["system"]), scope="row"),
            tag("td", names.get(c["baseline"], c["baseline"])), tag("td", c.get("test", ""), _note(c, signatures)),
            tag("td", c.get("direction") or "—"),
            tag("td", _effect(c.get("effect")), tag("small", c.get("unit") or ""), class_="number"),
            tag("td", _p(c.get("p_value")), class_="number"),
            tag("td", _p(c.get("adjusted_p")), class_="number"))
        for c in report.comparisons
    ]  # fmt: skip
    heads = ["System", "Against", "Test", "Direction", "Improvement, 95 % interval", "p", "Adjusted p"]
    caption = "All tests, two-sided. A positive improvement means that the system is better than what it is compared "
    caption += "with: a lower perplexity, a higher BLEU, a higher log-likelihood (nats per sentence)."
    listed = tag("ol", *(tag("li", tag("code", signature)) for signature in signatures), class_="signatures")
    return join([_table(caption, heads, rows), listed])


def _note(comparison: Mapping[str, Any], signatures: Sequence[str]) -> Markup | None:
    signature = comparison.get("signature")
    return tag("sup", signatures.index(signature) + 1) if signature in signatures else None


def details(report: Report) -> Markup:
    """Every setting tried, and the signature of the measurements."""
    pairs = [(m.label, s) for m in report.methods for s in m.settings][:MOST_SETTINGS]
    chosen = {id(m.chosen) for m in report.methods}
    rows = [_setting_row(report, label, setting, id(setting) in chosen) for label, setting in pairs]
    other = "" if report.chosen_by == report.metric else f", {report.chosen_by.name}"
    heads = ["Method", "Setting", "Seeds", f"Validation{other}", "Test"]
    caption = f"{len(pairs):,} settings; ✓ marks the one shown for its method."
    listing = tag("details", tag("summary", "Every setting that was tried"), _table(caption, heads, rows))
    run = report.runs[0]
    facts = {
        "Tested on": report.about,
        "Vocabulary": f"{run.signature.get('vocabulary', '?')} ({run.signature.get('vocabulary_size', '?')} types)",
        "Test set": (run.signature.get("corpus") or {}).get("test", "?"),
        "Parameters of the model": run.signature.get("model_parameters", "?"),
        "Runs": f"{len(report.runs):,}",
    }
    items = [piece for name, fact in facts.items() for piece in (tag("dt", name), tag("dd", fact))]
    return join([tag("dl", *items), listing])


def _section(key: str, name: str, content: Markup) -> Markup:
    return tag("section", tag("h2", name, id=f"{key}-title"), content, id=key, aria_labelledby=f"{key}-title")


def _table(caption: str, heads: Sequence[str | Markup], rows: Sequence[Markup]) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in heads)))
    table = tag("table", tag("caption", tag("span", caption)), head, tag("tbody", *rows))
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption.split(".")[0])


def _name_cell(row: Row) -> Markup:
    small = tag("small", row.label.details) if row.label.parameters else None
    return tag("th", tag("span", row.label.long, class_="name"), small, scope="row")


def _value_cell(row: Row) -> Markup:
    value = {1: "strong", 2: "u"}.get(row.rank, "span")
    marks = tag("sup", row.marks) if row.marks else None
    error = tag("small", f"± {number(row.error)}") if math.isfinite(row.error) else None
    return tag("td", tag(value, number(row.value)), marks, error, class_="number score")


def _difference(row: Row) -> Markup:
    if not row.comparisons:
        return join(["—"])
    first = row.comparisons[0]
    words = f"{first.get('direction') or ''}, {_p_text(first)}".removeprefix(", ")
    return join([_effect(first.get("effect")), tag("small", words)])


def _effect(effect: Mapping[str, Any] | None) -> str:
    if not effect or effect.get("difference") is None:
        return "—"
    interval = f" [{signed(effect['low'])}, {signed(effect['high'])}]" if effect.get("low") is not None else ""
    return signed(effect["difference"]) + interval


def _p(p: float | None) -> str:
    return "—" if p is None else f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def _legend(entries: Sequence[tuple[str, Label, int]]) -> Markup:
    buttons = [
        tag("button", swatch(style), label.text(), type="button", aria_pressed="true", data_series=key, class_="key")
        for key, label, style in entries
    ]
    return tag("div", *buttons, class_="legend", role="group", aria_label="Show or hide methods")


def _map_caption(label: Label) -> Markup:
    return tag("span", label.long)


def _warnings(report: Report) -> Markup | None:
    if not report.warnings:
        return None
    shown = [tag("li", warning) for warning in report.warnings[:12]]
    more = tag("li", f"and {len(report.warnings) - 12} more") if len(report.warnings) > 12 else None
    return tag("aside", tag("h3", "Please note"), tag("ul", *shown, more), class_="notes", aria_label="Notes")


def _setting_row(report: Report, label: Label, setting: Setting, chosen: bool) -> Markup:
    from lidstone.lab.report.labels import parameter_pairs

    pairs = parameter_pairs(setting.runs[0].method)
    cells = [", ".join(f"{a}={b}" for a, b in pairs) or "—", len(setting.runs)]
    scores = [number(setting.mean("valid", report.chosen_by)), number(setting.mean("test", report.metric))]
    name = tag("th", f"✓ {label.long}" if chosen else label.long, scope="row")
    return tag("tr", name, tag("td", cells[0]), *(tag("td", c, class_="number") for c in (cells[1], *scores)))
