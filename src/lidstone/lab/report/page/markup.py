"""HTML and SVG that are escaped by construction: everything that is not `Markup` is escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

VOID = frozenset({"meta", "link", "br", "hr", "input"})


class Markup(str):
    """A piece of HTML made by this module; only such pieces are put into a page unescaped."""

    __slots__ = ()


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element. A trailing `_` of a name is removed, others become hyphens; None and False omit an attribute.

    >>> tag("p", "1 < 2", tag("b", "yes"), class_="x", aria_label='a "b"')
    '<p class="x" aria-label="a &quot;b&quot;">1 &lt; 2<b>yes</b></p>'
    """
    opened = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opened if name in VOID else f"{opened}{join(children)}</{name}>")


def join(pieces: Iterable[Any]) -> Markup:
    """Concatenate pieces, text escaped, None left out."""
    return Markup("".join(_escaped(piece) for piece in pieces if piece is not None))


def script_json(value: Any) -> Markup:
    r"""JSON for use inside a script element: no character in it can end the element or a line of script.

    >>> script_json({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _escaped(piece: Any) -> str:
    return piece if isinstance(piece, Markup) else html.escape(str(piece), quote=True)


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(_brief(value), quote=True)}"'


def _brief(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
