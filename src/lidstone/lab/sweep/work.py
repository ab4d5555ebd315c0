"""Compute one cell of a sweep, in any process: once, and resumable.

A cell is named by the id of its run, a hash of recipe, data and seed. The process that computes it holds a lock on that
name; the operating system releases the lock when the process ends. A complete `run.json` is the result; an interrupted
training continues from its last checkpoint.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lidstone.checksums import with_checksum
from lidstone.errors import LidstoneError
from lidstone.files import read_json, write_text
from lidstone.lab.run.corpora import cached_corpus
from lidstone.lab.run.record import read_record
from lidstone.lab.sweep.jobs import Job, Outcome
from lidstone.locks import claim

PRUNED = "pruned.json"
"""In a run's folder: a search stopped this training early, at the score in the file."""
log = logging.getLogger("lidstone.lab.sweep")


class Pruned(LidstoneError):
    """A training that a search stopped early because others had better scores at this point."""

    def __init__(self, score: float) -> None:
        super().__init__(f"stopped early at {score:g}: other settings had better scores at this point")
        self.score = score


def compute(job: Job) -> Outcome:
    """Train a cell, unless it is complete or another process is training it."""
    if job.timing:
        return _outcome(job, _time_updates)
    return compute_once(job, train_cell)


def compute_once(job: Job, work: Callable[[Job], Outcome]) -> Outcome:
    """Do the work of a job unless it is complete or another process does it; an error becomes an outcome."""
    with claim(Path(job.output), job.name) as mine:
        if not mine:
            return Outcome("busy")
        return _outcome(job, lambda job: finished(job) or work(job))


def finished(job: Job) -> Outcome | None:
    """The outcome in a run's folder, or None. A training that was stopped early counts only in a search."""
    record = read_record(job.folder)
    if record is not None:
        return Outcome("complete", record)
    marker = job.folder / PRUNED
    if job.trial is None or not marker.exists():
        return None
    return Outcome("pruned", read_json(marker, hint="delete the file; the cell is then computed again"))


def train_cell(job: Job) -> Outcome:
    """Train a cell, from its last checkpoint if it has one."""
    log.info("%s %s: training starts", job.name, job.label)
    try:
        outcome = _train_together(job) if job.processes > 1 else _train(job)
    except Pruned as stop:
        outcome = _record_pruned(job, stop.score)
    metric = job.recipe.evaluation.metric
    log.info("%s %s: %s, valid %s %.5g", job.name, job.label, outcome.state, metric, outcome.score(metric) or math.nan)
    return outcome


def _train(job: Job) -> Outcome:
    from lidstone.lab.run.run import train_run

    prepared = cached_corpus(job.recipe, job.corpus)
    run = train_run(job.recipe, prepared, job.folder, resume=True, watch=_watch(job))
    return Outcome("complete", run.record, computed=True)


def _train_together(job: Job) -> Outcome:
    from lidstone.lab.sweep.torchrun import train_with_torchrun

    train_with_torchrun(job)
    return Outcome("complete", read_record(job.folder), computed=True)


def _time_updates(job: Job) -> Outcome:
    from lidstone.lab.run.estimate import estimate_seconds

    seconds = estimate_seconds(job.recipe, cached_corpus(job.recipe, job.corpus))
    return Outcome("complete", {"cost": {"total_seconds": seconds}})


def _outcome(job: Job, work: Callable[[Job], Outcome]) -> Outcome:
    try:
        return work(job)
    except LidstoneError as error:
        log.info("%s %s: failed: %s", job.name, job.label, error)
        return Outcome("failed", message=str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome("failed", message=f"{type(error).__name__}: {error}")


def _record_pruned(job: Job, score: float) -> Outcome:
    record = {"status": "pruned", "metrics": {"valid": {job.recipe.evaluation.metric: score}}}
    write_text(job.folder / PRUNED, json.dumps(with_checksum(record)))
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
    return Outcome("pruned", record, computed=True)


def _watch(job: Job) -> Callable[[dict[str, float]], None]:
    """Log every evaluation, and report it to the search, which may stop the training."""
    metric, trial = job.recipe.evaluation.metric, _running_trial(job)

    def watch(scores: dict[str, float]) -> None:
        log.info("%s %s: valid %s %.4f", job.name, job.label, metric, scores[metric])
        if trial is not None and trial.report(scores[metric]):
            raise Pruned(scores[metric])

    return watch


def _running_trial(job: Job) -> Any:
    """The trial of a job, with the evaluations before an interruption reported; None without a search."""
    if job.trial is None:
        return None
    from lidstone.lab.sweep.search import RunningTrial
    from lidstone.lab.training.checkpoints import last_checkpoint
    from lidstone.lab.training.fit import learning_curve

    trial, found = RunningTrial(job.trial), last_checkpoint(job.folder / "checkpoints")
    for point in learning_curve(found.state["log_history"]) if found else []:
        if "valid_loss" in point:
            trial.report(point[f"valid_{job.recipe.evaluation.metric}"])
    return trial
