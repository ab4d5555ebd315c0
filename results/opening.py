"""The summary: who should use what, with the number that says so; all of it from the runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from lidstone.lab.report.render import number, signed
from lidstone.lab.report.runs import Run
from results import NGRAMS
from results.study import Study, mean_on_test, of_common_seeds, on_test, p_value, percent, seeds

RESIDUAL = "residual"
LABEL_SMOOTHING = "label-smoothing"
USUAL = ("none", LABEL_SMOOTHING, "confidence-penalty")
"""what one would use for translation"""


@dataclass(frozen=True)
class Text:
    """One training text with its networks and its n-gram model."""

    title: str
    study: Study
    ngram_key: str

    @property
    def none(self) -> list[Run]:
        """The seeds of the unregularized network."""
        return self.study.runs("none")

    @property
    def best(self) -> tuple[str, list[Run]]:
        """The regularized method that is best on validation, among those with as many seeds as any.

        Not the residual, which needs the n-gram model at test time.
        """
        names = [name for name in self.study.recipe.method_names if name not in ("none", RESIDUAL)]
        found = {name: runs for name in names if (runs := self.study.runs(name))}
        most = max(map(len, found.values()), default=0)
        full = {name: runs for name, runs in found.items() if len(runs) == most}
        return min(full.items(), key=lambda item: mean(map(self.study.order, item[1])), default=("", []))

    @property
    def ngram(self) -> dict[str, float]:
        """The n-gram model alone: order, perplexities."""
        return dict(json.loads(NGRAMS.read_text())[self.ngram_key])

    @property
    def ngram_wins(self) -> bool | None:
        """Whether the n-gram model is better than the unregularized network on validation; None without runs."""
        if not self.none:
            return None
        return self.ngram["valid_perplexity"] < self.study.on_valid(self.none)


def texts() -> list[Text]:
    """The training texts of the language models."""
    return [studied("tatoeba"), studied("wikitext2")]


def studied(name: str) -> Text:
    """The training text of the study on Tatoeba or WikiText-2."""
    study = Study.of(name)
    corpus = {"tatoeba": "Tatoeba, English", "wikitext2": "WikiText-2"}[name]
    return Text(f"{percent(study.recipe.corpus.fraction)} of {corpus}", study, name)


def mixture_of(runs: Sequence[Run]) -> tuple[float, int]:
    """The mean test perplexity of the mixtures, and how many of the runs keep one."""
    kept = [value for run in runs if math.isfinite(value := run.value("test", "perplexity", "mixture"))]
    return (mean(kept) if kept else math.nan), len(kept)


def summary(texts: Iterable[Text]) -> str:
    """The table: networks and the n-gram model alone, and the mixtures; without texts whose searches are unfinished."""
    lines = [
        "| Training text | none | best regularized | n-gram alone (order) | none + n-gram | regularized + n-gram |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for text in texts:
        name, best = text.best
        if not text.none and not best:
            continue
        alone = [number(mean_on_test(runs, "perplexity")) if runs else "not run yet" for runs in (text.none, best)]
        ngram = f"{number(text.ngram['perplexity'])} ({text.ngram['order']})"
        cells = [alone[0], f"{alone[1]} (`{name}`)" if best else alone[1], ngram, *map(_mixed, (text.none, best))]
        lines.append(f"| {text.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mixed(runs: Sequence[Run]) -> str:
    value, count = mixture_of(runs)
    if not count:
        return "not measured"
    return number(value) + ("" if count == len(runs) else f" ({seeds(count)})")


def advice(texts: Sequence[Text]) -> list[str]:
    """When to use what, each with its number; where the runs are missing, that is said."""
    run = [text for text in texts if text.none]
    return [
        _ngram_alone([text for text in run if text.ngram_wins], [text for text in run if text.ngram_wins is False]),
        _mixture(run),
        _regularizer(run),
        _both(run),
        *_residual(run),
    ]


def _ngram_alone(lost: Sequence[Text], won: Sequence[Text]) -> str:
    told = "; ".join(
        f"{number(text.ngram['perplexity'])} against {number(mean_on_test(text.none, 'perplexity'))} ({text.title})"
        for text in lost
    )
    others = ", ".join(text.title for text in won) or "none of the texts measured here"
    return (
        f"- **The n-gram model alone**, where it beats the network: {told or 'nowhere here'}. It costs seconds. The "
        f"network is the better model, on validation, with: {others}."
    )


def _mixture(texts: Sequence[Text]) -> str:
    told = []
    for text in texts:
        value, count = mixture_of(text.none)
        if count:
            alone = min(mean_on_test(text.none, "perplexity"), text.ngram["perplexity"])
            told.append(f"{number(value)}, {signed(100 * (value / alone - 1))} % ({text.title}, {seeds(count)})")
    found = "; ".join(told) or "not measured yet"
    return f"- **The mixture** of the plain network and the n-gram model, against the better of the two: {found}."


def _regularizer(texts: Sequence[Text]) -> str:
    told = []
    for text in texts:
        name, runs = text.best
        if runs:
            ours, none, smoothed = map(on_test, (runs, text.none, text.study.runs(LABEL_SMOOTHING)))
            found = f"{_change(ours, none)} with `{name}` ({text.title}, {seeds(len(runs))}, {p_value(ours, none)}"
            if smoothed and name != LABEL_SMOOTHING:
                found += f"; against label smoothing {_change(ours, smoothed)}, {p_value(ours, smoothed)}"
            told.append(f"{found})")
    found = "; ".join(told) or "not measured yet"
    return f"- **The regularizer**, where a network must stand alone, against no regularizer: {found}."


def _change(values: Sequence[float], reference: Sequence[float]) -> str:
    return f"{signed(100 * (mean(values) / mean(reference) - 1))} %"


def _both(texts: Sequence[Text]) -> str:
    told = []
    for text in texts:
        plain, mixed = ([_mixture_on(run, "test") for run in runs] for runs in of_common_seeds(*_with_mixture(text)))
        if mixed:
            told.append(_compared(text, mixed, plain))
    found = "; ".join(told) or "not measured yet"
    return (
        "- **Both**, the best regularized network in the mixture, with the strength that is best alone, against the "
        f"plain network in it: {found}.{''.join(map(_best_in_mixture, texts))}"
    )


def _with_mixture(text: Text) -> tuple[list[Run], list[Run]]:
    plain, best = ([run for run in runs if run.mixture] for runs in (text.none, text.best[1]))
    return plain, best


def _mixture_on(run: Run, split: str) -> float:
    return float(run.mixture[split]["perplexity"])


def _best_in_mixture(text: Text) -> str:
    """The setting that is best on validation after mixing; nothing where fewer than three methods were mixed."""
    study = text.study
    tried = {
        name: [runs for runs in study.tried(name) if runs and runs[0].mixture]
        for name in study.recipe.method_names
        if name != RESIDUAL
    }
    best = {name: min(found, key=lambda runs: _mixture_on(runs[0], "valid")) for name, found in tried.items() if found}
    if "none" not in best or len({runs[0].path for runs in best.values()}) < 3:  # two methods may share a setting
        return ""
    name = min(best, key=lambda name: _mixture_on(best[name][0], "valid"))
    if name == "none":
        return f" Of all settings tried, the mixture with the plain network is best on validation ({text.title})."
    mixed, plain = ([_mixture_on(run, "test") for run in runs] for runs in of_common_seeds(best[name], text.none))
    config = best[name][0].config
    return (
        f" If its settings are chosen for the mixture instead, validation chooses `{name}` with γ = "
        f"{config['regularizer']['gamma']} and {config['training']['epochs']} epochs; the plain network stays as it is "
        f"best alone: {_compared(text, mixed, plain)}.{_plain_outside(text, tried['none'])}"
    )


def _plain_outside(text: Text, tried: Sequence[Sequence[Run]]) -> str:
    """A plain network that was not in the search, if it is better in the mixture than those that were."""
    every = [runs[0] for runs in text.study.settings.values() if runs[0].name == "none" and runs[0].mixture]
    best = min(every, key=lambda run: _mixture_on(run, "valid"))
    if any(best.id == run.id for runs in tried for run in runs):
        return ""
    return (
        f" But a plain network outside the search, with dropout {best.config['model']['dropout']} and "
        f"{best.config['training']['epochs']} epochs, has {number(_mixture_on(best, 'test'))} in the mixture (1 seed): "
        "the gain may not be the regularizer's."
    )


def _compared(text: Text, values: Sequence[float], reference: Sequence[float]) -> str:
    means = " against ".join(number(mean(found)) for found in (values, reference))
    count = seeds(len(values))
    return f"{means}, {_change(values, reference)} ({text.title}, {count}, {p_value(values, reference)})"


def _residual(texts: Sequence[Text]) -> list[str]:
    """The network that was trained on top of the n-gram model, beside the mixture; nothing before it has been run."""
    told = []
    for text in texts:
        runs, plain = of_common_seeds(text.study.runs(RESIDUAL), text.none)
        if runs:
            alone = number(mean_on_test(runs, "perplexity"))
            mixed, other = _mixed(runs), _mixed(plain)
            told.append(f"{alone}, and {mixed} mixed once more, against {other} ({text.title}, {seeds(len(runs))})")
    if not told:
        return []
    return [
        "- **The n-gram residual**, a network trained on top of the n-gram model's scores, which needs that model "
        f"at test time too, against the mixture with the plain network: {'; '.join(told)}."
    ]


def translations(studies: Sequence[Study]) -> str:
    """Translation in a sentence and a table: what one would use, and the smoother that is best on validation."""
    if not studies:
        return "- **Translation**, where no n-gram model can compete: not measured yet."
    ours = [_best_on_valid(study, study.smoothers) for study in studies]
    bleu = [[_bleu(study, name) for name in (*USUAL, best)] for study, best in zip(studies, ours, strict=True)]
    ahead = sum(mean(scores[-1]) > mean(scores[USUAL.index(LABEL_SMOOTHING)]) for scores in bleu)
    preferred = (f"`{_best_on_valid(study, study.recipe.method_names)}` ({study.recipe.name})" for study in studies)
    lines = [
        "- **Translation**, where no n-gram model can compete, is in the table below (p: exact rank-sum test, "
        f"uncorrected). The best smoother is ahead of label smoothing in {ahead} of {len(studies)} studies; of all "
        f"methods validation prefers {', '.join(preferred)}.\n",
        f"| Translation, test BLEU | {' | '.join(USUAL)} | best smoother on validation |",
        "|:--|" + "--:|" * (len(USUAL) + 1),
    ]
    for study, best, scores in zip(studies, ours, bleu, strict=True):
        title = f"{study.languages} ({study.recipe.name}, {seeds(len(scores[-1]))})"
        cells = " | ".join(number(mean(values)) for values in scores)
        lines.append(f"| {title} | {cells} (`{best}`, {p_value(scores[-1], scores[0])} against none) |")
    return "\n".join(lines)


def _best_on_valid(study: Study, names: Iterable[str]) -> str:
    return min(names, key=lambda name: mean(map(study.order, study.runs(name))))


def _bleu(study: Study, name: str) -> list[float]:
    return on_test(study.runs(name), "bleu")


def missing_cells(study: Study) -> str:
    """Which settings and seeds of a study have not been run; nothing where it is complete."""
    told, planned = [], len(study.recipe.sweep.seeds)
    for name in study.recipe.method_names:
        tried = study.tried(name)
        waiting, left = sum(not runs for runs in tried), planned - len(study.runs(name))
        parts = [f"{waiting} of {len(tried)} settings"] if waiting and len(tried) > 1 else []
        parts += [f"{left} of {planned} seeds"] if left else []
        if parts:
            told.append(f"`{name}`: {' and '.join(parts)}")
    return "; ".join(told)


def regime(text: Text) -> str:
    """Whether the unregularized network beats the n-gram model on validation; nothing before it has been run."""
    if not text.none:
        return ""
    verdict = (
        "the n-gram model is better, so nobody should use these networks alone"
        if text.ngram_wins
        else "the network is better"
    )
    return (
        f"On validation none has {number(text.study.on_valid(text.none))}, the best n-gram model "
        f"(order {text.ngram['order']}) {number(text.ngram['valid_perplexity'])}: {verdict}.\n"
    )
