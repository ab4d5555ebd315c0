"""Computing one cell of a sweep, in whichever process, so that nothing is computed twice and nothing is lost.

A cell is named by the hash of its recipe and data. Whoever computes it holds a lock on that name, which the system
takes back from a process that dies; a complete `run.json` ends the matter; a training cut short is taken up again.
"""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lidstone.errors import LidstoneError
from lidstone.experiment.record import read_record
from lidstone.files import write_text
from lidstone.locks import claim
from lidstone.recipe.recipe import Recipe, make_recipe

PRUNED = "pruned.json"
"""Says in a run's folder that a search gave it up, and at which score."""


@dataclass(frozen=True)
class TrialName:
    """Which trial of a search a cell is; any process can open it."""

    journal: str
    study: str
    number: int


@dataclass(frozen=True)
class Job:
    """A cell as plain values, to be sent to another process."""

    name: str
    """the id of its run"""
    config: dict[str, Any]
    output: str
    threads: int | None = None
    """CPU threads; None: as the recipe says"""
    trial: TrialName | None = None
    """for a search with pruning"""
    processes: int = 1
    """how many train it together, by torchrun; then nothing is pruned"""

    @property
    def folder(self) -> Path:
        """Where its run is recorded."""
        return Path(self.output) / self.name


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    state: Literal["complete", "pruned", "busy", "failed"]
    """busy: another process has it"""
    record: dict[str, Any] | None = None
    computed: bool = False
    """False if it was there before"""
    message: str = ""

    def score(self, metric: str) -> float | None:
        """On validation; None if it has none, or one that is not finite."""
        return self.record["metrics"]["valid"].get(metric) if self.record else None


class Pruned(LidstoneError):
    """A training given up because others were better at this point."""

    def __init__(self, score: float) -> None:
        super().__init__(f"given up at {score:g}: other settings were better at this point")
        self.score = score


def compute(job: Job) -> Outcome:
    """Train a cell, or find that it is done or in other hands."""
    return settle(job, train_cell)


def settle(job: Job, work: Callable[[Job], Outcome]) -> Outcome:
    """Do the work of a job if nobody has done it and nobody is at it; what it raises becomes an outcome."""
    with claim(Path(job.output), job.name) as mine:
        if not mine:
            return Outcome("busy")
        try:
            return finished(job) or work(job)
        except LidstoneError as error:
            return Outcome("failed", message=str(error))
        except Exception as error:
            traceback.print_exc()
            return Outcome("failed", message=f"{type(error).__name__}: {error}")


def finished(job: Job) -> Outcome | None:
    """The outcome that a run's folder tells of, or None. Only a search takes pruned for an answer."""
    record = read_record(job.folder)
    if record is not None:
        return Outcome("complete", record)
    marker = job.folder / PRUNED
    if job.trial is None or not marker.exists():
        return None
    return Outcome("pruned", json.loads(marker.read_text(encoding="utf-8")))


def train_cell(job: Job) -> Outcome:
    """Train a cell, from where an earlier process left it."""
    from lidstone.experiment.run import train

    recipe = _pinned(make_recipe(job.config), job.threads)
    if job.processes > 1:
        return _train_together(job, recipe)
    watch = None if job.trial is None else _watch(job.trial, job.folder, recipe.evaluation.metric)
    try:
        run = train(recipe, job.output, resume=True, watch=watch, claimed=True)
    except Pruned as stop:
        return _give_up(job, recipe.evaluation.metric, stop.score)
    return Outcome("complete", run.record, computed=run.computed)


def _train_together(job: Job, recipe: Recipe) -> Outcome:
    from lidstone.sweep.torchrun import train_with_torchrun

    train_with_torchrun(recipe.to_dict(), job.output, job.processes)
    return Outcome("complete", read_record(job.folder), computed=True)


def _pinned(recipe: Recipe, threads: int | None) -> Recipe:
    if threads is None:
        return recipe
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"threads": threads})})


def _give_up(job: Job, metric: str, score: float) -> Outcome:
    record = {"status": "pruned", "metrics": {"valid": {metric: score}}}
    write_text(job.folder / PRUNED, json.dumps(record))
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
    return Outcome("pruned", record, computed=True)


def _watch(trial: TrialName, folder: Path, metric: str) -> Callable[[dict[str, float]], None]:
    """Report every evaluation to the search, those of earlier sittings too; it may end the training."""
    from lidstone.sweep.search import RunningTrial

    running = RunningTrial(trial)
    for scores in _evaluations(folder):
        running.report(scores[f"valid_{metric}"])

    def watch(scores: dict[str, float]) -> None:
        if running.report(scores[metric]):
            raise Pruned(scores[metric])

    return watch


def _evaluations(folder: Path) -> list[dict[str, Any]]:
    from lidstone.training.checkpoints import last_checkpoint
    from lidstone.training.fit import learning_curve

    found = last_checkpoint(folder / "checkpoints")
    curve = learning_curve(found.state["log_history"]) if found else []
    return [point for point in curve if "valid_loss" in point]
