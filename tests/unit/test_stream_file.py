"""Files written by several at once: the same bytes as written by one."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lidstone.ngram.formats.checked_tensors import (
    Shape,
    StreamFile,
    Written,
    join_checksums,
    shapes_of,
    write_arrays,
)


def write(path: Path, values: np.ndarray, *, apart: bool) -> bytes:
    file = StreamFile(path, shapes_of({"values": values}), {"kind": "test"})
    target = file.target("values")
    stretches = [(start, values[start : start + 4]) for start in range(0, len(values), 4)]
    if apart:
        parts = {start: target.write(start, part) for start, part in reversed(stretches)}  # in any order
        assert all(isinstance(part, Written) for part in parts.values())
        for start, _ in stretches:
            file.take({"values": parts[start]})
    else:
        for _, part in stretches:
            file.append({"values": part})
    file.finish()
    return path.read_bytes()


def test_stretches_by_others_give_the_same_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert write(tmp_path / "one", values, apart=True) == write(tmp_path / "two", values, apart=False)
    write_arrays(tmp_path / "three", {"values": values}, {"kind": "test"})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "three").read_bytes()


def test_a_file_out_of_reach_gets_its_values_from_the_owner(tmp_path: Path) -> None:
    file = StreamFile(tmp_path / "here", {"values": Shape(np.dtype(np.int32), 3)}, {})
    target = replace(file.target("values"), path=str(tmp_path / "elsewhere"))
    part = target.write(0, np.array([1, 2, 3], np.int32))
    assert isinstance(part, np.ndarray)
    file.take({"values": part})
    file.finish()
    assert (tmp_path / "here").read_bytes().endswith(np.array([1, 2, 3], np.int32).tobytes())


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_checksums_of_stretches_give_that_of_the_whole(first: bytes, second: bytes) -> None:
    joined = join_checksums(zlib.crc32(first), zlib.crc32(second), len(second))
    assert joined == zlib.crc32(first + second)
