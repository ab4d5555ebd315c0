"""CCNet's normalization of text, in one compiled pass over the characters of many texts.

The rules, in their order: lower case; numbers become 0; accents are taken off, that is, characters are taken apart and
lose their nonspacing marks; blanks at both ends go; Unicode punctuation becomes ASCII; control characters go. Numbers
are whole ones with at most one separator, as in datatrove (`3,75` is one 0), or single digits, as in CCNet's own
program (`0,00`). No rule looks beyond a line feed, so that texts can be joined.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

SEPARATORS = ".,\u060c\u066b\u2396\u2397\u2398"
"""Between the two halves of a number"""
NEW_DIGITS = (0x10D40, 0x116D0, 0x116DA, 0x11BF0, 0x11DE0, 0x11F50, 0x16130, 0x16D70, 0x1CCF0, 0x1E4F0, 0x1E5F1)
"""The zeros of decimal digits that Python's own table of characters does not have in all versions."""
PUNCTUATION = {
    **dict.fromkeys("„“”«»「」《》", '"'),
    **dict.fromkeys("´’", "'"),
    **dict.fromkeys("，、", ","),
    **dict.fromkeys("：∶", ":"),
    **dict.fromkeys("–━►", "-"),
    **dict(zip("。；？！（）～〈〉【】％", ".;?!()~<>[]%", strict=True)),
    "—": " - ",
    "．": ". ",
    "…": "...",
}
"""Unicode punctuation and its ASCII"""
PLAIN, DIGIT, MARK, CONTROL, BLANK, BLANK_CONTROL, SEPARATOR, PUNCTUATED = range(8)
"""Kinds of characters; the last and all after it are those of `PUNCTUATION`, in its order."""


def normalized(texts: Sequence[str | bytes], *, whole_numbers: bool = True) -> list[bytes]:
    """Each text by these rules, without a line feed.

    >>> normalized(["Ça coûte 3,75"])[0], normalized(["3,75"], whole_numbers=False)
    (b'ca coute 0', [b'0,00'])
    """
    joined = _joined(texts)
    if joined.count("\n") >= len(texts):  # one inside of a text is a control character, as a carriage return is
        joined = "\n".join([_joined([text]).replace("\n", "\r") for text in texts])
    joined = unicodedata.normalize("NFD", joined.lower())
    characters = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    found = np.empty(4 * len(characters) + 4, np.uint8)
    size: int = _normalize(characters, *_tables(), whole_numbers, found)
    return found[:size].tobytes().split(b"\n")


def _joined(texts: Sequence[str | bytes]) -> str:
    try:
        return b"\n".join(texts).decode(errors="replace")  # type: ignore[arg-type]
    except TypeError:
        each = (text if isinstance(text, str) else text.decode(errors="replace") for text in texts)
        return "\n".join(each)


@cache
def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The kind of each character, and the ASCII of punctuation."""
    kinds = np.zeros(0x110000, np.uint8)
    for place in chain(range(0x20000), range(0xE0000, 0xE1000)):  # no other has a kind of its own
        character = chr(place)
        category = unicodedata.category(character)
        is_control = place < 32 or 127 <= place < 160
        if character.isspace():
            kinds[place] = BLANK_CONTROL if is_control else BLANK
        elif is_control:
            kinds[place] = CONTROL
        elif category in ("Nd", "Mn"):
            kinds[place] = DIGIT if category == "Nd" else MARK
    for zero in NEW_DIGITS:
        kinds[zero : zero + 10] = DIGIT
    kinds[list(map(ord, SEPARATORS))] = SEPARATOR
    kinds[list(map(ord, PUNCTUATION))] = PUNCTUATED + np.arange(len(PUNCTUATION))
    plain = "".join(text.ljust(3, "\0") for text in PUNCTUATION.values()).encode()
    return kinds, np.frombuffer(plain, np.uint8).reshape(-1, 3)


@njit(nogil=True, cache=True)
def _normalize(text: Any, kinds: Any, plain: Any, whole: bool, found: Any) -> Any:
    """Write the normalized text in UTF-8; return its size. Surrogates become question marks."""
    at = last = i = np.int64(0)  # last: the end of the text so far without blanks at its end
    is_begun = False
    while i < len(text):
        character = text[i]
        i += 1
        if character == 10:
            at, is_begun = last, False
            found[at] = 10
            at += 1
            last = at
            continue
        kind = kinds[character]
        if kind == MARK:
            continue
        if kind in (BLANK, BLANK_CONTROL):
            if is_begun and kind == BLANK:
                at = _encode(found, at, character)
            continue
        is_begun = True
        if kind == DIGIT:
            found[at] = 48
            at += 1
            if whole:
                i = _digits_end(text, i, kinds)
                if i + 1 < len(text) and kinds[text[i]] == SEPARATOR and kinds[text[i + 1]] == DIGIT:
                    i = _digits_end(text, i + 1, kinds)
        elif kind >= PUNCTUATED:
            for byte in plain[kind - PUNCTUATED]:
                if byte:
                    found[at] = byte
                    at += 1
        elif kind != CONTROL:
            at = _encode(found, at, character)
        last = at
    return last


@njit(nogil=True, cache=True)
def _digits_end(text: Any, i: Any, kinds: Any) -> Any:
    while i < len(text) and kinds[text[i]] == DIGIT:
        i += 1
    return i


@njit(nogil=True, cache=True)
def _encode(found: Any, at: Any, character: Any) -> Any:
    """Write a character in UTF-8; return where it ends."""
    if character < 0x80:
        found[at] = character
        return at + 1
    if character < 0x800:
        found[at] = 0xC0 | character >> 6
    elif 0xD800 <= character < 0xE000:
        found[at] = 63
        return at + 1
    else:
        if character < 0x10000:
            found[at] = 0xE0 | character >> 12
        else:
            found[at] = 0xF0 | character >> 18
            at += 1
            found[at] = 0x80 | character >> 12 & 0x3F
        at += 1
        found[at] = 0x80 | character >> 6 & 0x3F
    found[at + 1] = 0x80 | character & 0x3F
    return at + 2
