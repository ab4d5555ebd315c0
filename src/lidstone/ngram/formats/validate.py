"""What is checked of a model that comes from a file, before any kernel indexes with it or sums it.

The `check_` functions refuse arrays of a wrong type or size, tries that are not sorted, closed and linked to the right
suffixes, counts that are negative or whose sums do not fit, and values that are not finite. They raise `InputError`
with the first thing that is wrong; `safetensors.load` adds the name of the file.

Every p(w | h) of a stored n-gram and the sum after every history are computed, order by order. Neither needs a dense
row; h' is h without its oldest word:

    p(w | h) = rows[h w] + backoffs[h] * p(w | h')
    S(h) = sum of rows[h w] over the followers of h + backoffs[h] * S(h'),        S(()) = sum of base

An impossible p in a file of lidstone's own smoothers is refused. Sums are reported, not refused; so is an impossible
p in a model of others. Smoothers give sums of one to 1e-12; pruned or damaged ARPA files, filtered vocabularies and
backoffs of another model may not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import InputError, format_error
from lidstone.jit import kernel
from lidstone.ngram.access import at, link_of, row_of, size_of, with_row
from lidstone.ngram.formats.checked_tensors import is_mapped
from lidstone.ngram.trie import MAX_ORDER, Trie
from lidstone.parallel import over_ranges, threads_for

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary

DTYPES = {
    **dict.fromkeys(("words", "suffixes", "first", "counts", "totals", "adjusted", "adjusted_totals"), np.int32),
    **dict.fromkeys(("base", "rows", "backoffs"), np.float64),
    **dict.fromkeys(("levels", "histograms", "adjusted_histograms"), np.int64),
    **dict.fromkeys(("prob_scales", "backoff_scales", "first_high"), np.int64),
    **dict.fromkeys(("packed_first", "packed_words", "packed_suffixes"), np.uint64),
    **dict.fromkeys(("prob_codes", "backoff_codes"), np.uint16),
    "token_lengths": np.int32,
    "token_text": np.uint8,
}
WIDE = ("suffixes", "first", "counts", "totals", "adjusted", "adjusted_totals")
"""Arrays that have 64 bits per value where 32 do not suffice."""
SMALL = {("rows", "f4"), ("backoffs", "f4"), ("prob_codes", "u1"), ("backoff_codes", "u1")}
"""Arrays that have fewer bits in some compact tables."""
ROUNDING = 1e-9
MOST_TOKENS = 2**60
TROUBLES = (
    "",
    "unigrams are not numbered by their words",
    "its offsets of children are not ascending, or do not end with their level",
    "a word is outside the event space",
    "siblings are not sorted by distinct words",
    "a link does not lead to the n-gram without its oldest word",
)


def check_dtypes(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays of another type than their name says.

    >>> check_dtypes({"words": np.zeros(3)})
    Traceback (most recent call last):
    lidstone.errors.InputError: 'words' is float64, not int32
    """
    for name, array in arrays.items():
        wanted = DTYPES.get(name.partition(".")[0])
        other = (name in WIDE and array.dtype == np.int64) or (name, array.dtype.str[1:]) in SMALL
        if wanted is not None and array.dtype != wanted and not other:
            raise InputError(f"{name!r} is {array.dtype}, not {np.dtype(wanted)}")


def check_shapes(vocab: Vocabulary, trie: Trie, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse levels that are no levels, and arrays that do not have one value per node, history or word."""
    levels = trie.levels
    if not 1 <= trie.order <= MAX_ORDER or levels[0] != 0 or levels[1] != vocab.size + 1:
        raise InputError("its orders and its vocabulary do not fit together")
    if (np.diff(levels) < 0).any() or levels[-1] > np.iinfo(trie.node_type).max:
        raise InputError("its levels are not ascending")
    for name, size in array_sizes(levels).items():
        if name in arrays and len(arrays[name]) != size:
            raise InputError(f"{name!r} has {len(arrays[name])} values, not {size}")


def array_sizes(levels: NDArray[np.int64]) -> dict[str, int]:
    """How many values the arrays of a table or of counts have, by the levels of the trie."""
    nodes, histories = int(levels[-1]), int(levels[-2])
    by_node = dict.fromkeys(("words", "suffixes", "counts", "adjusted", "rows"), nodes)
    by_history = dict.fromkeys(("totals", "adjusted_totals", "backoffs"), histories)
    return {**by_node, **by_history, "first": histories + 1, "base": int(levels[1]) - 1}


def check_trie(trie: Trie, vocab: Vocabulary) -> None:
    """Refuse a trie in which a walk could leave the arrays, or miss an n-gram that is there."""
    trouble = int(_trouble(trie.levels, *trie.links, vocab.events))
    if trouble:
        raise InputError(f"its n-grams do not form a trie: {TROUBLES[trouble]}")


def check_table(table: BackoffTable) -> None:
    """Refuse values that are not finite, and a base that is no distribution over the event space."""
    arrays = {"base": table.base}
    if table.codes is None:  # codes stand for finite numbers only
        arrays |= {"rows": table.rows, "backoffs": table.backoffs}
        if table.backoffs.min(initial=0) < -ROUNDING:
            raise InputError("'backoffs' holds a negative weight")
    for name, array in arrays.items():
        if not _all_finite(array):
            raise InputError(f"{name!r} holds a value that is not a finite number")
    if table.base.min() < 0 or table.base.max() > 1 + ROUNDING or table.base[~table.vocab.events].any():
        raise InputError("'base' holds a value that is not the probability of a word")
    from lidstone.ngram.smoothers.registry import OWN

    total = float(table.base.sum())
    if (
        table.signature.get("smoother") in OWN and abs(total - 1) > 1e-6
    ):  # files of others may fall short: see `check_probabilities`
        raise InputError(f"'base' sums to {total:.6g}, not to one")


def check_counts(counts: Counts) -> None:
    """Refuse negative counts, and counts whose sums do not fit or exceed their totals."""
    stored = counts.stored
    if not isinstance(counts.thresholds, tuple) or len(counts.thresholds) not in (0, counts.order):
        raise InputError(f"thresholds {list(counts.thresholds)} do not fit order {counts.order}")
    if not all(type(limit) is int and limit >= 0 for limit in counts.thresholds):
        raise InputError("'thresholds' are not whole numbers")
    words = counts.counts[: counts.vocab.size]
    if words.sum(dtype=np.float64) > MOST_TOKENS:
        raise InputError("'counts' are too large to add up")
    if words.sum() <= 0 or words[~counts.vocab.events].any():
        raise InputError("'counts' has no word, or one that is never predicted")
    if any(counts.thresholds) and stored is None:
        raise InputError("what the whole text held before thresholds is missing")
    _check_sums("counts", counts.trie, counts.counts, None if stored is None else stored.totals)
    if stored is not None:
        _check_sums("adjusted", counts.trie, stored.adjusted, stored.adjusted_totals)
        _check_histograms("histograms", counts.trie, counts.counts, stored.histograms)
        _check_histograms("adjusted_histograms", counts.trie, stored.adjusted, stored.adjusted_histograms)


def _check_histograms(
    name: str, trie: Trie, values: NDArray[np.int32], histograms: tuple[NDArray[np.int64], ...]
) -> None:
    """Each order's counts of counts must reach to its largest count; `<s>` is not part of them."""
    from lidstone.ngram.adjusted import LARGEST

    for order, histogram in enumerate(histograms, start=1):
        level = slice(0, trie.vocab_size) if order == 1 else trie.level(order)
        if histogram.min(initial=0) < 0 or len(histogram) <= min(values[level].max(initial=0), LARGEST):
            raise InputError(f"the counts of counts in '{name}.{order}' do not fit the counts")


def _check_sums(name: str, trie: Trie, values: NDArray[np.int32], totals: NDArray[np.int32] | None) -> None:
    if values.min(initial=0) < 0:
        raise InputError(f"{name!r} holds a negative count")
    most = np.iinfo(values.dtype).max
    if not _sums_fit(trie.first, values, np.empty(0, np.int32) if totals is None else totals, most):
        raise InputError(f"{name!r} adds up to more than its total, or than {most:,}")


@kernel
def _sums_fit(first, values, totals, most):  # type: ignore[no-untyped-def]
    """Whether the values of each history's followers add up to at most its total, or to `most` where none is given."""
    for history in range(len(first) - 1):
        total = np.int64(0)
        for node in range(first[history], first[history + 1]):
            total += values[node]
            if total < 0:  # more than 64 bits hold
                return False
        if total > (totals[history] if len(totals) else most):
            return False
    return True


def _all_finite(values: NDArray[np.floating], block: int = 1 << 20) -> bool:
    return all(bool(np.isfinite(values[start : start + block]).all()) for start in range(0, len(values), block))


@kernel
def _trouble(levels, first, words, suffixes, events):  # type: ignore[no-untyped-def]
    """0 for a sound trie, else the number of what is wrong. Offsets are checked before anything is found by them."""
    bos = levels[1] - 1
    for node in range(levels[1]):
        if at(words, node) != node or at(suffixes, node) != -1:
            return 1
    for level in range(1, len(levels) - 1):
        if at(first, levels[level - 1]) != levels[level] or at(first, levels[level]) != levels[level + 1]:
            return 2
        for history in range(levels[level - 1], levels[level]):
            if at(first, history) > at(first, history + 1) or at(first, history + 1) > levels[level + 1]:
                return 2
    for history in range(levels[-2]):
        shorter = at(suffixes, history)  # checked before, for the levels are visited from the lowest
        begin = at(first, history)
        low = np.int64(0) if shorter < 0 else np.int64(at(first, shorter))
        high = np.int64(bos) if shorter < 0 else np.int64(at(first, shorter + 1))
        before = np.int64(-1)
        for node in range(begin, at(first, history + 1)):
            word = np.int64(at(words, node))
            if not 0 <= word < bos or not events[word]:
                return 3
            if before >= word:
                return 4
            link = link_of(words, suffixes, shorter, low, high, node)
            if not low <= link < high or at(words, link) != word:
                return 5
            before, low = word, link + 1
    return 0


LIMIT = 1e-3
"""Sums further from one than this are reported, and refused by the loss."""
NEGATIVE = 1e-6
"""Rounding to float32 makes no smaller p negative than this."""
SAMPLES = 1000
_LOG = logging.getLogger("lidstone")


def normalisation_error(table: BackoffTable, samples: int | None = SAMPLES) -> float:
    """The largest |1 - sum of p(w | h)| over some histories, evenly spread, or over all; inf where one is no number."""
    if samples is None:
        return probability_extremes(table)[2]
    num_histories = table.trie.num_histories
    spread = np.linspace(0, num_histories, min(samples, num_histories), False).astype(np.int64)
    states = np.append(spread, [-1, table.vocab.bos] if table.order > 1 else [-1])
    first, words, suffixes, rows, backoffs, base = table.stored_arrays
    sums = _row_sums(first, words, suffixes, rows, backoffs, base, float(base.sum()), states)
    error = np.abs(sums - 1).max()
    return float(error) if np.isfinite(error) else float("inf")


def probability_extremes(table: BackoffTable) -> tuple[float, float, float]:
    """Bounds of p(w | h) over all stored n-grams, and the largest |1 - sum| over all histories.

    Where no row and no backoff is negative, no p is, and none exceeds the sum of its history: sums that are good
    suffice, and they need no probability of a shorter n-gram, which takes half of the time.
    """
    if table.codes is None:
        least, _, error = _measure(table, np.empty(0))
        if least >= 0 and error <= LIMIT:
            return 0.0, 1.0 + error, error
    exact = np.float32 if table.codes is None else np.float64  # rows are summed as they are, codes less what is below
    probs: NDArray[np.floating] = np.zeros(
        table.trie.num_histories, exact
    )  # those of the highest order are not needed again
    probs[: table.vocab.size] = table.base[: len(probs)]
    return _measure(table, probs)


def _measure(table: BackoffTable, probs: NDArray[np.floating]) -> tuple[float, float, float]:
    trie, base = table.trie, table.base
    sums = np.empty(trie.num_histories + 1)
    sums[-1] = base.sum()  # that of the empty history
    found = [(float(base.min()), float(base.max()), abs(float(sums[-1]) - 1))]
    for begin, end in pairwise(trie.levels[:-1].tolist()):

        def measure(start: int, stop: int, begin: int = begin) -> None:
            found.append(_extremes(*table.stored_arrays[:-1], probs, sums, begin + start, begin + stop))

        over_ranges(measure, end - begin, threads_for(trie.size))
    least, most, error = zip(*found, strict=True)
    return min(least), max(most), max(error)


@kernel
def _extremes(first, words, suffixes, rows, backoffs, probs, sums, start, stop):  # type: ignore[no-untyped-def]
    """For histories of one order; fills their `sums`, and the `probs` of the n-grams after them unless there are none.

    Written so that a NaN counts as infinite.
    """
    least, most, error, only_sums = 0.0, 0.0, 0.0, len(probs) == 0
    for history in range(start, stop):
        weight, shorter = at(backoffs, history), np.int64(at(suffixes, history))
        total = weight * sums[shorter]
        low, high = (0, 0) if shorter < 0 else (at(first, shorter), at(first, shorter + 1))
        for node in range(at(first, history), at(first, history + 1)):
            if only_sums:
                total += at(rows, node)
                if at(rows, node) < 0 or weight < 0:
                    return -1.0, most, error
                continue
            link = link_of(words, suffixes, shorter, low, high, node)
            lower = weight * probs[link]
            prob = with_row(rows, node, 1.0, lower)
            low, total = link + 1, total + prob - lower
            if node < len(probs):
                probs[node] = prob
            if not prob >= least:
                least = prob if prob < 0 else -np.inf
            if not prob <= most:
                most = prob if prob > 0 else np.inf
        sums[history] = total
        gap = abs(total - 1)
        if not gap <= error:
            error = gap if gap > 0 else np.inf
    return least, most, error


def check_normalised(table: BackoffTable, limit: float = LIMIT) -> None:
    """Refuse a model whose probabilities do not sum to one: it scales gradients and mixtures by an unknown factor."""
    error = normalisation_error(table, 25 if is_mapped(table.base) else SAMPLES)  # each history reads pages of a file
    if error > limit:
        raise InputError(
            f"the table is not normalised: after some history its probabilities sum to one only within {error:.3g}",
            hint="make the model again, or pass allow_unnormalised=True",
        )


def check_probabilities(table: BackoffTable, name: str) -> None:
    """Refuse an impossible p(w | h), and warn, on the logger `lidstone`, of sums that are not one.

    Models of other programs may hold either, and are only warned of.
    """
    from lidstone.ngram.smoothers.registry import OWN

    least, most, error = probability_extremes(table)
    if least < -NEGATIVE or most > 1 + LIMIT:
        wrong = f"an n-gram has the probability {least if least < -NEGATIVE else most:.6g}"
        if table.signature.get("smoother") in OWN:
            raise format_error(name, wrong)
        _LOG.warning("%s: %s, which no model can give", name, wrong)
    if error > LIMIT:
        _LOG.warning(
            "%s is not normalised: after some history the probabilities sum to one only within %.3g; "
            "its perplexities cannot be compared with those of other models",
            name,
            error,
        )


@kernel
def _row_sums(first, words, suffixes, rows, backoffs, base, total, states):  # type: ignore[no-untyped-def]
    sums = np.empty(len(states))
    for i in range(len(states)):
        weight, found, state = 1.0, 0.0, np.int64(states[i])
        while 0 <= state < size_of(backoffs):
            level = 0.0
            for child in range(at(first, state), at(first, state + 1)):
                level += row_of(rows, base, first, words, suffixes, backoffs, state, child)
            found += weight * level
            weight *= at(backoffs, state)
            state = np.int64(at(suffixes, state))
        sums[i] = found + weight * total
    return sums
