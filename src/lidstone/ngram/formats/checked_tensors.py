"""Named arrays in a safetensors file with checksums: written in one step, mapped into memory, verified when read.

The layout is safetensors' own (length of the header, a JSON header, the arrays one after the other), so its library
and any tool reads these files. In the metadata stand a CRC-32 per array and one of the header itself; with the rule
that the arrays fill the file exactly, no damaged bit goes unnoticed. Arrays come sorted by item size, widest first,
so all are aligned and can be used in place.

`write_arrays` writes what is in memory. A `StreamFile` has the same bytes in the end, but its arrays are written a
stretch at a time, also by other threads, processes and machines (`Target.write`), and can be read meanwhile. Who writes
a stretch computes its checksum; `join_checksums` makes those of the arrays from them, so nothing is read again.
"""

from __future__ import annotations

import functools
import io
import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import FileFormatError, InputError, format_error
from lidstone.files import atomic_write, reserve
from lidstone.parallel import cores

Arrays = dict[str, NDArray[Any]]

MAX_HEADER = 1 << 28
BLOCK_BYTES = 1 << 26
WRITE_BYTES = 1 << 20
"""Written or hashed at once: it stays in the processor's cache."""
_CODES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U64": "<u8", "U16": "<u2", "U8": "u1"}
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(code) for name, code in _CODES.items()}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write_arrays(path: str | Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write one-dimensional arrays and text; the file appears whole or not at all."""
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    contents = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in ordered}
    sums = _checksums(contents)
    header = make_header(contents, {**metadata, "checksums": json.dumps(sums)})
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for array in contents.values():
            file.writelines(byte_blocks(array))


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
    verify_checksums(path, _checksums(arrays), metadata)


def verify_checksums(path: str | Path, sums: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    """Refuse checksums that are not those of the metadata."""
    try:
        expected = dict(json.loads(metadata.get("checksums", "{}")))
    except (ValueError, TypeError, RecursionError) as error:
        raise format_error(path, "its checksums are not readable") from error
    for name, found in sums.items():
        if expected.get(name) != found:
            raise format_error(path, f"its part {name!r} is damaged (checksum)")


def _checksums(arrays: Arrays) -> dict[str, str]:
    """The checksum of each array, in hex; of large ones several at a time."""
    if sum(array.nbytes for array in arrays.values()) < BLOCK_BYTES:
        return {name: f"{checksum_of(array):08x}" for name, array in arrays.items()}
    with ThreadPoolExecutor(_workers()) as pool:
        found = pool.map(checksum_of, arrays.values())
        return {name: f"{value:08x}" for name, value in zip(arrays, found, strict=True)}


def checksum_of(array: NDArray[Any]) -> int:
    """CRC-32 of the bytes."""
    return functools.reduce(lambda value, block: zlib.crc32(block, value), byte_blocks(array), 0)


def byte_blocks(array: NDArray[Any]) -> Iterator[memoryview]:
    """The bytes of an array, block by block; of an array in a file, only one block is in memory at a time."""
    data = memoryview(array).cast("B")  # type: ignore[arg-type]
    for start in range(0, len(data), BLOCK_BYTES):
        yield data[start : start + BLOCK_BYTES]
        if len(data) > BLOCK_BYTES:
            release(array)


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


@dataclass(frozen=True)
class Shape:
    """An array to come."""

    dtype: np.dtype[Any]
    size: int

    def __len__(self) -> int:
        return self.size

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.size * self.dtype.itemsize


def shapes_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Shape]:
    """The shapes of arrays that are there already."""
    return {name: Shape(array.dtype, len(array)) for name, array in arrays.items()}


class Written(NamedTuple):
    """Values that are in the file already."""

    size: int
    checksum: int
    """CRC-32 of their bytes"""


Part = Written | NDArray[Any]
"""The next values of an array: those in the file already, or the values themselves."""


@dataclass(frozen=True)
class Target:
    """Where an array stands in a file that others write to."""

    path: str
    start: int
    dtype: np.dtype[Any]

    def write(self, index: int, values: NDArray[Any]) -> Part:
        """Write values from `index` on; gives them back where the file is out of reach, as on another machine."""
        try:
            with Path(self.path).open("r+b", buffering=0) as file:
                file.seek(self.start + index * self.dtype.itemsize)
                checksum = _write_all(file, np.ascontiguousarray(values, self.dtype).data.cast("B"))
        except FileNotFoundError:
            return values
        return Written(len(values), checksum)

    def read(self, size: int) -> NDArray[Any]:
        """The first `size` values, mapped into memory; those that are written later appear there."""
        return np.asarray(np.memmap(self.path, self.dtype, "r", self.start, (size,)))


def _write_all(file: BinaryIO | io.FileIO, data: memoryview, checksum: int = 0) -> int:
    """Write all bytes; their CRC-32, which continues `checksum`."""
    while data:
        done = file.write(data[:WRITE_BYTES]) or 0
        checksum = zlib.crc32(data[:done], checksum)
        data = data[done:]
    return checksum


POLYNOMIAL = 0xEDB88320
"""Of CRC-32. The highest bit of a number stands for x^0, the lowest for x^31."""


def join_checksums(first: int, second: int, size: int) -> int:
    """The CRC-32 of two stretches of bytes one after the other; the second has `size` bytes.

    A checksum is the remainder of the bytes, as a polynomial, divided by `POLYNOMIAL`, so the first one is shifted by
    8 `size` places. That is a multiplication by x^(8 size).

    >>> join_checksums(zlib.crc32(b"to"), zlib.crc32(b"gether"), 6) == zlib.crc32(b"together")
    True
    """
    return _product(_power_of_x(8 * size), first) ^ second


def _product(one: int, other: int) -> int:
    """The product of two polynomials, divided by `POLYNOMIAL`: the remainder."""
    found = 0
    for place in range(31, -1, -1):
        found ^= other if one >> place & 1 else 0
        other = other >> 1 ^ (POLYNOMIAL if other & 1 else 0)
    return found


def _power_of_x(exponent: int) -> int:
    powers = (_repeated_square(place) for place in range(exponent.bit_length()) if exponent >> place & 1)
    return functools.reduce(_product, powers, 1 << 31)


@functools.cache
def _repeated_square(times: int) -> int:
    """The power of x with exponent 2^times."""
    return 1 << 30 if times == 0 else _product(_repeated_square(times - 1), _repeated_square(times - 1))


class StreamFile:
    """Arrays of known type and size, each written from its start to its end. `finish` makes them a file."""

    def __init__(self, path: Path, shapes: Mapping[str, Shape], metadata: Mapping[str, str]) -> None:
        self.shapes = dict(sorted(shapes.items(), key=lambda item: -item[1].dtype.itemsize))
        self.metadata, self.path = metadata, path
        self.sizes, self.sums = dict.fromkeys(self.shapes, 0), dict.fromkeys(self.shapes, 0)
        self.starts, end = {}, 8 + len(self._header(dict.fromkeys(self.shapes, "00000000")))
        for name, shape in self.shapes.items():
            self.starts[name], end = end, end + shape.nbytes
        self.file = path.open("w+b", buffering=0)
        try:
            reserve(self.file, end)
        except OSError:
            self.file.close()
            raise

    def __enter__(self) -> StreamFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def append(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """The next values of some arrays."""
        for name, values in arrays.items():
            if self.sizes[name] + len(values) > self.shapes[name].size:
                raise ValueError(f"too many values for {name}")
            self.file.seek(self.starts[name] + self.sizes[name] * self.shapes[name].dtype.itemsize)
            data = np.ascontiguousarray(values, self.shapes[name].dtype).data.cast("B")
            self.sums[name] = _write_all(self.file, data, self.sums[name])
            self.sizes[name] += len(values)

    def target(self, name: str) -> Target:
        """Where others write values of an array."""
        return Target(str(self.path), self.starts[name], self.shapes[name].dtype)

    def take(self, parts: Mapping[str, Part]) -> None:
        """The next values of some arrays, which are in the file already or are written now."""
        for name, part in parts.items():
            if isinstance(part, Written):
                bytes_written = part.size * self.shapes[name].dtype.itemsize
                self.sums[name] = join_checksums(self.sums[name], part.checksum, bytes_written)
                self.sizes[name] += part.size
            else:
                self.append({name: part})

    def read(self, name: str) -> NDArray[Any]:
        """An array as far as it is written, mapped into memory."""
        return self.target(name).read(self.shapes[name].size)

    def finish(self) -> None:
        """Write the header; all arrays must be complete."""
        if incomplete := [name for name, shape in self.shapes.items() if self.sizes[name] != shape.size]:
            raise ValueError(f"{incomplete[0]} is incomplete")
        header = self._header({name: f"{checksum:08x}" for name, checksum in self.sums.items()})
        self.file.seek(0)
        _write_all(self.file, memoryview(len(header).to_bytes(8, "little") + header))
        self.file.close()

    def _header(self, sums: Mapping[str, str]) -> bytes:
        return make_header(self.shapes, {**self.metadata, "checksums": json.dumps(sums)})
