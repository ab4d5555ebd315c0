"""`compact`: a table in fewer bytes, and which values it then has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lidstone.ngram.compact.codes import coded_table, quantise_table
from lidstone.ngram.compact.links import pack_trie

if TYPE_CHECKING:
    from lidstone.ngram.table import BackoffTable


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
