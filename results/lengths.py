"""Longer training: whether it changes what a study says."""

from __future__ import annotations

import json

from study import Study

from lidstone.report.render import number, signed
from lidstone.report.runs import Run

METHODS = ("none", "label-smoothing", "modified-kneser-ney, exact 4-grams")
EPOCHS = (12, 20)
TEXT = (
    "A regularized network may profit from longer training. Perplexity on validation / test, seed 1; strength, dropout "
    "and learning rate are those of the table above, whose rows all have 12 epochs."
)


def lengths(study: Study) -> str:
    """The main methods of a study with each number of epochs; nothing before all of them were trained so."""
    found = {method: _tried(study, method) for method in METHODS}
    if not all(map(all, found.values())):
        return ""
    lines = [f"| Method | {' | '.join(f'{epochs} epochs' for epochs in EPOCHS)} |", "|:--|" + "--:|" * len(EPOCHS)]
    for method, runs in found.items():
        lines.append(f"| {method} | {' | '.join(_told(study, run) for run, *_ in runs)} |")
    return f"### Longer training\n\n{TEXT}\n\n" + "\n".join(lines) + f"\n\n{_reading(study, found)}\n"


def _tried(study: Study, method: str) -> list[list[Run]]:
    """The seeds of a method with each number of epochs, all else as validation chose it."""
    chosen = study.runs(method)
    if not chosen:
        return [[]]
    axes = {}
    for key in study.recipe.sweep.by_method[method]:
        section, name = key.split(".")
        axes[key] = [chosen[0].config[section][name]]
    grid = json.dumps({method: {**axes, "training.epochs": EPOCHS}})
    return Study.of(study.folder.name, f"sweep.by_method={grid}").tried(method)


def _told(study: Study, run: Run) -> str:
    return " / ".join(number(run.value(split, study.metric)) for split in ("valid", "test"))


def _reading(study: Study, found: dict[str, list[list[Run]]]) -> str:
    """The distance from no regularizer on the test set, where validation chooses the length for each method."""
    best = {method: min((run for run, *_ in runs), key=study.order) for method, runs in found.items()}
    value = {method: run.value("test", study.metric) for method, run in best.items()}
    told = [
        f"`{method}` ({best[method].config['training']['epochs']} epochs) is at "
        f"{signed(100 * (value[method] / value['none'] - 1))} %"
        for method in METHODS[1:]
    ]
    return (
        f"With the length that is best on validation, against none ({best['none'].config['training']['epochs']} "
        f"epochs): {', '.join(told)} on the test set."
    )
