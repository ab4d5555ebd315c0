"""What identifies counts: a hash of the vocabulary, of every n-gram, and of how often it occurs."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.ngram.trie import restrict

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts


def fingerprint(counts: Counts) -> str:
    """16 hex digits of the vocabulary, the n-grams that occur, their counts, and what thresholds dropped."""
    arrays = _arrays(counts)
    with ThreadPoolExecutor(4) as pool:  # hashing does not hold Python's lock
        digests = list(pool.map(_digest, arrays))
    return _hash(counts.vocab.fingerprint.encode(), *digests).hexdigest()


def _arrays(counts: Counts) -> list[NDArray[Any]]:
    """Structure (levels, first), words and counts; with thresholds, what was derived from the whole text, too."""
    from lidstone.ngram.derived import LARGEST

    trie, keep = counts.trie, _occurring(counts)
    inserted = not keep.all()
    values, derived = counts.counts, counts.derived if any(counts.thresholds) else None
    if inserted:
        trie, values = restrict(trie, keep), values[keep]
        derived = derived and derived.restricted(keep)
    found: list[NDArray[Any]] = [trie.levels, trie.first, trie.words, values]
    if derived is not None:
        found += [derived.totals, derived.adjusted, derived.adjusted_totals]
        found += [array[:LARGEST] for array in (*derived.histograms, *derived.adjusted_histograms)]
    return found


def _occurring(counts: Counts) -> NDArray[np.bool_]:
    """The words, and the longer n-grams that occur."""
    keep = np.asarray(counts.counts > 0)
    keep[: counts.trie.vocab_size + 1] = True
    return keep


def _digest(array: NDArray[Any]) -> bytes:
    """The length and the values, whatever the machine's byte order."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return _hash(f"{plain.dtype.str} {len(plain)}".encode(), plain.data).digest()


def _hash(*parts: Any) -> Any:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest
