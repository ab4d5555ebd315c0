"""Values of 8 or 16 bits: each order has a grid of its own, evenly spaced among the bit patterns of float64.

Code 0 is the value 0 and code 1 the value 1; code c > 1 is the float64 with the bits low + (c - 2) * step. Bit patterns
of positive numbers ascend as the numbers do, about as their logarithms, so one step is a relative difference of at most
step * 2^-52, and the nearest code is wrong by at most a factor of 1 + step * 2^-53.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

CODE_TYPES = {8: np.uint8, 16: np.uint16}
FINITE = int(np.array(np.finfo(np.float64).max).view(np.int64))
"""The bits of the largest float64."""


class Quantised(NamedTuple):
    """Values of consecutive nodes, a code each."""

    codes: NDArray[np.unsignedinteger]
    scales: NDArray[np.int64]
    """low and step of each order"""
    levels: NDArray[np.int64]
    """codes of the k-th order of these are levels[k]:levels[k+1], counted from the first node of all"""


def quantise(values: NDArray[np.floating], levels: NDArray[np.int64], bits: int) -> Quantised:
    """Codes of values[levels[0]:levels[-1]], none of which may be negative.

    >>> coded = quantise(np.array([9.0, 0.5, 0.125, 1.0, 0.0]), np.array([1, 5]), 16)
    >>> decode(coded).round(6).tolist(), coded.codes.tolist()
    ([0.5, 0.125, 1.0, 0.0], [65535, 2, 1, 0])
    """
    codes = np.empty(int(levels[-1] - levels[0]), CODE_TYPES[bits])
    scales = [_code_level(values[a:b], codes[a - levels[0] : b - levels[0]], bits) for a, b in _spans(levels)]
    return Quantised(codes, np.array(scales, np.int64).reshape(-1), np.asarray(levels, np.int64))


def decode(coded: Quantised) -> NDArray[np.float64]:
    """The values of all codes."""
    values, start = np.empty(len(coded.codes)), coded.levels[0]
    for k, (a, b) in enumerate(_spans(coded.levels)):
        low, step = coded.scales[2 * k : 2 * k + 2]
        _decode(coded.codes[a - start : b - start], low, step, values[a - start : b - start])
    return values


def relative_error(coded: Quantised) -> float:
    """By how much a value may be wrong: a factor of at most one plus this."""
    return float(coded.scales[1::2].max(initial=0)) * 2.0**-53


def scales_are_sound(scales: NDArray[np.int64], bits: int) -> bool:
    """Whether every code stands for a finite number that is not negative."""
    pairs = [(int(low), int(step)) for low, step in scales.reshape(-1, 2)]
    return all(low >= 0 and step >= 0 and low + ((1 << bits) - 3) * step <= FINITE for low, step in pairs)


def _spans(levels: NDArray[np.int64]) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in pairwise(levels)]


def _code_level(values: NDArray[np.floating], codes: NDArray[np.unsignedinteger], bits: int) -> tuple[int, int]:
    """Write the codes of one order; its low and step."""
    least, most = (int(bound) for bound in _bounds(values))
    step = -((least - most) // ((1 << bits) - 3)) if most > least else 0
    _encode(values, least, step, codes)
    return least, step


@intrinsic
def _float_of(typing: Any, bits: Any) -> Any:
    """The float64 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def _bits_of(typing: Any, value: Any) -> Any:
    """The bits of a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@njit(cache=True, nogil=True)
def value_of(code, low, step):  # type: ignore[no-untyped-def]
    """The value of one code."""
    if code < 2:
        return 1.0 if code == 1 else 0.0
    return _float_of(low + (np.int64(code) - 2) * step)


@njit(cache=True, nogil=True)
def _bounds(values):  # type: ignore[no-untyped-def]
    """The bits of the smallest and the largest value that have no code of their own; 0 and 0 where there is none."""
    least, most = np.int64(1 << 62), np.int64(0)
    for value in values:
        if value > 0 and value != 1:
            bits = _bits_of(np.float64(value))
            least, most = min(least, bits), max(most, bits)
    return (least, most) if most else (np.int64(0), np.int64(0))


@njit(cache=True, nogil=True)
def _encode(values, low, step, codes):  # type: ignore[no-untyped-def]
    for i in range(len(values)):
        if values[i] <= 0:
            codes[i] = 0
        elif values[i] == 1:
            codes[i] = 1
        else:
            distance = _bits_of(np.float64(values[i])) - low
            codes[i] = 2 if step == 0 else 2 + (distance + step // 2) // step


@njit(cache=True, nogil=True)
def _decode(codes, low, step, values):  # type: ignore[no-untyped-def]
    for i in range(len(codes)):
        values[i] = value_of(codes[i], low, step)
