"""Learning rate and length of training, method by method: what was tried around the best strength and dropout."""

from __future__ import annotations

from collections.abc import Sequence

from study import Study

from lidstone.lab.report.render import number
from lidstone.lab.report.runs import Run

TEXT = (
    "In the best setting of strength and dropout of each method, learning rate and length of training were changed one "
    "at a time: a regularized network may profit from longer training. Perplexity on validation / test, seed 1. The "
    "table above has what is best on validation, here in bold."
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
    return f"### Learning rate and length of training\n\n{TEXT}\n\n" + "\n".join(lines) + "\n"


def _told(name: str, value: object) -> str:
    return f"{value} epochs" if name == "epochs" else f"{name.replace('_', ' ')} {value}"


def _scores(study: Study, runs: Sequence[Run], chosen: Run) -> str:
    """The first seed of a setting, on validation and test; bold if it is the chosen one."""
    if not runs:
        return ""
    text = " / ".join(number(runs[0].value(split, study.metric)) for split in ("valid", "test"))
    return f"**{text}**" if runs[0].id == chosen.id else text
