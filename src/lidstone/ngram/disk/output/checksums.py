"""The CRC-32 of two stretches of bytes, one after the other, from the CRC-32 of each.

A CRC is the remainder of a polynomial with coefficients 0 and 1, whose highest power is bit 0. Bytes that follow
multiply it by x^8 each.
"""

from __future__ import annotations

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
