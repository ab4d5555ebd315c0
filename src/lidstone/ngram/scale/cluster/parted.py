"""Counts as a folder of parts, as a cluster writes them, and as one file, as everything else reads them.

words.safetensors    the vocabulary and how often each word occurs
part-*.safetensors   the n-grams of orders 2..n of one range of first words, each a piece
parts.json           the order and the parts in order; written last, so its absence means that the count was stopped
counts.safetensors   all of it in one file with suffix links; made when it is first needed
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lidstone import __version__
from lidstone.errors import FileFormatError, InputError
from lidstone.files import write_text
from lidstone.ngram.scale.output.assembly import Parts, write_counts
from lidstone.ngram.scale.pieces import Piece, load_piece
from lidstone.ngram.storage.files import load_counts
from lidstone.parallel import cores

WORDS, INDEX, WHOLE = "words.safetensors", "parts.json", "counts.safetensors"


def save_parts(folder: Path, parts: Parts, files: Sequence[Path]) -> None:
    """Complete a folder that already has the parts."""
    write_counts(folder / WORDS, Parts(parts.vocab, 1, parts.unigrams, []))
    names = [path.name for path in files]
    write_text(folder / INDEX, json.dumps({"order": parts.order, "parts": names, "lidstone": __version__}))


def load_parts(folder: Path, *, verify: bool = True) -> Parts:
    """What `save_parts` wrote, the parts themselves to be opened one by one."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        order, names = int(index["order"]), [str(name) for name in index["parts"]]
    except FileNotFoundError as error:
        hint = "count again into a new folder"
        raise InputError(f"{folder} holds no finished counts: it has no {INDEX}", hint=hint) from error
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{folder / INDEX} is damaged", hint="count again into a new folder") from error
    words = load_counts(folder / WORDS)
    if verify:
        for name in names:
            load_piece(folder / Path(name).name, verify=True)
    pieces = [functools.partial(_open, folder / Path(name).name, order) for name in names]
    return Parts(words.vocab, order, words.counts.astype(np.int64), pieces)


def gathered(path: str | Path, *, memory: int | None = None) -> str | Path:
    """The count file of a folder of parts, made if it is not there yet; anything else is itself."""
    folder = Path(path)
    if not folder.is_dir():
        return path
    whole = folder / WHOLE
    if not whole.is_file():
        write_counts(whole, load_parts(folder), workers=cores())
    return whole


def count_types(parts: Parts) -> list[int]:
    """How many different n-grams there are of each order from 2 on."""
    sizes = np.zeros(parts.order - 1, np.int64)
    for opened in parts.pieces:
        sizes += np.diff(opened().levels)
    return [int(size) for size in sizes]


def _open(path: Path, order: int) -> Piece:
    piece, _ = load_piece(path)
    if piece.order != order:
        raise FileFormatError(f"{path} has order {piece.order}, not {order}", hint="count again into a new folder")
    return piece
