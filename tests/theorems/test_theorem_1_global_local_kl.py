"""Theorem 1: KL(p||q) over strings is the sum over prefixes of prefix probability times the local KL.

    KL(p || q) = sum_x pi_p(x) KL(p(.|x) || q(.|x)),      pi_p(x) = probability that a string begins with x

tried by listing all strings: p has finite support, so both sums are finite and the left-hand side needs no chain rule.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

LETTERS = "ab"
END = "$"
LONGEST = 4
STRINGS = ["".join(s) for length in range(LONGEST + 1) for s in itertools.product(LETTERS, repeat=length)]


def random_strings(seed, zeros=0.0):
    """A language model as a table: the probability of every string of at most LONGEST letters."""
    draw = np.random.default_rng(seed)
    weights = draw.dirichlet(np.ones(len(STRINGS))) * (draw.random(len(STRINGS)) >= zeros)
    return dict(zip(STRINGS, weights / weights.sum(), strict=True))


def prefix_probability(p, prefix):
    return sum(probability for string, probability in p.items() if string.startswith(prefix))


def conditional(p, prefix):
    """p(.|prefix) over the letters and the end, by summing strings."""
    total = prefix_probability(p, prefix)
    after = {letter: prefix_probability(p, prefix + letter) / total for letter in LETTERS}
    return {**after, END: p.get(prefix, 0) / total}


def kl(p, q):
    return sum(p[x] * math.log(p[x] / q[x]) for x in p if p[x] > 0)


def local_sum(p, next_letter):
    """The right-hand side; `next_letter(prefix)` is q(.|prefix)."""
    prefixes = [x for x in STRINGS if prefix_probability(p, x) > 0]
    return sum(prefix_probability(p, x) * kl(conditional(p, x), next_letter(x)) for x in prefixes)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("zeros", [0.0, 0.6])
def test_two_models_on_the_same_strings(seed, zeros):
    p, q = random_strings(seed, zeros), random_strings(seed + 100)
    assert local_sum(p, lambda prefix: conditional(q, prefix)) == pytest.approx(kl(p, q), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_an_autoregressive_model_with_infinite_support(seed):
    """q is a bigram model, which never runs out of strings; its probability of a string is the product of its steps."""
    p, draw = random_strings(seed), np.random.default_rng(seed)
    rows = {last: dict(zip([*LETTERS, END], draw.dirichlet(np.ones(3)), strict=True)) for last in ["", *LETTERS]}
    q = {string: math.prod(rows[a][b] for a, b in itertools.pairwise(["", *string, END])) for string in STRINGS}
    assert sum(q.values()) < 1
    assert local_sum(p, lambda prefix: rows[prefix[-1:]]) == pytest.approx(kl(p, q), rel=1e-12)


def test_the_corollary_for_a_text_and_an_ngram_model():
    """Against a bigram q, and up to a constant that p alone determines, KL(p||q) is sum_h c(h) KL(p(.|h)||q) / N."""
    text = ["ab", "abb", "ab", "", "ba", "aab"]
    p = {string: text.count(string) / len(text) for string in set(text)}
    counts = Counter(pair for string in text for pair in itertools.pairwise(["", *string, END]))
    histories = {last for last, _ in counts}
    totals = {last: sum(n for (h, _), n in counts.items() if h == last) for last in histories}

    def global_kl(rows):
        return kl(p, {s: math.prod(rows[a][b] for a, b in itertools.pairwise(["", *s, END])) for s in p})

    def weighted(rows):
        bigram = {h: {w: counts[h, w] / totals[h] for w in [*LETTERS, END]} for h in histories}
        return sum(totals[h] * kl(bigram[h], rows[h]) for h in histories) / len(text)

    draw = np.random.default_rng(0)
    made = [{h: dict(zip([*LETTERS, END], draw.dirichlet(np.ones(3)), strict=True)) for h in histories} for _ in "123"]
    constants = [global_kl(rows) - weighted(rows) for rows in made]
    assert constants == pytest.approx([constants[0]] * 3, rel=1e-12)
    assert constants[0] > 0.1  # "equal up to a factor", as printed, would need this to be zero
