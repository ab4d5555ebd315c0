"""The page: one self-contained file that loads nothing from the network and shows the user's strings as text.

`markup` escapes. In addition a content security policy allows only the one script and the one style sheet whose
hashes it lists, so that even an error in the escaping could not run or load anything.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from lidstone.lab.report.page.explorer import explorer_data
from lidstone.lab.report.page.markup import Markup, join, script_json, tag
from lidstone.lab.report.page.sections import all_sections
from lidstone.lab.report.verdict import verdict

if TYPE_CHECKING:
    from lidstone.lab.report.report import Report


def page(report: Report) -> str:
    """The whole page as a string."""
    style, script = _asset("report.css"), _asset("report.js")
    explorer = explorer_data(report.explorer, str(report.runs[0].signature.get("vocabulary")))
    sections = all_sections(report, explorer)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="lidstone"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title(report)),
        tag("style", style),
    )
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#results", class_="skip"),
        _header(report, [(key, name) for key, name, _ in sections]),
        tag("main", *(section for _, _, section in sections)),
        tag("footer", f"Made by lidstone from {len(report.runs):,} runs. This file needs no network."),
        tag("script", script_json(explorer), type="application/json", id="explorer-data") if explorer else None,
        tag("script", script),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en")


def title(report: Report) -> str:
    """The heading: the user's own, or the metric and the corpus."""
    corpus = (report.runs[0].signature.get("corpus") or {}).get("name", "an unnamed corpus")
    return report.title or f"{report.metric.name} on {corpus}"


def _header(report: Report, sections: list[tuple[str, str]]) -> Markup:
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name in sections]
    return tag(
        "header",
        tag("div", tag("p", "lidstone report", class_="brand"), _theme_button(), class_="bar"),
        tag("h1", title(report)),
        tag("p", verdict(report), class_="verdict"),
        tag("nav", tag("ul", *links), aria_label="Sections"),
    )


def _theme_button() -> Markup:
    return tag("button", "Dark", type="button", id="theme", aria_pressed="false", title="Light or dark colours")


def _policy(style: str, script: str) -> str:
    rules = {
        "default-src": "'none'",
        "style-src": f"'sha256-{_digest(style)}'",
        "script-src": f"'sha256-{_digest(script)}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{rule} {value}" for rule, value in rules.items())


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> Markup:
    text = resources.files("lidstone.lab.report.page").joinpath("assets", name).read_text(encoding="utf-8")
    if "</" in text:
        raise AssertionError(f"{name} must not contain '</': it would end its element")
    return join([Markup(text)])
