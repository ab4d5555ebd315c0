"""Tests of significance against SciPy, sacreBLEU and plain enumeration."""

from __future__ import annotations

import itertools
import math
import os

import numpy as np
import pytest
from scipy import stats

from lidstone.errors import InputError
from lidstone.lab.evaluation import significance
from lidstone.lab.evaluation.effect import hierarchical_bootstrap, mean_difference, paired_difference, standard_error
from lidstone.lab.evaluation.significance import (
    holm,
    holm_adjust,
    paired_permutations,
    rank_sum,
    smallest_p,
    warnings_for,
)
from lidstone.lab.evaluation.translation import paired_bootstrap, score_translation

RNG = np.random.default_rng(7)


def paired_permutation(system, baseline, *, names=("system", "baseline"), **options):
    """One system against a baseline."""
    return paired_permutations({names[0]: system}, baseline, name=names[1], **options)[0]


def brute_sign_flip(differences: np.ndarray) -> float:
    seen = abs(differences.mean())
    flips = [abs(np.mean(differences * signs)) for signs in itertools.product([1, -1], repeat=len(differences))]
    return float(np.mean([value >= seen - 1e-12 for value in flips]))


def brute_rank_sum(x: np.ndarray, y: np.ndarray) -> float:
    ranks = stats.rankdata(np.concatenate([x, y]))
    centre = len(x) * ranks.mean()
    sums = [abs(ranks[list(rows)].sum() - centre) for rows in itertools.combinations(range(len(ranks)), len(x))]
    return float(np.mean([value >= abs(ranks[: len(x)].sum() - centre) - 1e-12 for value in sums]))


@pytest.mark.parametrize("n", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("tied", [False, True])
def test_small_permutation_tests_equal_the_enumeration_of_all_flips(n: int, tied: bool) -> None:
    x, y = (RNG.integers(0, 4, n).astype(float), RNG.integers(0, 4, n).astype(float)) if tied else RNG.random((2, n))
    assert paired_permutation(x, y).p_value == pytest.approx(brute_sign_flip(x - y), abs=1e-15)


def test_small_permutation_test_equals_scipy() -> None:
    x, y = RNG.random((2, 9))
    judge = stats.permutation_test(
        (x, y), lambda a, b, axis: (a - b).mean(axis), permutation_type="samples", vectorized=True
    )
    assert paired_permutation(x, y).p_value == pytest.approx(judge.pvalue, abs=1e-12)


def test_random_flips_approach_the_exact_answer() -> None:
    differences = RNG.normal(0.4, 1, size=16)
    exact = brute_sign_flip(differences)
    random = significance.sign_flip_p_values(differences[:, None], permutations=40_000, seed=3)[0]
    assert random == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / 40_000))


def test_p_value_counts_the_seen_order_as_one_of_the_flips() -> None:
    clear = np.full(60, 1.0)  # only all-plus and all-minus reach the mean: none of 99 random flips
    answer = paired_permutation(clear, np.zeros(60), permutations=99)
    assert answer.p_value == 1 / 100 == smallest_p(answer.test, answer.n, 99)


def test_no_difference_gives_one() -> None:
    same = RNG.random(50)
    assert paired_permutation(same, same).p_value == 1.0


def test_the_blocks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = RNG.normal(0.1, 1, size=(200, 3))
    whole = significance.sign_flip_p_values(differences, 2_000, seed=5)
    monkeypatch.setattr(significance, "BLOCK_BYTES", 8 * 200 * 7)  # 7 rows at a time
    assert significance.sign_flip_p_values(differences, 2_000, seed=5).tolist() == whole.tolist()


def test_many_systems_at_once_equal_one_by_one_and_the_seed_decides() -> None:
    base, a, b = RNG.normal(size=(3, 300))
    together = paired_permutations({"a": a, "b": b}, base, permutations=500, seed=4)
    alone = [
        paired_permutation(x, base, permutations=500, seed=4, names=(k, "baseline")) for k, x in (("a", a), ("b", b))
    ]
    assert together == alone
    assert together[0].p_value != paired_permutation(a, base, permutations=500, seed=5).p_value


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 5), (5, 5), (6, 4)])
def test_exact_rank_sum_equals_scipy_and_the_enumeration(n: int, m: int) -> None:
    x, y = RNG.random(n), RNG.random(m) + 0.3
    judge = stats.mannwhitneyu(x, y, method="exact").pvalue
    assert rank_sum(x, y, exact=True).p_value == pytest.approx(judge, abs=1e-12)
    assert judge == pytest.approx(brute_rank_sum(x, y), abs=1e-12)


def test_exact_rank_sum_with_ties_equals_the_enumeration() -> None:
    x, y = np.array([1.0, 2.0, 2.0, 3.0]), np.array([2.0, 3.0, 3.0, 4.0, 4.0])
    assert rank_sum(x, y, exact=True).p_value == pytest.approx(brute_rank_sum(x, y), abs=1e-12)


def test_the_normal_approximation_is_scipys() -> None:
    x, y = RNG.random((2, 5))
    answer = rank_sum(x, y, exact=False)
    assert (answer.p_value, answer.test) == (stats.ranksums(x, y).pvalue, "rank-sum")
    assert rank_sum(x, y).test == "rank-sum-exact"


def test_holm_against_a_textbook_loop() -> None:
    p_values = RNG.random(7).tolist()
    order = np.argsort(p_values)
    expected = np.empty(7)
    for k, index in enumerate(order):
        expected[index] = min(1.0, max((7 - j) * p_values[order[j]] for j in range(k + 1)))
    assert holm_adjust(p_values) == pytest.approx(expected.tolist())


def test_holm_leaves_out_what_has_no_p_value_and_says_how_many() -> None:
    tested, untested = rank_sum([1.0, 2.0], [3.0, 4.0]), rank_sum([1.0], [3.0, 4.0])
    answers = holm([tested, untested, tested])
    assert [answer.correction for answer in answers] == ["holm-2"] * 3
    assert answers[1].adjusted_p is None and answers[0].adjusted_p == pytest.approx(2 * tested.p_value)  # type: ignore[operator]


def test_smallest_p_is_what_the_clearest_case_gives() -> None:
    low, high = np.arange(5.0), np.arange(5.0) + 10
    assert smallest_p("rank-sum-exact", (5, 5)) == rank_sum(low, high, exact=True).p_value == pytest.approx(2 / 252)
    assert smallest_p("rank-sum-exact", (3, 3)) == rank_sum(low[:3], high[:3], exact=True).p_value == 0.1
    assert smallest_p("rank-sum", (5, 5)) == pytest.approx(rank_sum(low, high, exact=False).p_value)
    assert smallest_p("paired-permutation", (5, 5), 10_000) == paired_permutation(low, high).p_value == 2 / 32


def test_warnings_when_a_level_is_out_of_reach() -> None:
    assert "cannot go below p = 0.0625" in paired_permutation(np.arange(5.0) + 1, np.zeros(5)).warnings[0]
    assert "cannot go below p = 0.1" in rank_sum(np.arange(3.0), np.arange(3.0) + 9, exact=True).warnings[0]
    assert "optimistic" in rank_sum(np.arange(3.0), np.arange(3.0) + 9, exact=False).warnings[0]
    assert warnings_for("rank-sum-exact", (5, 5)) == ()
    assert "for 7 systems together" in warnings_for("rank-sum-exact", (5, 5), systems=7)[0]  # 7 * 2/252 = 0.056


def test_one_seed_gives_no_p_value_and_says_so() -> None:
    answer = rank_sum([140.0], [147.0, 148.0])
    assert answer.p_value is None and answer.adjusted_p is None
    assert answer.warnings == ("no p-value: rank-sum-exact needs at least two seeds of each, got 1 and 2",)
    assert answer.effect.method == "none" and answer.to_dict()["effect"]["low"] is None


def test_intervals_equal_scipy() -> None:
    x, y = RNG.normal(size=5), RNG.normal(size=7)
    welch = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    assert (mean_difference(x, y).low, mean_difference(x, y).high) == pytest.approx((welch.low, welch.high))
    paired = stats.ttest_rel(x, y[:5]).confidence_interval(0.95)
    effect = paired_difference(x - y[:5])
    assert (effect.low, effect.high) == pytest.approx((paired.low, paired.high))
    assert standard_error(x.tolist()) == pytest.approx(stats.sem(x))


def perplexity(sums: np.ndarray) -> np.ndarray:
    return np.exp(sums[..., 0] / sums[..., 1])


def test_the_hierarchical_bootstrap_equals_a_loop_over_resamples() -> None:
    tokens = RNG.integers(1, 9, size=40).astype(float)
    system, baseline = (
        np.stack([np.stack([tokens * RNG.uniform(1, 3, 40), tokens], 1) for _ in range(n)]) for n in (3, 2)
    )
    effect = hierarchical_bootstrap(system, baseline, perplexity, samples=4000)
    found, rng = [], np.random.default_rng(8)
    for _ in range(4000):
        sentences = rng.integers(40, size=40)
        means = []
        for runs in (system, baseline):
            seeds = rng.integers(len(runs), size=len(runs))
            means.append(np.mean([perplexity(runs[seed][sentences].sum(0)) for seed in seeds]))
        found.append(means[0] - means[1])
    assert effect.difference == pytest.approx(perplexity(system.sum(1)).mean() - perplexity(baseline.sum(1)).mean())
    assert (effect.low, effect.high) == pytest.approx(np.percentile(found, [2.5, 97.5]), abs=0.05 * np.std(found) * 4)


def test_seeds_that_differ_widen_the_hierarchical_interval() -> None:
    tokens = np.full(200, 5.0)
    base = np.stack([tokens * RNG.uniform(1, 2, 200), tokens], 1)
    alike = np.stack([base, base])
    apart = np.stack([base * [1.2, 1], base * [0.8, 1]])
    narrow, wide = (hierarchical_bootstrap(runs, alike, perplexity) for runs in (alike, apart))
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_one_seed_still_has_an_interval_over_sentences() -> None:
    tokens = np.full(50, 5.0)
    one = np.stack([tokens * RNG.uniform(1, 2, 50), tokens], 1)[None]
    effect = hierarchical_bootstrap(one * [1.1, 1], one, perplexity)
    assert 0 < effect.low < effect.difference < effect.high


def test_systems_with_different_sentences_are_refused() -> None:
    with pytest.raises(InputError, match="4 sentences, the other of 3"):
        hierarchical_bootstrap(np.ones((1, 4, 2)), np.ones((1, 3, 2)), perplexity)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1.0, math.nan], [1.0, 2.0], "value 1 is nan"),
        ([], [1.0], "shape"),
        ([1.0], [1.0, 2.0], "has 1, b has 2"),
    ],
)
def test_bad_values_are_named(x: list[float], y: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        paired_permutation(x, y, names=("a", "b"))


def texts() -> tuple[list[str], list[str], list[str]]:
    words = [
        "the",
        "a",
        "dog",
        "cat",
        "runs",
        "sleeps",
        "on",
        "under",
        "green",
        "old",
        "house",
        "river",
        "with",
        "and",
    ]
    gold = [" ".join(RNG.choice(words, 9)) for _ in range(60)]
    noisy = [" ".join(w if RNG.random() > 0.3 else "x" for w in line.split()) for line in gold]
    better = [" ".join(w if RNG.random() > 0.2 else "x" for w in line.split()) for line in gold]
    return gold, noisy, better


def test_paired_bootstrap_is_sacrebleus() -> None:
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    gold, noisy, better = texts()
    answer = paired_bootstrap({"better": better}, noisy, gold, samples=200)[0]
    judge = PairedTest([("b", noisy), ("s", better)], {"BLEU": BLEU(force=True)}, [gold], test_type="bs", n_samples=200)
    signatures, scores = judge()
    assert answer.p_value == scores["BLEU"][1].p_value
    assert answer.effect.difference == pytest.approx(scores["BLEU"][1].score - scores["BLEU"][0].score)
    assert answer.effect.low < answer.effect.difference < answer.effect.high
    assert answer.metric == str(signatures["BLEU"]) and "bs:200|seed:12345" in answer.metric


def test_paired_bootstrap_leaves_the_environment_alone_and_refuses_an_unseeded_run() -> None:
    gold, noisy, better = texts()
    before = dict(os.environ)
    paired_bootstrap({"better": better}, noisy, gold, samples=20, seed=3)
    assert dict(os.environ) == before
    with pytest.raises(InputError, match="seed is 0"):
        paired_bootstrap({"better": better}, noisy, gold, seed=0)
    with pytest.raises(InputError, match="samples is 0, but must be at least 1"):
        paired_bootstrap({"better": better}, noisy, gold, samples=0)


def test_the_same_translations_do_not_differ() -> None:
    gold, noisy, better = texts()
    same, other = paired_bootstrap({"same": noisy, "better": better}, noisy, gold, samples=50)
    assert (same.p_value, same.effect.difference) == (1.0, 0.0)
    assert other.p_value < 0.05


def test_translation_scores_are_sacrebleus() -> None:
    import sacrebleu

    gold, noisy, _ = texts()
    score = score_translation(noisy, gold)
    assert score.bleu == sacrebleu.corpus_bleu(noisy, [gold], force=True).score
    assert score.chrf == sacrebleu.corpus_chrf(noisy, [gold]).score
    with pytest.raises(InputError, match="59 hypotheses for 60 references"):
        score_translation(noisy[:-1], gold)
