"""What the runs say, in words: the paper's findings, the sign of the second term, longer n-grams, the recommendation.

Every yes or no is computed; where runs are missing, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean

from study import Study

from lidstone.evaluation.significance import rank_sum
from lidstone.report.labels import Label
from lidstone.report.render import number, p_text
from lidstone.report.runs import Run
from lidstone.report.table import Row


def findings(study: Study, methods: Iterable[str], where: str) -> list[str]:
    """The paper's three findings, put to one table."""
    report = study.report(methods, scopes=("seeds",))
    rows = {row.label.name: row for row in report.table().rows} if report else {}
    if report is None or not {"none", "add-lambda", "good-turing", "jelinek-mercer"} <= rows.keys():
        return []
    none, *others = rows.values()
    winners = [row for row in others if report.metric.better(row.value, none.value)]
    sure = ", ".join(row.label.short for row in winners if row.marks)
    best = min(others, key=lambda row: report.metric.order(row.value))
    add, turing, mercer = (rows[name] for name in ("add-lambda", "good-turing", "jelinek-mercer"))
    beaten = [row for row in (turing, mercer) if report.metric.better(row.value, add.value)]
    return [
        f"{where}:\n",
        _answer(
            "Do all beat no regularization?",
            len(winners) == len(others),
            f"{len(winners)} of {len(others)}; significantly: {sure or 'none'}",
        ),
        _answer("Is Jelinek–Mercer best?", best is mercer, f"best is {_told(best)}"),
        _answer(
            "Do Good–Turing and Jelinek–Mercer beat add-λ?", len(beaten) == 2, ", ".join(map(_told, rows.values()))
        ),
        "",
    ]


def signs(study: Study) -> list[str]:
    """What the sign of the second term does: the same smoother, strength and empirical distribution in both forms."""
    pairs = [
        (study.runs(name), study.runs(name.replace("published", "exact"))) for name in study.names("published token")
    ]
    told = [
        f"{Label(added[0].name).short} {_mean(added)} where the γ₋ term is added, {_mean(taken)} where it is subtracted"
        for added, taken in pairs
        if added and taken
    ]
    return [f"- The sign of the Z₋ term, on tokens at one strength: {'; '.join(told)}."] if told else []


def orders(study: Study) -> list[str]:
    """What longer n-grams add to the exact form."""
    told = []
    for name in study.names("exact"):
        lengths = {n: study.runs(f"{name} {n}".removesuffix(" bigrams")) for n in ("bigrams", "trigrams", "4-grams")}
        shown = [f"{_mean(runs)} with {n}" for n, runs in lengths.items() if runs]
        if len(shown) > 1:
            told.append(f"{Label(lengths['bigrams'][0].name).short} {', '.join(shown)}")
    return [f"- Longer n-grams, exact form: {'; '.join(told)}."] if told else []


def recommendation(study: Study) -> list[str]:
    """The method that validation likes best, against the paper's best on the test set."""
    rows = {name: study.runs(name) for name in study.recipe.method_names}
    rows = {name: runs for name, runs in rows.items() if len(runs) > 1}
    rivals = [name for name in ("jelinek-mercer, paper", "jelinek-mercer") if name in rows]
    if not rivals:
        return []
    best, rival = (min(names, key=lambda name: mean(map(study.order, rows[name]))) for names in (rows, rivals))
    if best == rival:
        return [f"- Of all methods, validation likes `{rival}` best: nothing beats the paper's best."]
    tests = [[run.value("test", study.metric) for run in rows[name]] for name in (best, rival)]
    found = rank_sum(*tests, exact=True, names=(best, rival))
    return [
        f"- Of all methods, validation likes `{best}` best, and of the paper's `{rival}`. On the test set: "
        f"{number(mean(tests[0]))} against {number(mean(tests[1]))} ({len(tests[0])} and {len(tests[1])} seeds, "
        f"{p_text(found.p_value)}, exact rank-sum)."
    ]


def _answer(question: str, yes: bool, why: str) -> str:
    return f"- {question} **{'Yes' if yes else 'No'}** ({why})."


def _told(row: Row) -> str:
    return f"{row.label.short} {number(row.value)}"


def _mean(runs: Sequence[Run]) -> str:
    return number(mean(run.value("test", "perplexity" if run.task == "lm" else "bleu") for run in runs))
