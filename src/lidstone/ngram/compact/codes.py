"""The values of a table as codes: p(w | h) of every n-gram in full, and the backoff of every history.

Rows are differences, p(w | h) - backoff(h) p(w | h'), and a difference cannot be rounded to a small relative error; so
full probabilities are stored, and rows follow from them where they are needed. With codes wrong by a factor of at most
1 + e, every p(w | h) of an order-n model, stored or backed off to, is wrong by at most (1 + e)^n, for it is the product
of a stored p and at most n - 1 backoffs; and so is the sum of each distribution, which was one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError
from lidstone.ngram.compact.quantise import CODE_TYPES, Quantised, decode, quantise, relative_error, scales_are_sound

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable
    from lidstone.ngram.trie import Trie
    from lidstone.text.vocabulary import Vocabulary


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
        from lidstone.ngram.compact.kernels import rows_of

        if name == "backoffs":
            return decode(self.backoffs)
        rows, trie = np.zeros(table.trie.size), table.trie
        rows_of(trie.first, trie.suffixes, table.ngram_probs, table.backoffs, rows)
        return rows


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
