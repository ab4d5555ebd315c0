"""Which comparisons a report shows: every method against the baselines, over seeds and over sentences.

The tests are in `evaluation`, the methods in `report`; this module applies the tests to the methods, as in the paper:

    seeds       rank-sum over the seeds of each method, against the unregularized baseline
    best-seed   paired permutation over sentence log-likelihoods (lm) or sacreBLEU's paired bootstrap (mt), of the
                best seeds, against the unregularized baseline and against a second one
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lidstone.errors import LidstoneError
from lidstone.lab.evaluation.effect import Effect, Score, hierarchical_bootstrap
from lidstone.lab.evaluation.significance import Comparison, holm, paired_permutations, rank_sum

if TYPE_CHECKING:
    from lidstone.lab.report import Report
    from lidstone.lab.report.methods import Metric
    from lidstone.lab.report.runs import Run


@dataclass(frozen=True)
class CompareRuns:
    """Settings of the comparisons; call it with a report.

    >>> compare_runs.correction, CompareRuns(exact=False).permutations
    ('holm', 10000)
    """

    exact: bool = True
    """Exact rank-sum; False for the paper's normal approximation."""
    correction: str = "holm"
    """`holm` over the systems compared with one baseline, or `none` as in the paper."""
    permutations: int = 10_000
    samples: int = 1_000
    """Resamples of the paired bootstrap."""
    seed: int = 1
    scopes: tuple[str, ...] = ("seeds", "best-seed")

    def __call__(self, report: Report) -> list[dict[str, Any]]:
        """All comparisons as plain dictionaries, for `Report(comparisons=...)`."""
        found: list[dict[str, Any]] = []
        first, second = report.baselines
        if first and "seeds" in self.scopes:
            found += self.over_seeds(report, first)
        for baseline in (first, second):
            if baseline and "best-seed" in self.scopes:
                found += self.over_sentences(report, baseline, leave_out=first)
        return found

    def over_seeds(self, report: Report, baseline: str) -> list[dict[str, Any]]:
        """Rank-sum of each method's seeds against the baseline's; diverged seeds are left out, with a warning."""
        scores = {m.key: _finite(m.chosen.values("test", report.metric)) for m in report.methods}
        answers = [
            rank_sum(values, scores[baseline][0], exact=self.exact, names=(key, baseline))
            for key, (values, _) in scores.items()
            if key != baseline and values and scores[baseline][0]
        ]
        answers = self._over_seeds_and_sentences(report, answers)
        told = [
            _with_warnings(answer, {name: scores[name][1] for name in (answer.system, baseline)})
            for answer in self._corrected(answers)
        ]
        sign = -1 if report.metric.lower_is_better else 1
        return [_plain(answer, "seeds", report.metric.name, sign) for answer in told]

    def _over_seeds_and_sentences(self, report: Report, answers: Sequence[Comparison]) -> list[Comparison]:
        """The comparisons with intervals over seeds and sentences, where the scores of all sentences were stored."""
        runs = {m.key: m.chosen.runs for m in report.methods}
        counted = {key: _statistics(runs[key], report.metric) for a in answers for key in (a.system, a.baseline)}

        def effect(answer: Comparison) -> Effect:
            system, baseline = counted[answer.system], counted[answer.baseline]
            if system is None or baseline is None or system.shape[1:] != baseline.shape[1:]:
                return answer.effect
            score = SCORES[report.metric.key][1]()
            return hierarchical_bootstrap(system, baseline, score, samples=self.samples, seed=self.seed)

        return [replace(answer, effect=effect(answer)) for answer in answers]

    def over_sentences(self, report: Report, baseline: str, leave_out: str | None = None) -> list[dict[str, Any]]:
        """Paired test of each method's best seed against the baseline's; higher scores are better here."""
        wanted = [m for m in report.methods if m.key == baseline or m.key != leave_out]
        best = {m.key: m.chosen.best_run(report.metric) for m in wanted}
        untested = {key: error for key, run in best.items() if (error := _sentence_error(run)) is not None}
        if baseline in untested:
            return [_without_test(key, baseline, untested[baseline]) for key in best if key != baseline]
        tested = {key: run for key, run in best.items() if key not in untested}
        missing = [_without_test(key, baseline, error) for key, error in untested.items()]
        return [*self.paired(tested, baseline), *missing]

    def paired(self, runs: Mapping[str, Run], baseline: str) -> list[dict[str, Any]]:
        """Paired test over sentences of named runs against one of them."""
        lm = runs[baseline].task == "lm"
        answers = (self._permutation if lm else self._bootstrap)(runs, baseline)
        unit = "nats per sentence" if lm else "BLEU"
        return [_plain(answer, "best-seed", unit) for answer in self._corrected(answers)]

    def _permutation(self, best: Mapping[str, Run], baseline: str) -> list[Comparison]:
        scores = {key: [-nll for nll in _sentence_scores(run, "nll")] for key, run in best.items()}
        base = scores.pop(baseline)
        return paired_permutations(scores, base, permutations=self.permutations, seed=self.seed, name=baseline)

    def _bootstrap(self, best: Mapping[str, Run], baseline: str) -> list[Comparison]:
        from lidstone.lab.evaluation.translation import SACREBLEU_SEED, paired_bootstrap_counted

        counted = {key: _sentence_scores(run, "bleu_statistics") for key, run in best.items()}
        seed = self.seed if self.seed > 1 else SACREBLEU_SEED
        base = counted.pop(baseline)
        return paired_bootstrap_counted(counted, base, samples=self.samples, seed=seed, name=baseline)

    def _corrected(self, answers: Sequence[Comparison]) -> list[Comparison]:
        return holm(answers) if self.correction == "holm" and len(answers) > 1 else list(answers)


compare_runs: Callable[[Report], list[dict[str, Any]]] = CompareRuns()
"""The comparisons with their usual settings."""


def _plain(answer: Comparison, scope: str, unit: str, sign: int = 1) -> dict[str, Any]:
    """A comparison as plain values; the sign of its effect is such that positive means the system is better."""
    effect = answer.effect if sign > 0 else answer.effect.reversed()
    difference = effect.difference
    direction = "better" if difference > 0 else "worse" if difference < 0 else "equal"
    oriented = replace(answer, effect=effect).to_dict()
    return oriented | {"scope": scope, "unit": unit, "direction": direction, "better": difference > 0}


def _without_test(system: str, baseline: str, error: LidstoneError) -> dict[str, Any]:
    warning = f"no p-value for the best seed of {system} against {baseline}: {error.message}"
    return {"scope": "best-seed", "system": system, "baseline": baseline, "test": "none", "p_value": None,
            "adjusted_p": None, "better": False, "direction": None, "unit": "",
            "effect": None, "signature": "", "warnings": [warning]}  # fmt: skip


def _with_warnings(answer: Comparison, lost: Mapping[str, int]) -> Comparison:
    notes = (
        f"{count} diverged seed{'s' if count > 1 else ''} of {name} left out of the rank-sum test"
        for name, count in lost.items()
        if count
    )
    return replace(answer, warnings=(*answer.warnings, *notes))


def _perplexity(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.exp(sums[..., 0] / sums[..., 1])
    return found


def _loss(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = sums[..., 0] / sums[..., 1]
    return found


def _bleu() -> Score:
    from lidstone.lab.evaluation.translation import bleu_of

    return bleu_of


SCORES: dict[str, tuple[tuple[str, ...], Callable[[], Score]]] = {
    "perplexity": (("nll", "tokens"), lambda: _perplexity),
    "loss": (("nll", "tokens"), lambda: _loss),
    "bleu": (("bleu_statistics",), _bleu),
}
"""The metrics that can be computed from the stored scores of sentences: which scores, and how."""


def _statistics(runs: Sequence[Run], metric: Metric) -> NDArray[np.float64] | None:
    """What a metric sums over the sentences of each seed; (seeds, sentences, statistics), None if not all have it."""
    if metric.key not in SCORES or not all(math.isfinite(run.value("test", metric.key)) for run in runs):
        return None
    names, _ = SCORES[metric.key]
    try:
        found = [np.column_stack([_sentence_scores(run, name) for name in names]).astype(np.float64) for run in runs]
    except (LidstoneError, ValueError, TypeError):  # not stored, or no numbers
        return None
    same = len({values.shape for values in found}) == 1 and all(np.isfinite(values).all() for values in found)
    return np.stack(found) if same else None


def _finite(values: Sequence[float]) -> tuple[list[float], int]:
    kept = [value for value in values if math.isfinite(value)]
    return kept, len(values) - len(kept)


def _sentence_error(run: Run) -> LidstoneError | None:
    """Why a run cannot be in paired tests: its sentence scores were not stored, cannot be read, or are no numbers."""
    try:
        values = _sentence_scores(run, "nll" if run.task == "lm" else "bleu_statistics")
    except LidstoneError as error:
        return error
    if run.task == "lm" and not all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
        return LidstoneError("its scores are not all numbers: it diverged")
    return None


def _sentence_scores(run: Run, what: str) -> list[Any]:
    values = run.sentences().get(what)
    if not isinstance(values, list):
        raise LidstoneError(f"{run.sentences_file} has no {what}")
    return values
