"""Output of the verbs: JSON or tables on stdout, messages on stderr, and the signature that goes with a number.

Tables have colour and boxes on a terminal, and plain, aligned columns in a pipe.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lidstone.errors import printable
from lidstone.files import jsonable

if TYPE_CHECKING:
    from pathlib import Path

    from lidstone.ngram.table import BackoffTable


def tolerate_any_terminal() -> None:
    r"""Write characters that the encoding of stdout or stderr does not have as \xe9 or \u4e2d, without an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(message: str) -> None:
    """Print a message to the user: a line on stderr."""
    print(printable(message), file=sys.stderr)


def print_json(value: Any) -> None:
    """One line of JSON on stdout; NaN and infinity become null.

    >>> print_json({"perplexity": float("inf"), "tokens": 3})
    {"perplexity": null, "tokens": 3}
    """
    print(json.dumps(jsonable(value), ensure_ascii=False, allow_nan=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout: first column to the left, numbers to the right.

    >>> print_table(["word", "p"], [["the", "0.25"], ["a", "0.5"]])
    word     p
    the   0.25
    a      0.5
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich_table(headers, rows)
    else:
        print("\n".join(plain_table(headers, rows)))


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Names and their values on stdout, one pair per line; None is a dash.

    >>> print_pairs({"order": 3, "vocab": None})
    order  3
    vocab  -
    """
    width = max(map(len, pairs))
    for name, value in pairs.items():
        print(printable(f"{name.ljust(width)}  {'-' if value is None else value}"))


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table with aligned columns."""
    lines = [headers, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(_aligned(line, widths)).rstrip() for line in lines]


def signature_line(signature: Mapping[str, Any]) -> str:
    """A signature on one line, in sacreBLEU's format.

    >>> signature_line({"smoother": "katz", "parameters": {"k": 5}, "order": 3, "fallback": None})
    'smoother:katz|k:5|order:3'
    """
    return "|".join(f"{key}:{brief(value)}" for key, value in _flat(signature) if value is not None)


def table_signature(table: BackoffTable) -> str:
    """The signature of a model: how it was made, from what, and by which version."""
    from lidstone import __version__

    facts = {key: value for key, value in table.signature.items() if value not in ([], {}, "")}
    made = {
        key: facts.get(key)
        for key in ("smoother", "parameters", "fallback_orders", "thresholds", "pruned", "precision")
    }
    identity = {key: facts.get(key) for key in ("vocabulary", "counts")}
    size = {"vocab": table.vocab.event_count}
    return signature_line({"order": table.order, **made, **size, **identity, "lidstone": __version__})


def print_model(
    table: BackoffTable, output: Path, facts: Mapping[str, Any], as_json: bool, show: Callable[[], None]
) -> None:
    """What a model is that was written: as JSON, or as `show` prints it; if it went to stdout, the signature alone."""
    signature = table_signature(table)
    if str(output) == "-":
        say(signature)
    elif as_json:
        print_json({**facts, "signature": signature})
    else:
        show()
        print(signature)


def _flat(signature: Mapping[str, Any]) -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for key, value in signature.items():
        items += _flat(value) if isinstance(value, Mapping) else [(key, value)]
    return items


def brief(value: Any) -> str:
    """A value without spaces; nested lists are separated by semicolons.

    >>> brief([[0.5, 1.25], [1, 2]]), brief({"2": [0.1], "3": [0.2]}), brief("uniform")
    ('0.5,1.25;1,2', '2=0.1;3=0.2', 'uniform')
    """
    if isinstance(value, Mapping):
        return ";".join(f"{key}={brief(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        return (";" if nested else ",").join(map(brief, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]


def _print_rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The table with colours: text is wrapped, words and numbers are not; if they do not fit, a list for each row."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, table = Console(), Table(box=box.SIMPLE_HEAD, header_style="bold")
    needed = 1
    for column, header in enumerate(headers):
        cells = [row[column] for row in rows]
        text = any(" " in cell for cell in cells)
        needed += 3 + max(map(len, " ".join([header, *cells]).split() if text else [header, *cells]), default=0)
        table.add_column(Text(header), justify="right" if column and not text else "left", no_wrap=not text)
    for row in rows:
        table.add_row(*map(Text, row))
    if needed <= console.width:
        return console.print(table)
    for row in rows:
        print()
        print_pairs(dict(zip(headers, row, strict=True)))
