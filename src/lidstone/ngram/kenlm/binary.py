"""KenLM's binary files: tries as tables and scorers, probing models as scorers only."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, format_error
from lidstone.ngram.arpa.read_write import table_of_sections
from lidstone.ngram.kenlm.build import pack
from lidstone.ngram.kenlm.compiled.step import BOS, EOS, UNK
from lidstone.ngram.kenlm.header import KINDS, TRIE, Header, read_header
from lidstone.ngram.kenlm.levels import levels_of_trie
from lidstone.ngram.kenlm.probing_file import map_probing
from lidstone.ngram.kenlm.scorer import Scorer
from lidstone.ngram.kenlm.trie_file import Trie, read_trie
from lidstone.ngram.table import BackoffTable
from lidstone.text.tokens import hash_words


def table_of_binary(path: str | Path) -> BackoffTable:
    """A trie binary as a table. A probing binary keeps only hashes of its n-grams: it cannot give rows."""
    data, header = _open(path)
    if header.kind < TRIE:
        raise InputError(
            f"{path} is a {KINDS[header.kind]} model of KenLM, which keeps hashes of its n-grams and cannot give rows",
            hint="score with lidstone.kenlm.Model, or give the ARPA file or a trie (build_binary trie)",
        )
    trie = read_trie(data, header, path)
    if trie.words is None:
        raise InputError(f"{path} was built without its words (build_binary -v)", hint="build it again with them")
    return table_of_sections(trie.words, trie.sections, str(path), kind="kenlm")


def scorer_of_binary(path: str | Path) -> Scorer:
    """Any binary for scoring; a probing one is mapped into memory and used in place."""
    data, header = _open(path)
    if header.kind < TRIE:
        return Scorer(map_probing(data, header, path))
    return _scorer_of_trie(read_trie(data, header, path), path)


def _scorer_of_trie(trie: Trie, path: str | Path) -> Scorer:
    bos, eos = (np.flatnonzero(trie.hashes == key) + 1 for key in hash_words([b"<s>", b"</s>"]))
    if not len(bos) or not len(eos):
        raise format_error(path, "it has no <s> or no </s>")
    ids = np.arange(1, len(trie.hashes) + 1)
    special = {UNK: 0, BOS: int(bos[0]), EOS: int(eos[0])}
    return Scorer(pack(trie.hashes, ids, levels_of_trie(trie), special))


def _open(path: str | Path) -> tuple[NDArray[np.uint8], Header]:
    try:
        with Path(path).open("rb") as file:
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from error
    except ValueError as error:  # an empty file cannot be mapped
        raise format_error(path, "it is empty") from error
    return data, read_header(data, path)
