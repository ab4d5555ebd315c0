"""What identifies counts: a hash of the vocabulary, of every n-gram, and of how often it occurs."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.formats.checked_tensors import BLOCK_BYTES, release
from lidstone.ngram.trie import restrict

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts


def fingerprint(counts: Counts) -> str:
    """16 hex digits of the vocabulary, the n-grams that occur, their counts, and what thresholds dropped."""
    arrays = _arrays(counts)
    with ThreadPoolExecutor(4) as pool:  # hashing does not hold Python's lock
        digests = list(pool.map(_digest, arrays))
    return str(_hash(counts.vocab.fingerprint.encode(), *digests).hexdigest())


def _arrays(counts: Counts) -> list[NDArray[Any]]:
    """Structure (levels, first), words and counts; with thresholds, what was derived from the whole text, too."""
    from lidstone.ngram.adjusted import LARGEST

    trie = counts.trie
    values, derived = counts.counts, counts.derived if any(counts.thresholds) else None
    if not _all_occur(counts):
        keep = _occurring(counts)
        trie, values = restrict(trie, keep), values[keep]
        derived = derived and derived.restricted(keep)
    found: list[NDArray[Any]] = [trie.levels, trie.first, trie.words, values]
    if derived is not None:
        found += [derived.totals, derived.adjusted, derived.adjusted_totals]
        found += [array[:LARGEST] for array in (*derived.histograms, *derived.adjusted_histograms)]
    return found


def _all_occur(counts: Counts) -> bool:
    """Whether all n-grams of two words or more occur; counts in a file are not copied."""
    start, values = counts.trie.vocab_size + 1, counts.counts
    return all((values[at : at + BLOCK_BYTES // 8] > 0).all() for at in range(start, len(values), BLOCK_BYTES // 8))


def _occurring(counts: Counts) -> NDArray[np.bool_]:
    """The words, and the longer n-grams that occur."""
    keep = np.asarray(counts.counts > 0)
    keep[: counts.trie.vocab_size + 1] = True
    return keep


def _digest(array: NDArray[Any]) -> bytes:
    """Of the length and the values, whatever the machine's byte order; arrays of a file are read part by part."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest, data = _hash(f"{plain.dtype.str} {len(plain)}".encode()), plain.view(np.uint8)
    for start in range(0, len(data), BLOCK_BYTES):
        digest.update(data[start : start + BLOCK_BYTES])
        if len(data) > BLOCK_BYTES:
            release(array)
    found: bytes = digest.digest()
    return found


def _hash(*parts: Any) -> Any:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest
