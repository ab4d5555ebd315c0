"""Computing one cell of a sweep, in whichever process, so that nothing is computed twice and nothing is lost.

A cell is named by the hash of its recipe and data. Whoever computes it holds a lock on that name, which the system
takes back from a process that dies; a complete `run.json` ends the matter; a training cut short is taken up again.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidstone.errors import LidstoneError
from lidstone.experiment.config import Recipe, make_recipe
from lidstone.experiment.data import prepare_corpus
from lidstone.experiment.prepared import Prepared
from lidstone.experiment.record import read_record, run_id
from lidstone.files import write_text

PRUNED = "pruned.json"
"""Says in a run's folder that a search gave it up, and at which score."""


@dataclass(frozen=True)
class Job:
    """A cell as plain values, to be sent to another process."""

    config: dict[str, Any]
    output: str
    threads: int | None = None
    trial: tuple[str, str, int] | None = None
    """for a search with pruning: journal, study and trial number"""


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    state: str
    """complete, pruned, busy (another process has it) or failed"""
    id: str
    record: dict[str, Any] | None = None
    computed: bool = False
    """False if it was there before"""
    message: str = ""


class Pruned(LidstoneError):
    """A training given up because others were better at this point."""


def compute(job: Job) -> Outcome:
    """Compute a cell, or find that it is done or in other hands."""
    recipe = make_recipe(job.config)
    name = run_id(recipe, prepared_of(recipe))
    folder = Path(job.output) / name
    found = finished(folder)
    if found is not None:
        return found
    with claim(Path(job.output), name) as mine:
        if not mine:
            return Outcome("busy", name)
        return finished(folder) or _train(job, recipe, folder)


def finished(folder: Path) -> Outcome | None:
    """The outcome that a run's folder tells of, or None."""
    record = read_record(folder)
    if record is not None:
        return Outcome("complete", folder.name, record)
    marker = folder / PRUNED
    return Outcome("pruned", folder.name, json.loads(marker.read_text())) if marker.exists() else None


def _train(job: Job, recipe: Recipe, folder: Path) -> Outcome:
    from lidstone.experiment.run import train

    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"threads": job.threads})})
    watch = None if job.trial is None else _watch(job.trial, recipe.evaluation.metric)
    try:
        run = train(recipe, job.output, resume=True, watch=watch)
    except Pruned as stop:
        record = {"status": "pruned", "metrics": {"valid": {recipe.evaluation.metric: float(stop.hint)}}}
        write_text(folder / PRUNED, json.dumps(record))
        return Outcome("pruned", folder.name, record, computed=True)
    except LidstoneError as error:
        return Outcome("failed", folder.name, message=str(error))
    return Outcome("complete", folder.name, run.record, computed=run.computed)


def _watch(trial: tuple[str, str, int], metric: str) -> Callable[[dict[str, float]], None]:
    """Report every evaluation to the search; it may end the training."""
    from lidstone.experiment.search import open_trial

    running, evaluations = open_trial(*trial), itertools.count(1)

    def watch(scores: dict[str, float]) -> None:
        running.report(scores[metric], next(evaluations))
        if running.should_prune():
            raise Pruned("given up: other settings were better at this point", hint=str(scores[metric]))

    return watch


_PREPARED: dict[str, Prepared] = {}


def prepared_of(recipe: Recipe) -> Prepared:
    """The prepared corpus, read once per process for all cells that share it."""
    values = recipe.to_dict()
    key = json.dumps([values[section] for section in ("task", "corpus", "tokenizer", "model")], sort_keys=True)
    if key not in _PREPARED:
        _PREPARED[key] = prepare_corpus(recipe)
    return _PREPARED[key]


@contextlib.contextmanager
def claim(output: Path, name: str) -> Iterator[bool]:
    """Hold the lock of a cell while computing it; False if another process holds it."""
    folder = output / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
