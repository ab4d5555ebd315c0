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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lidstone import __version__
from lidstone.errors import FileFormatError, InputError
from lidstone.files import write_text
from lidstone.ngram.counts import check_thresholds
from lidstone.ngram.disk.derive import drop_to_file
from lidstone.ngram.disk.memory import half_of_memory
from lidstone.ngram.disk.pieces import Piece, load_piece
from lidstone.ngram.disk.workspace import workspace
from lidstone.ngram.disk.write_counts import Parts, write_counts
from lidstone.ngram.formats.safetensors import load_counts
from lidstone.parallel import cores

WORDS, INDEX, WHOLE = "words.safetensors", "parts.json", "counts.safetensors"


def save_parts(folder: Path, parts: Parts, files: Sequence[Path]) -> Parts:
    """Complete a folder that already has the files of the parts; returns the parts with these."""
    write_counts(folder / WORDS, Parts(parts.vocab, 1, parts.unigrams, []), memory=half_of_memory())
    index: dict[str, Any] = {"order": parts.order, "parts": [path.name for path in files]}
    index |= {"thresholds": parts.thresholds} if any(parts.thresholds) else {}
    write_text(folder / INDEX, json.dumps({**index, "lidstone": __version__}))
    return replace(parts, files=files)


def load_parts(folder: Path) -> Parts:
    """What `save_parts` wrote, the parts themselves to be opened one by one."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        order, names = int(index["order"]), [str(name) for name in index["parts"]]
        thresholds = check_thresholds(index.get("thresholds", [0]), order)
    except FileNotFoundError as error:
        hint = "count again into a new folder"
        raise InputError(f"{folder} holds no finished counts: it has no {INDEX}", hint=hint) from error
    except (ValueError, KeyError, TypeError, InputError) as error:
        raise FileFormatError(f"{folder / INDEX} is damaged", hint="count again into a new folder") from error
    words, files = load_counts(folder / WORDS), [folder / Path(name).name for name in names]
    with ThreadPoolExecutor(cores()) as pool:
        for path, (piece, _) in zip(files, pool.map(functools.partial(load_piece, verify=True), files), strict=True):
            if piece.order != order:
                hint = "count again into a new folder"
                raise FileFormatError(f"{path} has order {piece.order}, not {order}", hint=hint)
    return Parts(words.vocab, order, words.counts.astype(np.int64), files, thresholds)


def gathered(path: str | Path, *, memory: int | None = None) -> str | Path:
    """The count file of a folder of parts, made if it is not there yet; anything else is itself.

    It is made in about `memory` bytes, half of the machine's unless given.
    """
    folder = Path(path)
    if not folder.is_dir():
        return path
    whole = folder / WHOLE
    if not whole.is_file():
        _gather(load_parts(folder), whole, half_of_memory() if memory is None else memory)
    return whole


def _gather(parts: Parts, output: Path, memory: int) -> None:
    if not any(parts.thresholds):
        write_counts(output, parts, workers=cores(), memory=memory)
        return
    with workspace(output, {"thresholds": parts.thresholds}, work="dropping") as folder:
        whole = folder / WHOLE
        write_counts(whole, parts, workers=cores(), memory=memory)
        drop_to_file(whole, output, parts.thresholds, folder, memory=memory, workers=cores())


def count_types(parts: Parts) -> list[int]:
    """How many different n-grams there are of each order from 2 on, without those that thresholds drop."""
    sizes = np.zeros(parts.order - 1, np.int64)
    for path in parts.files:
        sizes += _kept(load_piece(path)[0], parts.thresholds)
    return [int(size) for size in sizes]


def _kept(piece: Piece, thresholds: tuple[int, ...]) -> list[int]:
    orders = range(2, piece.order + 1)
    if not any(thresholds):
        return [piece.level(order).stop - piece.level(order).start for order in orders]
    return [int((piece.counts[piece.level(order)] > thresholds[order - 1]).sum()) for order in orders]
