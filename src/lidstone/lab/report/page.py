"""The page: one self-contained file that loads nothing from the network and shows the user's strings as text.

The template escapes everything but drawings, style and script. In addition a content security policy allows only the
one script and the one style sheet whose hashes it lists, so that even an error in the escaping could not run or load
anything.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from lidstone.errors import FileFormatError
from lidstone.lab.report import calibration, figures, render
from lidstone.lab.report.labels import names_of, parameter_pairs

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report

MOST_SETTINGS = 1_500
MOST_HISTORIES, MOST_WORDS = 400, 80
COLUMNS = ("p", "smoothed", "plus", "minus")


def page(report: Report) -> str:
    """The whole page as a string."""
    from markupsafe import Markup

    style, script = _asset("report.css"), _asset("report.js")
    return (
        figures.templates()
        .get_template("page.html")
        .render(_content(report), style=Markup(style), script=Markup(script), policy=_policy(style, script))
    )


def explorer_data(explorer: Mapping[str, Any] | None, vocabulary: str = "") -> dict[str, Any] | None:
    """The explorer's data, checked and shortened: p, p~, p+ and p- of the words after a history, for each smoother.

    Words are `[word, p, smoothed, plus, minus]`; None when there are no data. With a `vocabulary`, the hash of that of
    the runs, data of another one are not shown.

    >>> words = [{"word": "the", "p": 0.5, "smoothed": 0.4, "plus": 0.0, "minus": 1.0}]
    >>> made = {"histories": [{"history": ["of"], "count": 2, "smoothers": {"katz": {"z": 0.1, "words": words}}}]}
    >>> explorer_data(made)["histories"][0]["smoothers"]["katz"]["words"]
    [['the', 0.5, 0.4, 0.0, 1.0]]
    """
    if not explorer or not explorer.get("histories"):
        return None
    if vocabulary and explorer.get("vocabulary", vocabulary) != vocabulary:
        return None
    try:
        histories = [_history(entry) for entry in explorer["histories"][:MOST_HISTORIES]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"explorer.json is damaged: {error!r}", hint="write it again, or remove it") from error
    names = dict.fromkeys(name for history in histories for name in history["smoothers"])
    return {"names": {name: names_of(name)[1] for name in names}, "histories": histories}


def _history(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "history": [str(token) for token in entry["history"]],
        "count": int(entry["count"]) if entry.get("count") is not None else None,
        "smoothers": {
            str(name): {"z": _share(split["z"]), "words": [_word(row) for row in split["words"][:MOST_WORDS]]}
            for name, split in entry["smoothers"].items()
        },
    }


def _word(row: Mapping[str, Any]) -> list[Any]:
    return [str(row["word"]), *(_share(row[key]) for key in COLUMNS)]


def _share(value: Any) -> float:
    share = float(value)
    if not math.isfinite(share):
        raise ValueError(f"{value} is not a probability")
    return float(f"{share:.6g}")


def _content(report: Report) -> dict[str, Any]:
    """What the template shows."""
    table, run = report.table(), report.runs[0]
    corpus = run.signature.get("corpus") or {}
    base = next((row.value for row in table.rows if row.key == report.baselines[0] and math.isfinite(row.value)), None)
    return {
        "report": report,
        "title": report.title or f"{report.metric.name} on {corpus.get('name', 'an unnamed corpus')}",
        "names": {m.key: m.key.replace(m.name, m.label.long, 1) for m in report.methods},
        "signature": run.signature,
        "corpus": corpus,
        "table": table,
        "best": report.best_seed_table(),
        "calibration": calibration,
        "effect": _effect,
        "p_value": _p_value,
        "styles": figures.styles(report),
        "seed_scale": figures.strip_scale(table.rows, 6, 234),
        "base": base,
        "curves": list(_curves(report)),
        "maps": figures.heat_maps(report),
        "explorer": explorer_data(report.explorer, str(run.signature.get("vocabulary"))),
        "signatures": list(dict.fromkeys(str(c["signature"]) for c in report.comparisons if c.get("signature"))),
        "settings": list(_settings(report))[:MOST_SETTINGS],
    }


def _curves(report: Report) -> Iterator[tuple[str, str, bool, list[figures.Curve]]]:
    """The metric on validation and the training loss: name, split, whether the axis is logarithmic, curves."""
    for field, where in ((figures.curve_field(report), "on validation"), ("train_loss", "in training")):
        if lines := figures.curves(report, field):
            name = "Loss" if field.endswith("loss") else report.metric.name
            yield name, where, "perplexity" in field, lines


def _settings(report: Report) -> Iterator[tuple[str, str, list[str]]]:
    """Every setting tried: the method, ticked if it is the one shown, the parameters, seeds and scores."""
    for method in report.methods:
        for setting in method.settings:
            pairs = parameter_pairs(setting.runs[0].method)
            scores = (setting.mean("valid", report.chosen_by), setting.mean("test", report.metric))
            tick = "✓ " if setting is method.chosen else ""
            words = ", ".join(f"{symbol}={value}" for symbol, value in pairs) or "—"
            yield tick + method.label.long, words, [str(len(setting.runs)), *map(render.number, scores)]


def _effect(comparison: Mapping[str, Any]) -> str:
    """The difference of a comparison with its interval."""
    effect = comparison.get("effect") or {}
    if effect.get("difference") is None:
        return "—"
    low, high = effect.get("low"), effect.get("high")
    interval = f" [{render.signed(low)}, {render.signed(high)}]" if low is not None and high is not None else ""
    return render.signed(effect["difference"]) + interval


def _p_value(p: float | None) -> str:
    return "—" if p is None else f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def _policy(style: str, script: str) -> str:
    style, script = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    allowed = f"style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _asset(name: str) -> str:
    text = (resources.files("lidstone.lab.report") / "assets" / name).read_text(encoding="utf-8")
    if "</" in text:
        raise AssertionError(f"{name} must not contain '</': it would end its element")
    return text
