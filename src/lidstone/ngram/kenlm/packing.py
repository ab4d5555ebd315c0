"""Numbers that are packed bit by bit, the lowest bits first."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lidstone.text.memory import address_of, load_u64


def bits_for(largest: int) -> int:
    """How many bits numbers up to this one take.

    >>> [bits_for(n) for n in (0, 1, 255, 256)]
    [0, 1, 8, 9]
    """
    return largest.bit_length()


def read_bits(block: NDArray[np.uint8], start: int, stride: int, width: int, count: int) -> NDArray[np.uint64]:
    """`count` numbers of `width` bits (57 at most), the first at bit `start`, each `stride` bits after the last.

    Eight bytes must follow the last number, as they do in KenLM's files.

    >>> block = np.array([0b1_0101_001, 0b000000_01, *[0] * 8], np.uint8)
    >>> read_bits(block, 0, 3, 2, 3).tolist()
    [1, 1, 2]
    """
    if count and (start + (count - 1) * stride) // 8 + 8 > len(block):
        raise ValueError("the block is too short")
    numbers = np.empty(count, np.uint64)
    _read(block, start, stride, width, numbers)
    return numbers


@njit(cache=True, nogil=True)
def _read(block, start, stride, width, numbers):  # type: ignore[no-untyped-def]
    address, mask = address_of(block), (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(len(numbers)):
        bit = start + i * stride
        numbers[i] = (load_u64(address + (bit >> 3)) >> np.uint64(bit & 7)) & mask
