"""Translation quality by sacreBLEU: corpus scores with their signatures, and its paired bootstrap.

Text must be detokenized: the caller undoes BPE and tokenization. The bootstrap needs no text, only BLEU's statistics of
each sentence, which can be stored and published even if the references cannot.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lidstone.errors import InputError
from lidstone.lab.evaluation.attainable import warnings_for
from lidstone.lab.evaluation.effect import Effect
from lidstone.lab.evaluation.significance import Comparison, same_length

SACREBLEU_SEED = 12345
Statistics: TypeAlias = Sequence[Sequence[int]]
"""What BLEU counts in each sentence"""


@dataclass(frozen=True)
class TranslationScore:
    """Corpus scores with their signatures."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    sentences: int


def score_translation(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScore:
    """Corpus BLEU and chrF of detokenized text, as `sacrebleu -m bleu chrf` prints them.

    >>> score = score_translation(["the cat sat on the mat ."], ["the cat sat on the mat ."])
    >>> round(score.bleu, 2), score.bleu_signature.split("|version")[0]
    (100.0, 'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp')
    """
    from sacrebleu.metrics import BLEU, CHRF

    check_aligned(hypotheses, references)
    bleu, chrf = BLEU(force=True), CHRF()  # force: no advice on text that looks tokenized
    scores = [float(m.corpus_score(list(hypotheses), [list(references)]).score) for m in (bleu, chrf)]
    signatures = [str(m.get_signature()) for m in (bleu, chrf)]
    return TranslationScore(scores[0], scores[1], signatures[0], signatures[1], len(hypotheses))


def check_aligned(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise an error if hypotheses and references do not correspond line by line."""
    if not references:
        raise InputError("there are no references", hint="pass one reference for each hypothesis")
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses for {len(references)} references",
            hint="write one line for each sentence, empty lines included",
        )


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    baseline: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = 1_000,
    seed: int = SACREBLEU_SEED,
    name: str = "baseline",
) -> list[Comparison]:
    """Paired bootstrap resampling on BLEU, by sacreBLEU's own `PairedTest(..., test_type="bs")`.

    The p-values are sacreBLEU's. The difference's interval comes from the same resamples, by percentiles.

    >>> good, bad, gold = ["a b c d e"] * 9, ["a b x d e"] * 9, ["a b c d e"] * 9
    >>> paired_bootstrap({"good": good}, bad, gold, samples=99)[0].p_value  # 1 / (99 + 1)
    0.01
    """
    counted = {key: bleu_statistics(hypotheses, references) for key, hypotheses in systems.items()}
    base = bleu_statistics(baseline, references)
    return paired_bootstrap_counted(counted, base, samples=samples, seed=seed, name=name)


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    """What BLEU sums over sentences: lengths of hypothesis and reference, matching n-grams, n-grams; orders 1 to 4.

    >>> bleu_statistics(["a b c x"], ["a b c d e"])
    [[4, 5, 3, 2, 1, 0, 4, 3, 2, 1]]
    """
    from sacrebleu.metrics import BLEU

    check_aligned(hypotheses, references)
    found: Statistics = BLEU(force=True)._extract_corpus_statistics(list(hypotheses), [list(references)])
    return found


def paired_bootstrap_counted(
    systems: Mapping[str, Statistics],
    baseline: Statistics,
    *,
    samples: int = 1_000,
    seed: int = SACREBLEU_SEED,
    name: str = "baseline",
) -> list[Comparison]:
    """`paired_bootstrap` on the counts of `bleu_statistics`."""
    for key, counted in systems.items():
        same_length(key, len(counted), name, len(baseline))
    if seed < 1:
        raise InputError(f"seed is {seed}", hint="for sacreBLEU 0 means 'no seed': use 1 or more")
    if samples < 1:
        raise InputError(f"samples is {samples}, but must be at least 1", hint="1,000 are usual")
    if not systems:
        return []
    results, signature = _sacrebleu_paired(systems, baseline, samples, seed, name)
    effects = _differences(systems, baseline, samples, seed)
    n, test = (len(baseline), len(baseline)), "paired-bootstrap"
    return [
        Comparison(
            test, key, name, "BLEU difference", effect.difference, p, n, effect, permutations=samples,
            seed=seed, adjusted_p=p, metric=signature, warnings=warnings_for(test, n, samples),
        )
        for key, p, effect in zip(systems, map(_corrected, results, effects), effects, strict=True)
    ]  # fmt: skip


def _corrected(p: float | None, effect: Effect) -> float | None:
    """SacreBLEU's p-value, but 1 for identical translations, for which it gives 1/(samples + 1)."""
    return 1.0 if p is not None and effect.difference == effect.low == effect.high == 0 else p


def _sacrebleu_paired(
    systems: Mapping[str, Statistics], baseline: Statistics, samples: int, seed: int, name: str
) -> tuple[list[float | None], str]:
    from sacrebleu.significance import PairedTest

    named = [(name, baseline), *systems.items()]
    with _sacrebleu_seed(seed):
        signatures, scores = PairedTest(named, {"BLEU": _counted_bleu()}, None, test_type="bs", n_samples=samples)()
    p_values = [result.p_value if len(baseline) > 1 else None for result in scores["BLEU"][1:]]
    return p_values, str(signatures["BLEU"])


def _counted_bleu() -> Any:
    """SacreBLEU's BLEU, for systems that are given as statistics."""
    from sacrebleu.metrics import BLEU

    class CountedBLEU(BLEU):
        def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
            return hypotheses

    metric = CountedBLEU(force=True)
    metric.num_refs = 1
    return metric


def _differences(systems: Mapping[str, Statistics], baseline: Statistics, samples: int, seed: int) -> list[Effect]:
    """BLEU differences with percentile intervals over the resamples that `PairedTest` draws."""
    metric = _counted_bleu()
    drawn = np.random.default_rng(seed).choice(len(baseline), size=(samples, len(baseline)), replace=True)

    def scores(counted: Statistics) -> tuple[float, np.ndarray]:
        stats = np.array(counted, dtype=np.int64)
        resampled = (metric._compute_score_from_stats(stats[rows].sum(0).tolist()).score for rows in drawn)
        return metric._compute_score_from_stats(stats.sum(0).tolist()).score, np.fromiter(resampled, float, samples)

    base, base_samples = scores(baseline)
    effects = []
    for counted in systems.values():
        score, score_samples = scores(counted)
        low, high = np.percentile(score_samples - base_samples, [2.5, 97.5])
        effects.append(Effect(score - base, float(low), float(high), 0.95, "bootstrap"))
    return effects


@contextlib.contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set the seed of sacreBLEU, which reads it from the environment."""
    before: Any = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
