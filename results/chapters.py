"""The chapters on WikiText-2 and Multi30k: the paper's methods in words, pictures and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pages
from opening import regime
from pages import percent, picture
from reading import both_metrics, contrasts, findings, recommendation
from sizes import CHOSEN, sizes, studied
from study import HERE, Study

from lidstone.lab.evaluation.significance import warnings_for
from lidstone.lab.report import Report
from lidstone.lab.report.comparisons import CompareRuns
from lidstone.lab.report.render import to_markdown
from lidstone.lab.report.runs import Run

COST = (
    "Updates with and without regularizer in turn, one thread (`benchmarks/training.py`); two measurements differed by "
    "up to 0.06. Peak memory is the least over the runs of a method. The training times in the run files include "
    "interruptions: do not compare them."
)
MORE_TEXT = (
    "Test perplexity per word; γ is the better of 0.2 and 0.4 on validation, all else as above, network included."
)


def language_modelling() -> str:
    """The chapter on WikiText-2."""
    study = Study.of("wikitext2")
    size = sizes()
    return chapter(
        f"Language modelling in n-gram territory: {percent(study.recipe.corpus.fraction)} of WikiText-2",
        study,
        [regime(studied("wikitext2"))],
        f"### More text\n\n{MORE_TEXT}\n\n{size}" if size else "",
    )


def translation() -> str:
    """The chapter on Multi30k."""
    study = Study.of("multi30k")
    return chapter(f"Translation: {study.recipe.corpus.limit:,} captions of Multi30k, {study.languages}", study)


def chapter(title: str, study: Study, more_before: Sequence[str] = (), more: str = "") -> str:
    """A study in words, pictures and tables, and as a page of its own."""
    if not study.runs("none"):
        return ""
    report = headline(study, scopes=("seeds",))
    reading = [
        *findings(study, study.names("paper"), "With the paper's strengths"),
        *findings(study, study.names(""), "With strengths chosen here"),
        "Beyond the paper (p: the exact rank-sum test, uncorrected, against the first number):\n",
        *contrasts(study),
        *both_metrics(study),
        *recommendation(study),
    ]
    write_page(study)
    return "\n".join(
        [
            f"## {title}\n",
            about(study) + "\n",
            *more_before,
            "### What the runs say\n",
            *reading,
            "",
            picture(report, study.folder.name) if report else "",
            weak_test(study, "in the tables of means"),
            *tables(study),
            perplexities(study) if study.metric == "bleu" else "",
            best_seeds(study),
            more,
            f"### Cost\n\n{COST}\n\n{costs(study)}",
        ]
    )


def write_page(study: Study) -> None:
    """The page of a study, with every setting that was tried."""
    every = [run for name in study.recipe.method_names for runs in study.tried(name) for run in runs]
    Report.from_runs(every, compare=CompareRuns(exact=True)).to_html(pages.PAGES / f"{study.folder.name}.html")


def about(study: Study) -> str:
    """What was trained on what."""
    run, recipe = study.runs("none")[0], study.recipe
    record = json.loads(run.path.read_text(encoding="utf-8"))
    return (
        f"V = {run.signature['vocabulary_size']:,} (BPE, {recipe.tokenizer.merges:,} merges learnt on the training "
        f"text), {run.signature['model_parameters']:,} parameters ({recipe.model.layers} layers of width "
        f"{recipe.model.width}), dropout {run.config['model']['dropout']} without regularizer. "
        f"Test: {run.signature['test_sentences']:,} sentences, "
        f"{run.metrics['test']['tokens']:,} tokens. One core of an AMD EPYC for each run, torch "
        f"{record['versions']['torch']}. {_scorers(run)}Settings were chosen on {_validation(study)}. {_edges(study)}"
        f"All settings are in [results/{study.folder.name}.yaml](../results/{study.folder.name}.yaml)."
    )


def _scorers(run: Run) -> str:
    """The signatures of sacreBLEU, and the form of the references; nothing for language models."""
    signatures = {name: run.metrics["test"].get(f"{name.lower()}_signature") for name in ("BLEU", "chrF")}
    told = " and ".join(f"{name} is `{signature}`" for name, signature in signatures.items() if signature)
    moses = run.config["corpus"]["tokenization"] != "none"
    references = "; references, too, were Moses-tokenized and detokenized" if moses else ""
    return f"{told} (sacreBLEU{references}). " if told else ""


def _validation(study: Study) -> str:
    limit = study.recipe.evaluation.valid_limit
    return f"the first {limit} validation sentences" if limit else "all validation sentences"


def _edges(study: Study) -> str:
    """For how many methods the chosen strength is the least or the largest that was tried; of two, one always is."""
    grids = [
        ({run.method.get("gamma_plus") for runs in study.tried(name) for run in runs}, study.runs(name)[0])
        for name in study.recipe.method_names
        if study.runs(name)
    ]
    searched = [(strengths, run) for strengths, run in grids if len(strengths) > 1]
    if not searched:
        return ""
    if all(len(strengths) == 2 for strengths, _ in searched):
        return "Two strengths were tried for each method: others may be better. "
    edge = sum(run.method.get("gamma_plus") in (min(strengths), max(strengths)) for strengths, run in searched)
    return f"For {edge} of {len(searched)} methods the best strength is at the edge of its grid. "


def weak_test(study: Study, where: str, systems: int = 1) -> str:
    """A warning where no test over so few seeds, of so many methods together, can be significant."""
    seeds = len(study.recipe.sweep.seeds)
    return "".join(
        f"No † is possible {where}: {warning}.{' Tests over sentences have more power.' if systems == 1 else ''}\n"
        for warning in warnings_for("rank-sum-exact", (seeds, seeds), systems=systems)
    )


def headline(study: Study, **options: Any) -> Report | None:
    """The paper's methods with strengths chosen here, the exact form, trigrams, and what one would use instead."""
    names = [*study.names("", "exact", "exact trigrams"), *study.baselines]
    return study.report([name for name in names if len(study.runs(name)) > 1], **options)


def tables(study: Study) -> Iterable[str]:
    """The tables of one study."""
    parts = [
        (
            "The paper's methods with its strengths",
            "Published form, bigrams; strengths and parameters are those that the paper found best on its corpora.",
            study.names("paper"),
        ),
        (
            "The paper's methods with strengths chosen here",
            "Published form, bigrams, one strength γ for both terms.",
            study.names(""),
        ),
        (
            "The exact form on tokens",
            "The target is (1 − γ) onehot + γ p̃: label smoothing whose uniform distribution is an n-gram model's.",
            study.names("exact"),
        ),
        ("What one would use instead", "The usual regularizers, and more dropout.", study.baselines),
        (
            "Longer n-grams",
            "The same smoother with n-grams of several orders, each at its own best strength.",
            beside(study, CHOSEN, "trigrams", "4-grams"),
        ),
        (
            "Form and empirical distribution",
            "All four combinations, at one strength: the sign of the second term, and what p̃ is compared with.",
            study.names("published ngram", "published token", "exact ngram", "exact token"),
        ),
        (
            "Strengths that fall during training",
            "Constant, or down to zero along a line or a cosine.",
            beside(study, CHOSEN, "linear", "cosine"),
        ),
    ]
    for title, text, methods in parts:
        report = study.report(methods, scopes=("seeds",))
        if report is not None:
            table = report.table()
            note = "" if weak_test(study, "") else weak_test(study, "here", systems=len(table.rows) - 1)
            yield f"### {title}\n\n{text}\n\n{to_markdown(table)}" + (note and f"\n{note}")


def beside(study: Study, method: str, *variants: str) -> list[str]:
    """A method with those of its variants that have been run; nothing if none has."""
    found = [name for name in (f"{method} {variant}" for variant in variants) if study.runs(name)]
    return [method, *found] if found else []


def perplexities(study: Study) -> str:
    """The perplexities of a translation study."""
    report = headline(study, metric="perplexity", scopes=("seeds",))
    text = "The same models, chosen by BLEU: how probable they find the reference translations."
    return f"### Perplexity\n\n{text}\n\n{to_markdown(report.table())}" if report else ""


def best_seeds(study: Study) -> str:
    """The paper's second kind of table: best seeds, paired tests over sentences."""
    report = headline(study, scopes=("best-seed",))
    return f"### Best seeds, as in the paper's appendix C\n\n{to_markdown(report.best_seed_table())}" if report else ""


def costs(study: Study) -> str:
    """What each method costs: time of an update over a plain one, measured apart, and the memory of its runs."""
    file = HERE.parent / "benchmarks" / "results" / "methods.json"
    measured = json.loads(file.read_text())["regularised_over_plain"][study.folder.name]
    lines = ["| Method | Speed over None | Peak memory |", "|:--|--:|--:|"]
    for method in study.recipe.method_names:
        if (runs := study.runs(method)) and method in measured:
            memory = min(run.cost["peak_memory_bytes"] for run in runs)
            lines.append(f"| {method} | {measured[method]:.2f} | {memory / 1e6:,.0f} MB |")
    return "\n".join(lines) + "\n"
