"""Short displays of large objects, for prompts and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

SHOWN = 4
"""How many values are shown"""


def shortened(values: Sequence[Any]) -> str:
    """The first values, and their number.

    >>> shortened(("a", "b")), shortened(range(9000))
    ("('a', 'b')", '(0, 1, 2, 3, ... 9,000 in all)')
    """
    first = ", ".join(_brief(value) for value in values[:SHOWN])
    return f"({first}, ... {len(values):,} in all)" if len(values) > SHOWN else f"({first})"


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:20]}...{text[-1]}"


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
