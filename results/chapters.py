"""The pages with all tables and pictures of a study, docs/results-NAME.md, and the tables that other pages show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks._timing import newest

import results
from lidstone.files import parse_json, write_text
from lidstone.lab.evaluation.significance import warnings_for
from lidstone.lab.report import Report
from lidstone.lab.report.comparisons import CompareRuns
from lidstone.lab.report.packed import read_bytes
from lidstone.lab.report.render import number, to_markdown
from lidstone.lab.report.runs import Run
from results import BLIMP
from results.study import Study

COST = (
    "Updates with and without regularizer in turn, one thread (`benchmarks/training.py`); two measurements differed by "
    "up to 0.06. Peak memory is the least over the runs of a method. The training times in the run files include "
    "interruptions: do not compare them."
)
CHOSEN = "modified-kneser-ney, exact"
TITLES = {
    "tatoeba": "Little text: 20 % of Tatoeba's English sentences",
    "fine_tuning": "Fine-tuning: 2,000 captions of Multi30k",
    "wikitext2": "Very little text: 3 % of WikiText-2",
    "multi30k": "Translation: captions of Multi30k",
    "lafand_en_ibo": "Translation: English to Igbo",
    "lafand_en_swa": "Translation: English to Swahili",
}


def details(name: str) -> str:
    """Everything of a study but words: how it was made, pictures, tables."""
    study = Study.of(name)
    write_page(study)
    methods = [method for method in study.recipe.method_names if method != "none"]
    parts = comparisons(study) if study.names("paper") else [means(study), chrf(study)]
    report = study.report(methods, scopes=("seeds",))
    return "\n".join(
        [
            f"# {TITLES[name]}\n",
            f"Every table of this study; [Results](results.md) says what they mean.\n\n{about(study)}\n",
            picture(report, name) if report else "",
            *filter(None, parts),
            *filter(None, [refined(study), minimal_pairs(study)]),
        ]
    )


def means(study: Study) -> str:
    """The table of all methods, mean and standard error over seeds."""
    report = study.report([name for name in study.recipe.method_names if name != "none"], scopes=("seeds",))
    if report is None:
        return ""
    return f"{to_markdown(report.table())}\n{weak_test(study, 'here', systems=len(report.table().rows) - 1)}"


def chrf(study: Study) -> str:
    """The same table with chrF; nothing for language models."""
    found = (
        study.report(study.recipe.method_names, metric="chrf", scopes=("seeds",)) if study.metric == "bleu" else None
    )
    return to_markdown(found.table()) if found else ""


def comparisons(study: Study) -> list[str]:
    """The tables of a study with the paper's methods: by question, best seeds, cost."""
    return [
        weak_test(study, "in the tables of means"),
        *tables(study),
        perplexities(study) if study.metric == "bleu" else "",
        best_seeds(study),
        f"## Cost\n\n{COST}\n\n{costs(study)}",
    ]


def write_page(study: Study) -> None:
    """The page of a study, with every setting that was tried."""
    every = [run for name in study.recipe.method_names for runs in study.tried(name) for run in runs]
    Report.from_runs(every, compare=CompareRuns(exact=True)).to_html(results.PAGES / f"{study.file.stem}.html")


def picture(report: Report, name: str) -> str:
    """Scores and learning curves of a report, as figures in docs/images."""
    figures = {"Test scores": "scores", "Learning curves": f"curves-valid-{report.metric.key}"}
    with TemporaryDirectory() as folder:
        report.plots(folder, formats=("svg",))
        for kind in figures.values():
            write_text(results.DOCS / "images" / f"{name}-{kind}.svg", (Path(folder) / f"{kind}.svg").read_text())
    return "".join(f"![{title}](images/{name}-{kind}.svg)\n\n" for title, kind in figures.items())


def about(study: Study) -> str:
    """What was trained on what."""
    run, recipe = study.runs("none")[0], study.recipe
    record = parse_json(read_bytes(run.path))
    size, words = run.signature["vocabulary_size"], run.metrics["test"]["tokens"]
    tokens, shape = f"BPE, {recipe.tokenizer.merges:,} merges learnt on the training text", ""
    if recipe.model.kind == "auto":
        tokens = "those of the network that is tuned"
    else:
        shape = f" ({recipe.model.layers} layers of width {recipe.model.width})"
    return (
        f"V = {size:,} ({tokens}), {run.signature['model_parameters']:,} parameters{shape}, dropout "
        f"{run.config['model']['dropout']} without regularizer. Test: {run.signature['test_sentences']:,} sentences, "
        f"{words:,} tokens. One core of an AMD EPYC for each run, torch "
        f"{record['versions']['torch']}. {_scorers(run)}Settings were chosen on {_validation(study)}. {_edges(study)}"
        f"All settings are in [results/{study.file.stem}.yaml](../results/{study.file.stem}.yaml)."
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
            yield f"## {title}\n\n{text}\n\n{to_markdown(table)}" + (note and f"\n{note}")


def beside(study: Study, method: str, *variants: str) -> list[str]:
    """A method with those of its variants that have been run; nothing if none has."""
    found = [name for name in (f"{method} {variant}" for variant in variants) if study.runs(name)]
    return [method, *found] if found else []


def perplexities(study: Study) -> str:
    """The perplexities of a translation study."""
    report = headline(study, metric="perplexity", scopes=("seeds",))
    text = "The same models, chosen by BLEU: how probable they find the reference translations."
    return f"## Perplexity\n\n{text}\n\n{to_markdown(report.table())}" if report else ""


def best_seeds(study: Study) -> str:
    """The paper's second kind of table: best seeds, paired tests over sentences."""
    report = headline(study, scopes=("best-seed",))
    return f"## Best seeds, as in the paper's appendix C\n\n{to_markdown(report.best_seed_table())}" if report else ""


def costs(study: Study) -> str:
    """What each method costs: time of an update over a plain one, measured apart, and the memory of its runs."""
    measured = newest("methods")["regularised_over_plain"][study.file.stem]
    lines = ["| Method | Speed over None | Peak memory |", "|:--|--:|--:|"]
    for method in study.recipe.method_names:
        if (runs := study.runs(method)) and method in measured:
            memory = min(run.cost["peak_memory_bytes"] for run in runs)
            lines.append(f"| {method} | {measured[method]:.2f} | {memory / 1e6:,.0f} MB |")
    return "\n".join(lines) + "\n"


def minimal_pairs(study: Study) -> str:
    """BLiMP by phenomenon: the networks of a study, its n-gram model, and the mixture with the plain network."""
    columns = _judges(study)
    if not columns:
        return ""
    lines = ["| BLiMP, % | " + " | ".join(columns) + " |", "|:--|" + "--:|" * len(columns)]
    for row in columns["none"][0]["phenomena"]:
        cells = (mean(found["phenomena"][row]["accuracy"] for found in runs) for runs in columns.values())
        lines.append(f"| {row.replace('_', ' ')} | {' | '.join(f'{100 * cell:.1f}' for cell in cells)} |")
    lines.append(f"| **all** | {' | '.join(f'{_overall(runs):.1f}' for runs in columns.values())} |")
    return "## Minimal pairs\n\n" + "\n".join(lines) + "\n"


def _judges(study: Study) -> dict[str, list[dict[str, Any]]]:
    """What was measured for each method, for the n-gram model and for the mixture; nothing before none was."""
    kept = json.loads(BLIMP.read_text()) if BLIMP.is_file() else {}
    found = {name: [kept[run.id] for run in study.runs(name) if run.id in kept] for name in study.recipe.method_names}
    found = {name: runs for name, runs in found.items() if runs}
    if "none" not in found:
        return {}
    return {
        **found,
        "n-gram alone": [run["ngram"] for run in found["none"]],
        "none + n-gram": [run["mixture"] for run in found["none"]],
    }


def _overall(runs: Sequence[dict[str, Any]]) -> float:
    return 100 * mean(run["accuracy"] for run in runs)


TEXT = (
    "In the best setting of each method these were changed one at a time: a regularized network may profit from "
    "another training. Perplexity on validation / test, seed 1. The table above has what is best on validation, here "
    "in bold."
)


def refined(study: Study) -> str:
    """The methods of a study with each change of training; nothing for a recipe without any."""
    changes = [(key.partition(".")[2], value) for key, values in study.recipe.sweep.refine.items() for value in values]
    methods = [name for name in study.recipe.method_names if study.runs(name)]
    if not changes or not methods:
        return ""
    training = study.recipe.training
    usual = f"{_told('learning_rate', training.learning_rate)}, {_told('epochs', training.epochs)}"
    heads = ["Method", "Dropout", usual, *(_told(name, value) for name, value in changes)]
    lines = [f"| {' | '.join(heads)} |", "|:--|" + "--:|" * (len(heads) - 1)]
    for name in methods:
        chosen = study.runs(name)[0]
        tried = [min(study.grid(name), key=lambda runs: study.order(runs[0])), *study.refined(name)]
        scores = " | ".join(_scores(study, runs, chosen) for runs in tried)
        lines.append(f"| {name} | {chosen.config['model']['dropout']} | {scores} |")
    return f"## One change at a time\n\n{TEXT}\n\n" + "\n".join(lines) + "\n"


def _told(name: str, value: object) -> str:
    return f"{value} epochs" if name == "epochs" else f"{name.replace('_', ' ')} {value}"


def _scores(study: Study, runs: Sequence[Run], chosen: Run) -> str:
    """The first seed of a setting, on validation and test; bold if it is the chosen one."""
    if not runs:
        return ""
    text = " / ".join(number(runs[0].value(split, study.metric)) for split in ("valid", "test"))
    return f"**{text}**" if runs[0].id == chosen.id else text
