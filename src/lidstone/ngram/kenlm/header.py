r"""The header of KenLM's binary files: what kind of model follows, and how many n-grams of each order.

magic text            56 bytes, "mmap lm http://kheafield.com/code format version 5\n" and zeros
test values           32 bytes: floats 0, 1, -0.5; 1, 2^32 - 1, 0 as uint32; 1 as uint64
order, multiplier     uint8 and 3 bytes of padding, float32: buckets per n-gram in probing models
kind, has words       uint32; uint8 and 3 bytes of padding
version of the kind   uint32
counts                uint64 per order; then zeros up to a multiple of 8 bytes
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import format_error
from lidstone.ngram.trie import MAX_ORDER

MAGIC = b"mmap lm http://kheafield.com/code"
_VERSION = MAGIC + b" format version "
_TESTS = struct.pack("<fff3IQ", 0.0, 1.0, -0.5, 1, 0xFFFFFFFF, 0, 1)
_FIXED = struct.Struct("<B3xfIB3xI")
_SANITY = 56 + len(_TESTS)

KINDS = (
    "probing",
    "probing with rest costs",
    "trie",
    "quantised trie",
    "trie with array-compressed pointers",
    "quantised trie with array-compressed pointers",
)
PROBING, REST, TRIE, QUANT_TRIE, ARRAY_TRIE, QUANT_ARRAY_TRIE = range(6)


def is_kenlm_binary(head: bytes) -> bool:
    """Whether a file that begins with these bytes (33 are enough) is a binary of KenLM, of any version.

    >>> is_kenlm_binary(b"mmap lm http://kheafield.com/code format version 5"), is_kenlm_binary(b"no")
    (True, False)
    """
    return head.startswith(MAGIC)


@dataclass(frozen=True)
class Header:
    """What the header says; the counts are not yet compared with the size of the file."""

    kind: int
    order: int
    multiplier: float
    has_words: bool
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many bytes it takes: what follows begins there."""
        return align8(_SANITY + _FIXED.size + 8 * self.order)


def read_header(data: NDArray[np.uint8], path: str | Path) -> Header:
    """Read the header, and refuse files of other versions and machines."""
    head = data[: _SANITY + _FIXED.size + 8 * 256].tobytes()
    _check_magic(head, path)
    order, multiplier, kind, has_words, version = _FIXED.unpack_from(head, _SANITY)
    if kind >= len(KINDS) or version != (1 if kind >= TRIE else 0):
        raise format_error(path, f"it holds kind {kind} of models in version {version}, which lidstone does not know")
    if not 2 <= order <= MAX_ORDER:
        raise format_error(path, f"its header says order {order}; lidstone reads orders from 2 to {MAX_ORDER}")
    if not 1 <= multiplier < 1e6 or len(head) < _SANITY + _FIXED.size + 8 * order:
        raise format_error(path, "its header is damaged or cut off")
    counts = struct.unpack_from(f"<{order}Q", head, _SANITY + _FIXED.size)
    if counts[0] < 1 or any(count > len(data) for count in counts):  # no n-gram takes less than a byte
        raise format_error(path, f"its header says {counts} n-grams, which {len(data)} bytes cannot hold")
    return Header(kind, order, multiplier, bool(has_words), counts)


def align8(size: int) -> int:
    """The next multiple of eight."""
    return -(-size // 8) * 8


def _check_magic(head: bytes, path: str | Path) -> None:
    if not is_kenlm_binary(head):
        raise format_error(path, "it is not a binary of KenLM")
    if head.startswith(MAGIC + b" incomplete"):
        raise format_error(path, "build_binary did not finish writing it")
    if len(head) < _SANITY + _FIXED.size:
        raise format_error(path, "its header is cut off")
    if not head.startswith(_VERSION + b"5\n"):
        version = head[len(_VERSION) :].split(b"\n")[0][:12].decode("latin-1")
        raise format_error(path, f"it has version {version} of the format; lidstone reads version 5")
    if head[_SANITY - len(_TESTS) : _SANITY] != _TESTS:
        raise format_error(path, "it was written on a machine with another byte order or number format, or is damaged")
