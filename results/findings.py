"""What the runs say, in words: the paper's findings, what single choices do, which method is best on validation.

Every yes or no is computed; where runs are missing, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from lidstone.lab.report.labels import Label
from lidstone.lab.report.render import number
from lidstone.lab.report.tables import Row
from results.study import Study, mean_on_test, on_test, p_value, seeds


def findings(study: Study, methods: Iterable[str], where: str) -> list[str]:
    """The paper's three findings, put to one table."""
    report = study.report(methods, scopes=("seeds",))
    rows = {row.label.name: row for row in report.table().rows} if report else {}
    if report is None or not {"none", "add-lambda", "good-turing", "jelinek-mercer"} <= rows.keys():
        return []
    none, *others = rows.values()
    winners = [row for row in others if report.metric.better(row.value, none.value)]
    sure = ", ".join(row.label.short for row in winners if row.marks)
    add, turing, mercer = (rows[name] for name in ("add-lambda", "good-turing", "jelinek-mercer"))
    best, second, *_ = sorted(others, key=lambda row: report.metric.order(row.value))
    rival = second if best is mercer else mercer
    beaten = [row for row in (turing, mercer) if report.metric.better(row.value, add.value)]
    return [
        f"{where}:\n",
        _answer(
            "Do all beat no regularization?",
            len(winners) == len(others),
            f"{len(winners)} of {len(others)}; {f'significantly: {sure}' if sure else 'none significantly'}",
        ),
        _answer(
            "Is Jelinek–Mercer best?",
            best is mercer,
            f"best is {_told(best)}, then {_told(second)}; "
            f"{p_value(best.values, rival.values)} against {rival.label.short}",
        ),
        _answer(
            "Do Good–Turing and Jelinek–Mercer beat add-λ?",
            len(beaten) == 2,
            f"{', '.join(map(_told, rows.values()))}; "
            + " and ".join(f"{p_value(row.values, add.values)} for {row.label.short}" for row in (turing, mercer)),
        ),
        "",
    ]


def contrasts(study: Study) -> list[str]:
    """What single choices do, all else equal."""
    forms, exact = study.names("exact token"), study.names("exact")
    questions = {
        "The sign of the Z₋ term, on tokens at one strength": [
            {"where it is added": name.replace("exact", "published"), "where it is subtracted": name} for name in forms
        ],
        "What p̃ is compared with, exact form at one strength": [
            {"with the n-gram counts": name.replace("token", "ngram"), "with the token at hand": name} for name in forms
        ],
        "Longer n-grams, exact form": [
            {"with bigrams": name, "with trigrams": f"{name} trigrams", "with 4-grams": f"{name} 4-grams"}
            for name in exact
        ],
        "Strengths that fall to zero, exact form": [
            {"constant": name, "along a line": f"{name} linear", "along a cosine": f"{name} cosine"} for name in exact
        ],
    }
    told = {
        title: list(filter(None, (_contrast(study, group) for group in groups))) for title, groups in questions.items()
    }
    return [f"- {title}: {'. '.join(texts)}." for title, texts in told.items() if texts]


def _contrast(study: Study, ways: Mapping[str, str]) -> str:
    """The means of several methods over the seeds that all of them have, and how sure it is that they differ."""
    runs = {way: {run.seed: run for run in study.runs(method)} for way, method in ways.items()}
    runs = {way: found for way, found in runs.items() if found}
    if len(runs) < 2:
        return ""
    common = sorted(set.intersection(*map(set, runs.values())))
    if not common:
        return ""
    values = {way: [found[seed].value("test", study.metric) for seed in common] for way, found in runs.items()}
    (way, first), *others = values.items()
    told = [f"{number(mean(first))} {way}"]
    for way, scores in others:
        told.append(f"{number(mean(scores))} {way} ({p_value(scores, first)})")
    return f"{Label(next(iter(runs.values()))[common[0]].name).short} {', '.join(told)}; {seeds(len(common))}"


def both_metrics(study: Study) -> list[str]:
    """For translation: whether BLEU follows perplexity."""
    if study.metric != "bleu":
        return []
    none = study.runs("none")
    found = (study.runs(name) for name in study.recipe.method_names if name != "none")
    rows = {runs[0].path: runs for runs in found if len(runs) > 1}.values()  # two methods may share a setting
    better = {
        metric: sum(sign * (mean_on_test(runs, metric) - mean_on_test(none, metric)) > 0 for runs in rows)
        for metric, sign in (("perplexity", -1), ("bleu", 1))
    }
    return [
        f"- Of {len(rows)} methods, {better['perplexity']} have a lower perplexity than no regularization and "
        f"{better['bleu']} a higher BLEU."
    ]


def recommendation(study: Study) -> list[str]:
    """The two methods that are best on validation, on the test set beside the paper's best and the best in its form."""
    found = {name: study.runs(name) for name in study.recipe.method_names}
    rows = {name: runs for name, runs in found.items() if len(runs) > 1}
    means = {name: study.on_valid(runs) for name, runs in rows.items()}
    ranked = sorted(rows, key=lambda name: mean(map(study.order, rows[name])))
    published = [name for name in ranked if name in study.names("paper", "")]
    mercer = [name for name in published if name.startswith("jelinek-mercer")]
    if len(ranked) < 2 or not mercer:
        return []
    values = {name: on_test(rows[name], study.metric) for name in ranked}
    first, second = ranked[:2]
    told = [f"they have {number(mean(values[first]))} and {_mean_and_seeds(values[second])}"]
    for rival in dict.fromkeys((mercer[0], published[0])):
        if rival not in (first, second):
            p = [p_value(values[name], values[rival]) for name in (first, second)]
            told.append(f"`{rival}` has {_mean_and_seeds(values[rival])} ({' and '.join(p)}, exact rank-sum)")
    return [
        f"- The best two methods on validation are `{first}` ({number(means[first])}) and `{second}` "
        f"({number(means[second])}). On the test set {'; '.join(told)}."
    ]


def _answer(question: str, yes: bool, why: str) -> str:
    return f"- {question} **{'Yes' if yes else 'No'}** ({why})."


def _told(row: Row) -> str:
    return f"{row.label.short} {number(row.value)}"


def _mean_and_seeds(values: Sequence[float]) -> str:
    return f"{number(mean(values))} over {seeds(len(values))}"
