"""A checked file whose arrays are written piece by piece, in any order, and can be read while others are written.

The bytes are those of `checked_tensors.write_arrays`: only that nothing has to be in memory at once. Other threads and
processes can write stretches of an array (`Target.write`); the file adds them to its checksums in order (`take`).
"""

from __future__ import annotations

import io
import json
import mmap
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lidstone.files import reserve
from lidstone.ngram.formats.checked_tensors import make_header

WRITE_BYTES = 1 << 20


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


@dataclass(frozen=True)
class Written:
    """A stretch of an array that is in the file already."""

    checksum: int
    nbytes: int


Part = Written | NDArray[Any]
"""The next values of an array: in the file already, or not yet."""


@dataclass(frozen=True)
class Target:
    """Where an array stands in a file that others write to."""

    path: str
    start: int
    dtype: np.dtype[Any]

    def write(self, index: int, values: NDArray[Any]) -> Part:
        """Write values from `index` on; gives them back where the file is out of reach, as on another machine."""
        data = np.ascontiguousarray(values, self.dtype).data.cast("B")
        try:
            with Path(self.path).open("r+b", buffering=0) as file:
                file.seek(self.start + index * self.dtype.itemsize)
                _write_all(file, data)
        except FileNotFoundError:
            return values
        return Written(zlib.crc32(data), len(data))

    def read(self, size: int) -> NDArray[Any]:
        """The first `size` values, mapped into memory; those that are written later appear there."""
        with Path(self.path).open("rb") as file:
            return MappedArray(file.fileno(), self.start, Shape(self.dtype, size)).array


def _write_all(file: BinaryIO | io.FileIO, data: memoryview) -> None:
    """Write all of it, in pieces that stay in the processor's cache."""
    while data:
        data = data[file.write(data[:WRITE_BYTES]) or 0 :]


class StreamFile:
    """Arrays of known type and size, each appended to from its start to its end."""

    def __init__(self, path: Path, shapes: Mapping[str, Shape], metadata: Mapping[str, str]) -> None:
        self.shapes = dict(sorted(shapes.items(), key=lambda item: -item[1].dtype.itemsize))
        self.metadata, self.path = metadata, path
        self.sums = dict.fromkeys(self.shapes, 0)
        self.starts, end = {}, 8 + len(self._header())
        for name, shape in self.shapes.items():
            self.starts[name], end = end, end + shape.nbytes
        self.ends = dict(self.starts)
        self.file = path.open("w+b")
        try:
            reserve(self.file, end)
        except OSError:
            self.close()
            raise

    def append(self, name: str, values: NDArray[Any]) -> None:
        """The next values of an array."""
        data = np.ascontiguousarray(values, self.shapes[name].dtype).data.cast("B")
        if self.ends[name] + len(data) > self.starts[name] + self.shapes[name].nbytes:
            raise ValueError(f"too many values for {name}")
        self.file.seek(self.ends[name])
        _write_all(self.file, data)
        self.sums[name] = zlib.crc32(data, self.sums[name])
        self.ends[name] += len(data)

    def target(self, name: str) -> Target:
        """Where others write values of an array."""
        return Target(str(self.path), self.starts[name], self.shapes[name].dtype)

    def take(self, name: str, part: Part) -> None:
        """The next values of an array, which are in the file already or are written now."""
        if not isinstance(part, Written):
            self.append(name, part)
            return
        self.sums[name] = combine(self.sums[name], part.checksum, part.nbytes)
        self.ends[name] += part.nbytes

    def read(self, name: str) -> MappedArray:
        """An array as far as it is written, mapped into memory."""
        self.file.flush()
        return MappedArray(self.file.fileno(), self.starts[name], self.shapes[name])

    def finish(self) -> None:
        """Write the header; all arrays must be complete."""
        for name, shape in self.shapes.items():
            if self.ends[name] != self.starts[name] + shape.nbytes:
                raise ValueError(f"{name} is incomplete")
        header = self._header()
        self.file.seek(0)
        self.file.write(len(header).to_bytes(8, "little") + header)
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _header(self) -> bytes:
        sums = {name: f"{value:08x}" for name, value in self.sums.items()}
        return make_header(self.shapes, {**self.metadata, "checksums": json.dumps(sums)})


class MappedArray:
    """A part of a file as an array, whose pages can be given back to the system."""

    def __init__(self, handle: int, start: int, shape: Shape) -> None:
        begin = start - start % mmap.ALLOCATIONGRANULARITY
        size = max(start - begin + shape.nbytes, 1)
        self.map = mmap.mmap(handle, size, access=mmap.ACCESS_READ, offset=begin)
        self.array = np.frombuffer(self.map, shape.dtype, shape.size, start - begin)

    def drop(self) -> None:
        """Give the pages back; they are read again where needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.map.madvise(mmap.MADV_DONTNEED)


POLYNOMIAL = 0xEDB88320
ONE, BYTE = 1 << 31, 1 << 23
"""x^0 and x^8."""


def combine(first: int, second: int, size: int) -> int:
    """The CRC-32 of bytes with the CRC-32 `first`, followed by `size` bytes with the CRC-32 `second`.

    >>> import zlib
    >>> combine(zlib.crc32(b"smooth"), zlib.crc32(b"ing"), 3) == zlib.crc32(b"smoothing")
    True
    """
    shift, power = ONE, BYTE
    while size:
        if size & 1:
            shift = _multiply(shift, power)
        power = _multiply(power, power)
        size >>= 1
    return _multiply(shift, first) ^ second


def _multiply(one: int, other: int) -> int:
    """The product of two remainders, again a remainder."""
    product = 0
    while one:
        if one & ONE:
            product ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = other >> 1 ^ (POLYNOMIAL if other & 1 else 0)
    return product
