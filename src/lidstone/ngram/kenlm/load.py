"""A scorer or a table from a path, whatever the file is: ARPA, a table of lidstone, a binary of KenLM."""

from __future__ import annotations

from pathlib import Path

from lidstone.errors import InputError
from lidstone.ngram.arpa.read_write import read_arpa
from lidstone.ngram.formats.safetensors import load_table
from lidstone.ngram.kenlm.header import is_kenlm_binary
from lidstone.ngram.kenlm.scorer import Scorer
from lidstone.ngram.kenlm.sources import scorer_of_arpa, scorer_of_table
from lidstone.ngram.table import BackoffTable


def load_scorer(path: str | Path) -> Scorer:
    """Load any model for scoring."""
    head = _head(path)
    if is_kenlm_binary(head):
        from lidstone.ngram.kenlm.binary import scorer_of_binary

        return scorer_of_binary(path)
    return scorer_of_table(load_table(path)) if _is_safetensors(head) else scorer_of_arpa(path)


def load_any_table(path: str | Path) -> BackoffTable:
    """Load any model as a table; a probing binary of KenLM cannot be one."""
    head = _head(path)
    if is_kenlm_binary(head):
        from lidstone.ngram.kenlm.binary import table_of_binary

        return table_of_binary(path)
    return load_table(path) if _is_safetensors(head) else read_arpa(path)


def _head(path: str | Path) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(64)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from error


def _is_safetensors(head: bytes) -> bool:
    """A length in eight bytes, then a JSON object."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40
