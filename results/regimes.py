"""The chapters on Tatoeba and LAFAND-MT, each with all its methods in one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import mean
from typing import Any

from chapters import about, weak_test, write_page
from opening import regime
from pages import percent, picture
from refined import refined
from sizes import studied
from study import HERE, Study, on_test, seeds

from lidstone.lab.report.render import to_markdown

BLIMP = HERE / "blimp.json"


def tatoeba() -> str:
    """The chapter on Tatoeba, where the network is the better model."""
    study = Study.of("tatoeba")
    title = f"Language modelling: {percent(study.recipe.corpus.fraction)} of Tatoeba's English sentences"
    before = [regime(studied("tatoeba")), _seed_by_seed(study)]
    return plain_chapter(title, study, before, [refined(study), minimal_pairs(study)])


def _seed_by_seed(study: Study) -> str:
    """Which methods beat the unregularized model with every seed; said where no † is possible."""
    scores = {name: on_test(study.runs(name)) for name in study.recipe.method_names}
    none = scores.pop("none")
    tested = {name: values for name, values in scores.items() if len(values) > 1}
    note = weak_test(study, "here", systems=len(tested))
    ahead = ", ".join(f"`{name}`" for name, values in tested.items() if none and max(values) < min(none))
    if not note or not ahead:
        return note
    return f"{note}On the test set every seed of these methods is better than every seed of none: {ahead}.\n"


def lafand(name: str) -> str:
    """The chapter on one pair of languages of LAFAND-MT."""
    study = Study.of(name)
    return plain_chapter(f"Translation with little data: {study.languages} (LAFAND-MT)", study)


def plain_chapter(title: str, study: Study, before: Sequence[str] = (), after: Sequence[str] = ()) -> str:
    """A study with a table of all its methods; nothing before the unregularized model has been run."""
    report = study.report([name for name in study.recipe.method_names if name != "none"], scopes=("seeds",))
    if report is None or not study.runs("none"):
        return ""
    write_page(study)
    other = (
        study.report(study.recipe.method_names, metric="chrf", scopes=("seeds",)) if study.metric == "bleu" else None
    )
    tables = [to_markdown(found.table()) for found in (report, other) if found is not None]
    pictures = picture(report, study.folder.name)
    return "\n".join([f"## {title}\n", about(study) + "\n", *before, pictures, *tables, *filter(None, after)])


def minimal_pairs(study: Study) -> str:
    """BLiMP by phenomenon: the networks of a study, its n-gram model, and the mixture with the plain network."""
    columns = _judges(study)
    if not columns:
        return "Minimal pairs (BLiMP) have not been measured yet.\n"
    lines = ["| BLiMP, % | " + " | ".join(columns) + " |", "|:--|" + "--:|" * len(columns)]
    for row in columns["none"][0]["phenomena"]:
        cells = (mean(found["phenomena"][row]["accuracy"] for found in runs) for runs in columns.values())
        lines.append(f"| {row.replace('_', ' ')} | {' | '.join(f'{100 * cell:.1f}' for cell in cells)} |")
    lines.append(f"| **all** | {' | '.join(f'{_overall(runs):.1f}' for runs in columns.values())} |")
    return "### Minimal pairs\n\n" + "\n".join(lines) + "\n"


def grammar(study: Study) -> list[str]:
    """Minimal pairs in one sentence; nothing before they have been measured."""
    columns = _judges(study)
    if not columns:
        return []
    shares = sorted(((_overall(runs), name) for name, runs in columns.items()), reverse=True)
    told = "; ".join(f"{name} {share:.1f}" for share, name in shares)
    return [
        "- **Grammar**, the percentage of minimal pairs (BLiMP) whose good sentence is likelier, 50 by chance, best "
        f"first: {told} ({study.recipe.name}, {seeds(max(map(len, columns.values())))})."
    ]


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
