"""A table in fewer bytes: `compact` rounds its values to 32, 16 or 8 bits, and packs its trie.

Values of 8 or 16 bits are codes. Each order has a grid of its own, evenly spaced among the bit patterns of float64:
code 0 is the value 0 and code 1 the value 1; code c > 1 is the float64 with the bits low + (c - 2) * step. Bit patterns
of positive numbers ascend as the numbers do, about as their logarithms, so one step is a relative difference of at most
step * 2^-52, and the nearest code is wrong by at most a factor of 1 + step * 2^-53.

Rows are differences, p(w | h) - backoff(h) p(w | h'), and a difference cannot be rounded to a small relative error. So
codes stand for full probabilities, and rows follow from them where they are needed. With codes wrong by a factor of at
most 1 + e, every p(w | h) of an order-n model, stored or backed off to, is wrong by at most (1 + e)^n, for it is the
product of a stored p and at most n - 1 backoffs; and so is the sum of each distribution, which was one before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.access import Quantised, value_of
from lidstone.ngram.packed import pack_trie
from lidstone.ngram.query import rows_of

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable
    from lidstone.ngram.trie import Trie
    from lidstone.text.vocabulary import Vocabulary

CODE_TYPES = {8: np.uint8, 16: np.uint16}
FINITE = int(np.array(np.finfo(np.float64).max).view(np.int64))
"""The bits of the largest float64."""


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
def _bits_of(typing: Any, value: Any) -> Any:
    """The bits of a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


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


@dataclass(frozen=True, eq=False)
class Codes:
    """Quantised probabilities and backoffs."""

    probs: Quantised
    """of all n-grams but unigrams, whose probabilities are the table's `base`"""
    backoffs: Quantised

    @property
    def bits(self) -> int:
        """How many bits a value has."""
        return 8 * self.probs.codes.itemsize

    @property
    def error(self) -> float:
        """By how much a stored value may be wrong: a factor of at most one plus this."""
        return max(relative_error(self.probs), relative_error(self.backoffs))

    def ngram_probs(self, base: NDArray[np.float64]) -> NDArray[np.float64]:
        """p(w | h) of every node, as `BackoffTable.ngram_probs`."""
        return np.concatenate([base, [0.0], decode(self.probs)])

    def decode(self, table: BackoffTable, name: str) -> NDArray[np.float64]:
        """The plain array of a table: "rows" or "backoffs"."""
        if name == "backoffs":
            return decode(self.backoffs)
        return rows_of(table.trie, table.ngram_probs, table.backoffs)


def quantise_table(table: BackoffTable, bits: int) -> BackoffTable:
    """The table with values of so many bits."""
    if bits not in CODE_TYPES:
        raise InputError(f"values cannot have {bits} bits", hint="choose 8, 16, 32 (float32) or 64 (as they are)")
    levels = table.trie.levels
    backoffs = np.maximum(table.backoffs, 0)  # rounding may leave a tiny negative number
    codes = Codes(quantise(table.ngram_probs, levels[1:], bits), quantise(backoffs, levels[:-1], bits))
    return coded_table(table.vocab, table.base, table.trie, codes, {**table.signature, "precision": f"{bits} bits"})


def coded_table(
    vocab: Vocabulary, base: NDArray[np.float64], trie: Trie, codes: Codes, signature: dict[str, Any]
) -> BackoffTable:
    """A table that has only codes."""
    from lidstone.ngram.table import BackoffTable

    coded = object.__new__(BackoffTable)
    coded.__dict__.update(vocab=vocab, trie=trie, base=base, signature=signature, codes=codes)
    return coded


def code_parts(codes: Codes) -> dict[str, NDArray[Any]]:
    """The arrays of codes by the names in files."""
    probs, backoffs = codes.probs, codes.backoffs
    parts = {"prob_codes": probs.codes, "prob_scales": probs.scales}
    return {**parts, "backoff_codes": backoffs.codes, "backoff_scales": backoffs.scales}


def read_codes(levels: NDArray[np.int64], arrays: dict[str, NDArray[Any]]) -> Codes:
    """The codes of such arrays; refuse sizes that do not fit, and scales with values that are no numbers."""
    parts = []
    for name, own in (("prob", levels[1:]), ("backoff", levels[:-1])):
        codes, scales = arrays[f"{name}_codes"], arrays[f"{name}_scales"]
        if len(codes) != own[-1] - own[0] or len(scales) != 2 * (len(own) - 1):
            raise InputError(f"'{name}_codes' has {len(codes)} values, not {own[-1] - own[0]}")
        if codes.dtype != arrays["prob_codes"].dtype:
            raise InputError(f"'{name}_codes' is {codes.dtype}, unlike 'prob_codes'")
        if not scales_are_sound(scales, 8 * codes.itemsize):
            raise InputError(f"'{name}_scales' holds a value that is not a finite number")
        parts.append(Quantised(codes, scales, own))
    return Codes(*parts)


def compact(table: BackoffTable, bits: int, pack: bool) -> BackoffTable:
    """Round the values to so many bits and, with `pack`, pack the trie; see `BackoffTable.compact`."""
    if bits == 64:
        small = table
    else:
        small = _single(table) if bits == 32 else quantise_table(table, bits)
    return _packed(small) if pack else small


def _single(table: BackoffTable) -> BackoffTable:
    rows, backoffs = table.rows.astype(np.float32), table.backoffs.astype(np.float32)
    values: Any = {"rows": rows, "backoffs": backoffs, "signature": {**table.signature, "precision": "float32"}}
    return replace(table, **values)


def _packed(table: BackoffTable) -> BackoffTable:
    trie = pack_trie(table.trie)
    if table.codes is None:
        return replace(table, trie=trie)
    return coded_table(table.vocab, table.base, trie, table.codes, table.signature)
