"""Small tables of facts, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any


def html_table(title: str, facts: Mapping[str, Any]) -> str:
    """Names and values as an HTML table; None is left out, whole numbers get separators.

    >>> html_table("Counts", {"tokens": 12345, "thresholds": None})
    '<table><caption>Counts</caption><tr><th>tokens</th><td>12,345</td></tr></table>'
    """
    rows = (
        f"<tr><th>{escape(name)}</th><td>{escape(_text(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(rows)}</table>"


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
