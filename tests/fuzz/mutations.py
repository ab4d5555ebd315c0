"""How sound files become hostile ones: bytes at random, and changes that know the structure of the file."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from lidstone.ngram.formats.checked_tensors import read_arrays, write_arrays

Mutation = Callable[[bytes, random.Random], bytes]

PIECES = (
    *(
        b"",
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\xf0\x9f\x98\x80",
        b"\n",
        b"\r",
        b"\x0b\x0c",
        b"\t",
        b" ",
    ),
    *(b"-", b"nan", b"inf", b"1e999", b"-0", b"9" * 40, b"\\", b"\\data\\", b"\\end\\", b"<s>", b"</s>", b"<unk>"),
    *(b"[" * 50, b"{", b"}", b":", b"&a", b"*a", b"!!int", b"\\ud800"),
)
NUMBERS = (0, 1, -1, 2, 127, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 1e-320, float("nan"), float("inf"), float("-inf"), 99.0)
VALUES = (*NUMBERS[:9], 0.5, -1e308, "", "a", "\ud800", "x" * 3000, None, True, [], {}, [[]], {"a": {"b": 1}}, 10**400)


def bytes_changed(data: bytes, rng: random.Random) -> bytes:
    """One to six changes anywhere: bits, pieces put in, taken out, doubled or swapped, an end cut off."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        changed = _one_change(changed, rng)
    return bytes(changed)


def _one_change(data: bytearray, rng: random.Random) -> bytearray:
    at, other = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    kind = rng.randrange(7)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at:at] = rng.choice(PIECES)
    elif kind == 2:
        del data[at : min(other, at + 1 + rng.randrange(30))]
    elif kind == 3:
        data[other:other] = data[at : at + rng.randrange(60)]
    elif kind == 4 and data:
        data[at % len(data)] = rng.randrange(256)
    elif kind == 5 and rng.random() < 0.3:
        del data[other:]
    else:
        data[at : at + rng.randrange(1, 9)] = rng.choice(PIECES)
    return data


def lines_changed(data: bytes, rng: random.Random) -> bytes:
    """Lines dropped, doubled, moved, or with their words exchanged."""
    lines = data.split(b"\n")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        kind = rng.randrange(4)
        if kind == 0:
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        elif kind == 1 and len(lines) > 1:
            del lines[at]
        elif kind == 2:
            words = lines[at].split()
            rng.shuffle(words)
            lines[at] = rng.choice((b" ", b"\t")).join(words)
        else:
            words = lines[at].split() or [b""]
            words[rng.randrange(len(words))] = rng.choice((*PIECES, *(str(value).encode() for value in REALS)))
            lines[at] = b"\t".join(words)
    return b"\n".join(lines)


def json_changed(data: bytes, rng: random.Random) -> bytes:
    """Some value somewhere in a JSON text replaced, removed or moved."""
    value = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    for _ in range(rng.randint(1, 3)):
        value = _json_change(value, rng)
    text = json.dumps(value).encode()
    return gzip.compress(text) if data[:2] == b"\x1f\x8b" else text


def _json_change(value: Any, rng: random.Random, depth: int = 0) -> Any:
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.1 + 0.1 * depth:
        return deepcopy(rng.choice(VALUES))
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    if rng.random() < 0.15:
        del value[key]
    else:
        value[key] = _json_change(value[key], rng, depth + 1)
    return value


@functools.cache
def _arrays(data: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays and metadata in a file of checked arrays, without the checksums."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays"
        path.write_bytes(data)
        arrays, metadata = read_arrays(path)
    return arrays, {key: text for key, text in metadata.items() if key not in ("checksums", "header_checksum")}


def arrays_changed(data: bytes, rng: random.Random, folder: Path) -> bytes:
    """Numbers, lengths, types or metadata of a file of checked arrays changed, with checksums made again."""
    path = folder / "arrays"
    arrays, metadata = {name: array.copy() for name, array in _arrays(data)[0].items()}, dict(_arrays(data)[1])
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.2 and metadata:
            _metadata_change(metadata, rng)
        else:
            name = rng.choice(list(arrays))
            arrays[name] = _array_change(arrays[name], rng)
    write_arrays(path, {name: array for name, array in arrays.items() if array is not None}, metadata)
    return path.read_bytes()


def _array_change(array: Any, rng: random.Random) -> Any:
    kind = rng.randrange(8)
    if array is None or kind == 0:
        return None
    if kind == 1:
        return array[: rng.randrange(len(array) + 1)].copy()
    if kind == 2:
        return array.astype(rng.choice((np.float64, np.int64, np.int32, np.uint8)))
    if kind == 3:
        return array[::-1].copy()
    if kind == 4:
        return np.concatenate([array, array[: rng.randrange(1, 5)]])
    if len(array):
        _numbers_change(array, rng)
    return array


def _numbers_change(array: Any, rng: random.Random) -> None:
    at = rng.randrange(len(array)) if rng.random() < 0.7 else rng.choice((0, -1))
    if array.dtype.kind == "f":
        array[at] = rng.choice(REALS)
    else:
        near = int(array[at]) + rng.choice((-1, 1))
        low, high = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
        array[at] = max(low, min(high, rng.choice((*NUMBERS, near, near))))


def _metadata_change(metadata: dict[str, str], rng: random.Random) -> None:
    name = rng.choice(list(metadata))
    kind = rng.randrange(4)
    if kind == 0:
        del metadata[name]
    elif kind == 1:
        metadata[name] = rng.choice(("", "x", "[" * 2000, "{}", "[1]", "null", "1e999", "-5", "\u2028"))
    elif metadata[name][:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):  # it may have been changed before
            metadata[name] = json_changed(metadata[name].encode(), rng).decode()
    else:
        metadata[name] = str(rng.choice(NUMBERS))


def one_of(*mutations: Mutation) -> Mutation:
    """A mutation that is one of these, by chance."""
    choices: Sequence[Mutation] = mutations
    return lambda data, rng: rng.choice(choices)(data, rng)
