"""Named arrays in a safetensors file with checksums: written in one step, mapped into memory, verified when read.

The layout is safetensors' own (length of the header, a JSON header, the arrays one after the other), so its library
and any tool reads these files. In the metadata stand a CRC-32 per array and one of the header itself; with the rule
that the arrays fill the file exactly, no damaged bit goes unnoticed. Arrays come sorted by item size, widest first,
so all are aligned and can be used in place.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError, InputError, format_error
from lidstone.files import atomic_write
from lidstone.parallel import cores

Arrays = dict[str, NDArray[Any]]

MAX_HEADER = 1 << 28
BLOCK_BYTES = 1 << 26
_CODES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U64": "<u8", "U16": "<u2", "U8": "u1"}
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(code) for name, code in _CODES.items()}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write_arrays(path: str | Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write one-dimensional arrays and text; the file appears whole or not at all."""
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    contents = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in ordered}
    sums = _checksums(contents)
    header = make_header(contents, {**metadata, "checksums": json.dumps(sums)})
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for array in contents.values():
            _write_blocks(file, array)


def _write_blocks(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write an array; of an array in another file, only the part being copied is in memory."""
    data = array.view(np.uint8)
    for start in range(0, len(data), BLOCK_BYTES):
        file.write(data[start : start + BLOCK_BYTES].data)
        if len(data) > BLOCK_BYTES:
            release(array)


def read_arrays(path: str | Path, *, verify: bool = True) -> tuple[Arrays, dict[str, str]]:
    """Map the file into memory: plain arrays, copied page by page where written to; and the metadata.

    The header is always verified; `verify=False` leaves out the checksums of the arrays, and so the reading of them.
    """
    data = _map(Path(path))
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    if start > min(len(data), MAX_HEADER):
        raise format_error(path, "its header is cut off, or it is no safetensors file")
    header = _parse_header(path, data[8:start].tobytes())
    metadata = header.pop("__metadata__")
    arrays = _views(path, header, data[start:])
    if verify:
        verify_arrays(path, arrays, metadata)
    return arrays, metadata


def make_header(arrays: Mapping[str, Any], metadata: dict[str, str]) -> bytes:
    """The header of a file of these arrays, of which only types and sizes are looked at."""
    entries: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        entries[name] = {"dtype": NAMES[array.dtype], "shape": [len(array)], "data_offsets": [begin, end]}
    metadata["header_checksum"] = _header_checksum({**entries, "__metadata__": metadata})
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    return text + b" " * (-len(text) % 8)


def _header_checksum(header: Mapping[str, Any]) -> str:
    """CRC-32 of all that the header says, in an order of its own."""
    metadata = {name: text for name, text in header["__metadata__"].items() if name != "header_checksum"}
    canonical = json.dumps({**header, "__metadata__": metadata}, sort_keys=True)
    return f"{zlib.crc32(canonical.encode()):08x}"


def _map(path: Path) -> NDArray[np.uint8]:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise format_error(path, f"it has {size} bytes" if size else "it is empty")
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from error


def _parse_header(path: str | Path, text: bytes) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(text)
        metadata = header["__metadata__"]
        known = metadata["header_checksum"]
        found = _header_checksum(header)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"{path} was not written by lidstone, or its header is damaged",
            hint="give a file made by lidstone count or lidstone fit, or make it again",
        ) from error
    if known != found or not all(isinstance(text, str) for text in metadata.values()):
        raise format_error(path, "its header is damaged (checksum)")
    return header


def _views(path: str | Path, header: Mapping[str, Any], data: NDArray[np.uint8]) -> Arrays:
    arrays: Arrays = {}
    end = 0
    for name, entry in header.items():
        try:
            arrays[name], end = _view(entry, data, end)
        except (KeyError, TypeError, ValueError) as error:
            raise format_error(path, f"it is cut off in {name!r}, or the sizes in its header are wrong") from error
    if end != len(data):
        raise format_error(path, f"{len(data) - end} bytes follow its end")
    return arrays


def _view(entry: Mapping[str, Any], data: NDArray[np.uint8], begin: int) -> tuple[NDArray[Any], int]:
    """The array that begins at `begin`, if the header says so too, and where it ends."""
    dtype = DTYPES[entry["dtype"]]
    (start, stop), (size,) = entry["data_offsets"], entry["shape"]
    array = data[begin:stop].view(dtype)
    if start != begin or stop > len(data) or begin % dtype.itemsize or size != len(array):
        raise ValueError("the entry does not fit the file")
    return array, stop


def verify_arrays(path: str | Path, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Refuse arrays whose checksums are not those of the metadata."""
    sums = _checksums(arrays)
    try:
        expected = dict(json.loads(metadata.get("checksums", "{}")))
    except (ValueError, TypeError, RecursionError) as error:
        raise format_error(path, "its checksums are not readable") from error
    for name, found in sums.items():
        if expected.get(name) != found:
            raise format_error(path, f"its part {name!r} is damaged (checksum)")


def _checksums(arrays: Arrays) -> dict[str, str]:
    """The checksum of each array; of large ones several at a time."""
    if sum(array.nbytes for array in arrays.values()) < BLOCK_BYTES:
        return {name: _checksum(array) for name, array in arrays.items()}
    with ThreadPoolExecutor(_workers()) as pool:
        return dict(zip(arrays, pool.map(_checksum, arrays.values()), strict=True))


def _checksum(array: NDArray[Any]) -> str:
    """CRC-32 of the bytes, in hex; of an array in a file, only the part being read is in memory."""
    data, value = memoryview(array).cast("B"), 0  # type: ignore[arg-type]
    for start in range(0, len(data), BLOCK_BYTES):
        value = zlib.crc32(data[start : start + BLOCK_BYTES], value)
        if len(data) > BLOCK_BYTES:
            release(array)
    return f"{value:08x}"


def release(array: NDArray[Any]) -> None:
    """Give the pages of a mapped file back to the system; they are read again where needed. Written ones are lost."""
    owner = _owner(array)
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether an array is a part of a mapped file."""
    return isinstance(_owner(array), mmap.mmap)


def _owner(array: NDArray[Any]) -> Any:
    """What an array is a view of in the end."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def _workers() -> int:
    return min(cores(), 8)
