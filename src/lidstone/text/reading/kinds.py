r"""The kind of a file, from its first bytes: text, ARPA, a table, counts, a KenLM binary or an archive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from lidstone.errors import TextError
from lidstone.text.reading.streams import Source, name_of, open_bytes, open_plain

Kind = Literal["text", "arpa", "table", "counts", "safetensors", "kenlm", "zip", "binary"]

HEAD = 1 << 14
"""How many bytes, after decompression, are checked"""
NAMES: dict[Kind, str] = {
    "text": "text",
    "arpa": "an ARPA file",
    "table": "a table",
    "counts": "counts",
    "safetensors": "a safetensors file",
    "kenlm": "a KenLM binary",
    "zip": "a zip archive",
    "binary": "not text",
}
_ARPA = re.compile(rb"^\s*\\data\\\s*$\s*^ngram +1 *=", re.MULTILINE)
_KIND = re.compile(rb'"kind": "(table|counts)"')


def kind_of(head: bytes) -> Kind:
    r"""The kind of a file that begins with these bytes.

    >>> kind_of(b"\n\\data\\\nngram 1=5\n"), kind_of(b"mmap lm http://kheafield.com/code format version 5\n\0")
    ('arpa', 'kenlm')
    """
    if head.startswith(b"mmap lm http://kheafield.com/code"):
        return "kenlm"
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head[5:9] == b"\0\0\0{":
        found = _KIND.search(head)
        return "safetensors" if found is None else "table" if found[1] == b"table" else "counts"
    if b"\0" in head or not _is_utf8(head):
        return "binary"
    return "arpa" if _ARPA.search(head) else "text"


def _is_utf8(head: bytes) -> bool:
    """Whether bytes are UTF-8, except for a character that is cut off at the end."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start > len(head) - 4
    return True


def kind_of_file(path: str | Path) -> tuple[Kind, bool]:
    """The kind of a file, and whether it is compressed."""
    with open_bytes(path) as stream, open_plain(path) as plain:
        head = stream.read(HEAD)
        return kind_of(head), plain.read(9) != head[:9]


def not_text(kind: Kind, source: Source) -> TextError:
    """The error for a model or an archive that is passed as text."""
    hints = {
        "arpa": "read it with lidstone.read_arpa; on the command line it can be the MODEL",
        "table": "read it with lidstone.load; on the command line it can be the MODEL",
        "counts": "read it with lidstone.load, or fit a smoother: lidstone fit COUNTS --output MODEL",
        "kenlm": "read it with lidstone.load; on the command line it can be the MODEL",
        "zip": "unpack it first: unzip",
    }
    hint = hints.get(kind, "use plain text, one sentence per line")
    return TextError(f"{name_of(source)} is {NAMES[kind]}, not text", hint=hint)
