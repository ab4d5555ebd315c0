"""Files written by several at once: the same bytes as written by one."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lidstone.ngram.disk.stream_file import Shape, StreamFile, Written, combine


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_checksum_of_two_stretches_is_that_of_both_together(first: bytes, second: bytes) -> None:
    assert combine(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


def test_a_long_stretch() -> None:
    long = bytes(range(256)) * 5000
    assert combine(zlib.crc32(b"before"), zlib.crc32(long), len(long)) == zlib.crc32(b"before" + long)


def write(path: Path, values: np.ndarray, *, apart: bool) -> bytes:
    file = StreamFile(path, {"values": Shape(values.dtype, len(values))}, {"kind": "test"})
    target = file.target("values")
    stretches = [(start, values[start : start + 4]) for start in range(0, len(values), 4)]
    if apart:
        parts = {start: target.write(start, part) for start, part in reversed(stretches)}  # in any order
        assert all(isinstance(part, Written) for part in parts.values())
        for start, _ in stretches:
            file.take("values", parts[start])
    else:
        for _, part in stretches:
            file.append("values", part)
    file.finish()
    return path.read_bytes()


def test_stretches_by_others_give_the_same_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert write(tmp_path / "one", values, apart=True) == write(tmp_path / "two", values, apart=False)


def test_a_file_out_of_reach_gets_its_values_from_the_owner(tmp_path: Path) -> None:
    file = StreamFile(tmp_path / "here", {"values": Shape(np.dtype(np.int32), 3)}, {})
    target = file.target("values")
    (tmp_path / "here").rename(tmp_path / "elsewhere")
    part = target.write(0, np.array([1, 2, 3], np.int32))
    assert isinstance(part, np.ndarray)
    file.take("values", part)
    file.finish()
    assert (tmp_path / "elsewhere").read_bytes().endswith(np.array([1, 2, 3], np.int32).tobytes())
