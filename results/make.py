"""docs/results.md, its pictures, the page and the README's table, from the runs in this folder: `make results`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reading import both_metrics, contrasts, findings, recommendation
from study import HERE, Study, mean_on_test

from lidstone.evaluation.attainable import warnings_for
from lidstone.files import write_text
from lidstone.report import Report
from lidstone.report.comparisons import CompareRuns
from lidstone.report.render import number, signed, to_markdown
from lidstone.report.runs import Run

DOCS = HERE.parent / "docs"
README = HERE.parent / "README.md"
PAGES = HERE
MARKS = "<!-- results -->", "<!-- end of results -->"
CHOSEN = "modified-kneser-ney, exact"  # the smoother whose orders and schedules are compared
HEADLINE = (
    "label-smoothing",
    "confidence-penalty",
    "jelinek-mercer",
    "kneser-essen-ney",
    CHOSEN,
    "modified-kneser-ney, exact trigrams",
)
COST = (
    "Updates with and without regularizer in turn, one thread (`benchmarks/training.py`); measured twice, figures "
    "moved by up to 0.06. The times in the runs' own files, and so in the page's figure of cost, include pauses: the "
    "machine was needed for other things now and then."
)
PER_WORD = "word_perplexity"
FRACTIONS = (0.05, 0.1, 0.3)
SIZED = ("jelinek-mercer, paper", CHOSEN)
BY_SIZE = f'sweep.by_method={{"{CHOSEN}": {{regularizer.gamma: [0.2, 0.4]}}}}'
MORE_TEXT = (
    "Test perplexity per word; γ is the better of 0.2 and 0.4 on validation, all else as above, network included."
)


def main() -> None:
    """Write docs/results.md and what it shows, and the table of the README."""
    intro = """# Results

Do smoothing-based regularizers help? This page is written by `make results` from the runs in `results/`: every number
and every yes or no is computed from them. Each run is a small JSON file with its recipe, versions and learning curve,
and the score of every test sentence beside it. All of it, with every setting tried, is also a page of its own:
`results/wikitext2.html` and `results/multi30k.html`, which `make results` writes.

Settings were chosen on validation text with the first seed. The unregularized model was tuned first (learning rate,
dropout, early stopping), and all others use what was best for it. The grids of strengths, in the recipes, are small and
of unequal size, and some were widened once their best lay at an edge; others still have it there. A wider search could
favour the methods that had fewer tries.
"""
    again = """## Again

```console
$ lidstone sweep results/wikitext2.yaml --output results/wikitext2 --jobs 2     # goes on where it stopped
$ lidstone sweep results/multi30k.yaml --output results/multi30k --jobs 2
$ make results
```

A run is determined by its recipe and seed: `lidstone train results/wikitext2/ID --output again`, on the same machine,
gives the same metrics to the last digit. `python results/again.py results/wikitext2/ID` does so and compares.
"""
    write_text(DOCS / "results.md", "\n".join([intro, language_modelling(), translation(), again]))
    write_text(README, with_headline(README.read_text(encoding="utf-8")))


def with_headline(text: str) -> str:
    """The README with the headline table between its marks."""
    report = Study.of("wikitext2").report(HEADLINE, scopes=("seeds",))
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{to_markdown(report.table()) if report else ''}{MARKS[1]}{after}"


def language_modelling() -> str:
    """The chapter on WikiText-2."""
    study = Study.of("wikitext2")
    size = sizes("wikitext2")
    return chapter(
        f"Language modelling: {percent(study.recipe.corpus.fraction)} of WikiText-2",
        study,
        f"### More text\n\n{MORE_TEXT}\n\n{size}" if size else "",
    )


def translation() -> str:
    """The chapter on Multi30k."""
    study = Study.of("multi30k")
    return chapter(f"Translation: {study.recipe.corpus.limit:,} captions of Multi30k, German to English", study)


def chapter(title: str, study: Study, more: str = "") -> str:
    """A study in words, pictures and tables, and as a page of its own."""
    if not study.runs("none"):
        return ""
    report = headline(study, scopes=("seeds",))
    reading = [
        *findings(study, study.names("paper"), "With the paper's strengths"),
        *findings(study, study.names(""), "With strengths chosen here"),
        "Beyond the paper (p: the exact rank-sum test, against the first number):\n",
        *contrasts(study),
        *both_metrics(study),
        *recommendation(study),
    ]
    every = [run for name in study.recipe.method_names for runs in study.tried(name) for run in runs]
    whole = Report.from_runs(every, compare=CompareRuns(exact=True))
    whole.to_html(PAGES / f"{study.folder.name}.html")
    return "\n".join(
        [
            f"## {title}\n",
            about(study) + "\n",
            missing(study),
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


def about(study: Study) -> str:
    """What was trained on what."""
    run, recipe = study.runs("none")[0], study.recipe
    record = json.loads(run.path.read_text(encoding="utf-8"))
    return (
        f"V = {run.signature['vocabulary_size']:,} (BPE, {recipe.tokenizer.merges:,} merges learnt on the training "
        f"text), {run.signature['model_parameters']:,} parameters ({recipe.model.layers} layers of width "
        f"{recipe.model.width}), dropout {recipe.model.dropout}. Test: {run.signature['test_sentences']:,} sentences, "
        f"{run.metrics['test']['tokens']:,} tokens. One core of an AMD EPYC for each run, torch "
        f"{record['versions']['torch']}. "
        f"All settings are in [results/{study.folder.name}.yaml](../results/{study.folder.name}.yaml)."
    )


def picture(report: Report, name: str) -> str:
    """Scores and learning curves of a report, as figures in docs/images."""
    figures = {"Test scores": "scores", "Learning curves": f"curves-valid-{report.metric.key}"}
    with TemporaryDirectory() as folder:
        report.plots(folder, formats=("svg",))
        for kind in figures.values():
            write_text(DOCS / "images" / f"{name}-{kind}.svg", (Path(folder) / f"{kind}.svg").read_text())
    return "".join(f"![{title}](images/{name}-{kind}.svg)\n\n" for title, kind in figures.items())


def missing(study: Study) -> str:
    """How much of a study has not been run yet."""
    seeds = len(study.recipe.sweep.seeds)
    found = [len(study.runs(name)) for name in study.recipe.method_names]
    short, none = sum(0 < runs < seeds for runs in found), found.count(0)
    if not short and not none:
        return ""
    return (
        f"Not finished: of {len(found)} methods, {none} have not been run and {short} have fewer than {seeds} seeds.\n"
    )


def weak_test(study: Study, where: str, systems: int = 1) -> str:
    """A warning where no test over so few seeds, of so many methods together, can be significant."""
    seeds = len(study.recipe.sweep.seeds)
    return "".join(
        f"No † can stand {where}: {warning}.{' The tests over sentences could tell more.' if systems == 1 else ''}\n"
        for warning in warnings_for("rank-sum-exact", (seeds, seeds), systems=systems)
    )


def headline(study: Study, **options: Any) -> Report | None:
    """The paper's methods, the exact form, trigrams, and what one would use instead; with several seeds each."""
    names = [*study.names("paper", "", "exact", "exact trigrams"), *study.baselines]
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


def sizes(name: str, methods: Sequence[str] = SIZED) -> str:
    """The gain over no regularization at several sizes of the training text; vocabularies differ, so per word."""
    lines = ["| Training text | Seeds | None | " + " | ".join(methods) + " |", "|:--|--:|--:|" + "--:|" * len(methods)]
    for fraction in FRACTIONS:
        study = Study.of(name, f"corpus.fraction={fraction}", BY_SIZE, folder=f"{name}-sizes")
        none, *others = (study.runs(method) for method in ("none", *methods))
        if none and all(others):
            seeds, plain = min(map(len, (none, *others))), mean_on_test(none, PER_WORD)
            cells = [number(plain), *(gain(runs, plain) for runs in others)]
            lines.append(f"| {percent(fraction)} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def gain(runs: Sequence[Run], plain: float) -> str:
    """A perplexity per word, how far it is from the plain one, and the strength where there is one for both terms."""
    gamma = runs[0].config["regularizer"]["gamma"]
    strength = f", γ = {gamma}" if gamma else ""
    value = mean_on_test(runs, PER_WORD)
    return f"{number(value)} ({signed(100 * (value / plain - 1))} %{strength})"


def percent(fraction: float) -> str:
    """A fraction in per cent."""
    return f"{100 * fraction:g} %"


if __name__ == "__main__":
    main()
