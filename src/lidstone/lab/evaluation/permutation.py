"""Sign-flip permutations of paired differences, many systems at once.

Under the null hypothesis the two systems of a pair could be swapped at any sentence, so every difference d_i
could as well be -d_i. The p-value is the share of such flips whose mean difference is as large as the observed one:

    p = (b + 1) / (m + 1)         b of m random flips with |mean(s * d)| >= |mean(d)|
    p = b / 2^n                   when all 2^n flips are computed, the identity included

This is only the computation; names, effects and warnings are in `significance`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 21  # of float64 flips held at a time: they stay in the cache
TIE = 1e-10  # relative: sums that differ by less are equal, whatever the order of addition


def sign_flip_p_values(differences: NDArray[np.float64], permutations: int, seed: int) -> NDArray[np.floating]:
    """Two-sided p-values of the columns of `differences` (sentences, systems); all columns share the flips.

    The same, computed in blocks, as `signs = choice([-1, 1], (permutations, n)); abs(signs @ d) >= abs(d.sum(0))`.
    If there are at most `permutations` flips, each is computed once and the p-values are exact.

    >>> sign_flip_p_values(np.array([[1.0], [2.0], [3.0]]), permutations=100, seed=1)  # +++ and --- of 8
    array([0.25])
    """
    n, _ = differences.shape
    if is_exact(n, permutations):
        return _extreme_flips(differences, _all_flips(n)) / 2.0**n
    extreme = _extreme_flips(differences, _random_flips(n, permutations, seed))
    return (extreme + 1.0) / (permutations + 1.0)


def is_exact(n: int, permutations: int) -> bool:
    """Whether `permutations` are enough for all 2^n flips.

    >>> is_exact(5, 10_000), is_exact(14, 10_000)
    (True, False)
    """
    return n < 30 and 2**n <= permutations


def _extreme_flips(differences: NDArray[np.float64], blocks: Iterator[NDArray[np.uint8]]) -> NDArray[np.int64]:
    """Count, per column, the flips whose sum is at least as far from zero as the observed sum."""
    total = differences.sum(axis=0)
    slack = TIE * np.abs(differences).sum(axis=0)
    columns = np.ascontiguousarray(differences.T)  # (systems, sentences)
    extreme = np.zeros(len(total), dtype=np.int64)
    for flips in blocks:  # (block, sentences), 1 where the pair is swapped: sum(s d) = sum(d) - 2 flips . d
        # einsum, not @: BLAS's threads do not speed up such a narrow product, and on a busy machine they stall
        sums = total - 2.0 * np.einsum("pn,kn->pk", flips.astype(np.float64), columns)
        extreme += (np.abs(sums) >= np.abs(total) - slack).sum(axis=0)
    return extreme


def _random_flips(n: int, permutations: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    row_bytes = (n + 63) // 64 * 8  # whole words of the generator, so that blocks do not change the stream
    block = max(1, BLOCK_BYTES // (8 * n))
    for start in range(0, permutations, block):
        rows = min(block, permutations - start)
        random_bytes = np.frombuffer(rng.bytes(rows * row_bytes), dtype=np.uint8)
        yield np.unpackbits(random_bytes.reshape(rows, row_bytes), axis=1, count=n)


def _all_flips(n: int) -> Iterator[NDArray[np.uint8]]:
    block = max(1, BLOCK_BYTES // (8 * n))
    for start in range(0, 2**n, block):
        numbers = np.arange(start, min(start + block, 2**n), dtype=np.int64)
        yield ((numbers[:, None] >> np.arange(n)) & 1).astype(np.uint8)
