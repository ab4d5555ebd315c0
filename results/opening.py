"""The page for a hurried reader: who should use what, with the number that says so; all of it from the runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from study import HERE, Study, mean_on_test

from lidstone.evaluation.significance import rank_sum
from lidstone.report.render import number, p_text, signed
from lidstone.report.runs import Run

NGRAMS = HERE / "ngrams.json"
RESIDUAL = "residual"


@dataclass(frozen=True)
class Text:
    """One training text with its networks and its n-gram model."""

    title: str
    study: Study
    ngram_key: str
    rival: str | None = None
    """the regularized method to show; by default the one that validation likes best"""

    @property
    def none(self) -> list[Run]:
        """The seeds of the unregularized network."""
        return self.study.runs("none")

    @property
    def best(self) -> tuple[str, list[Run]]:
        """The regularized method that validation likes best, among those with as many seeds as any.

        Not the residual, which needs the n-gram model at test time.
        """
        names = (
            [self.rival] if self.rival else [n for n in self.study.recipe.method_names if n not in ("none", RESIDUAL)]
        )
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
        return bool(self.ngram_on_valid < mean(run.value("valid", "perplexity") for run in self.none))

    @property
    def ngram_on_valid(self) -> float:
        """The best order's perplexity on the whole validation text."""
        return float(min(dict(json.loads(NGRAMS.read_text())[self.ngram_key]["valid_by_order"]).values()))


def mixture_of(runs: Sequence[Run]) -> tuple[float, int]:
    """The mean test perplexity of the mixtures, and how many of the runs keep one."""
    kept = [value for run in runs if math.isfinite(value := run.beside("mixture", "perplexity"))]
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
    return number(value) + ("" if count == len(runs) else f" ({_seeds(count)})")


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
            told.append(f"{number(value)}, {signed(100 * (value / alone - 1))} % ({text.title}, {_seeds(count)})")
    found = "; ".join(told) or "not measured yet"
    return f"- **The mixture** of the plain network and the n-gram model, against the better of the two: {found}."


def _regularizer(texts: Sequence[Text]) -> str:
    told = []
    for text in texts:
        name, runs = text.best
        if runs:
            scores = [[run.value("test", "perplexity") for run in found] for found in (runs, text.none)]
            change = 100 * (mean(scores[0]) / mean(scores[1]) - 1)
            sure = f", {p_text(rank_sum(*scores, exact=True).p_value)}" if min(map(len, scores)) > 2 else ""
            told.append(f"{signed(change)} % with `{name}` ({text.title}, {_seeds(len(runs))}{sure})")
    found = "; ".join(told) or "not measured yet"
    return f"- **The regularizer**, where a network must stand alone, against no regularizer: {found}."


def _both(texts: Sequence[Text]) -> str:
    told = []
    for text in texts:
        (plain, some), (mixed, count) = mixture_of(text.none), mixture_of(text.best[1])
        if some and count:
            verdict = "adds to the mixture" if mixed < plain else "adds nothing to the mixture"
            seeds = _seeds(min(some, count))
            told.append(f"{number(mixed)} against {number(plain)}: the regularizer {verdict} ({text.title}, {seeds})")
    found = "; ".join(told) or "not measured yet"
    return f"- **Both**, a regularized network in the mixture, against the plain one in it: {found}."


def _residual(texts: Sequence[Text]) -> list[str]:
    """The network that was trained on top of the n-gram model, beside the mixture; nothing before it has been run."""
    told = []
    for text in texts:
        runs, plain = text.study.runs(RESIDUAL), mixture_of(text.none)[0]
        if runs:
            alone, mixed = number(mean_on_test(runs, "perplexity")), number(mixture_of(runs)[0])
            told.append(
                f"{alone}, and {mixed} mixed once more, against {number(plain)} ({text.title}, {_seeds(len(runs))})"
            )
    if not told:
        return []
    return [
        "- **The n-gram residual**, a network trained on top of the n-gram model's scores, which needs that model "
        f"at test time too, against the mixture with the plain network: {'; '.join(told)}."
    ]


def neither(study: Study) -> str:
    """Translation: whether any method beats no regularization significantly."""
    none = study.runs("none")
    if not none:
        return ""
    plain = [run.value("test", "bleu") for run in none]
    rivals = {name: study.runs(name) for name in study.recipe.method_names if name != "none"}
    full = {name: runs for name, runs in rivals.items() if len(runs) == len(none)}
    if not full:
        return ""
    name, runs = min(full.items(), key=lambda item: mean(map(study.order, item[1])))
    scores = [run.value("test", "bleu") for run in runs]
    p = p_text(rank_sum(scores, plain, exact=True).p_value)
    return (
        f"{number(mean(scores))} BLEU with `{name}`, best on validation, against {number(mean(plain))} without "
        f"({study.recipe.name}, {_seeds(len(runs))}, {p})"
    )


def missing_cells(study: Study) -> str:
    """Which settings and seeds of a study have not been run; nothing where it is complete."""
    told = []
    for name in study.recipe.method_names:
        tried = study.tried(name)
        waiting, seeds = sum(not runs for runs in tried), len(study.runs(name))
        if waiting:
            told.append(f"`{name}`: {waiting} of {len(tried)} settings")
        elif seeds < len(study.recipe.sweep.seeds):
            told.append(f"`{name}`: {len(study.recipe.sweep.seeds) - seeds} of {len(study.recipe.sweep.seeds)} seeds")
    return "; ".join(told)


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def regime(text: Text) -> str:
    """Whether a study may count: the unregularized network must beat the n-gram model on validation."""
    plain = mean(run.value("valid", "perplexity") for run in text.none) if text.none else math.nan
    verdict = "the n-gram model is better, so the study does not count" if text.ngram_wins else "the network is better"
    return (
        f"On validation none has {number(plain)}, the best n-gram model (order {text.ngram['order']}) "
        f"{number(text.ngram_on_valid)}: {verdict}.\n"
    )
