"""The jobs of a sweep, and how one is computed, in any process: once, and resumable.

A cell is named by the id of its run, a hash of recipe, data and seed. The process that computes it holds a lock on that
name; the operating system releases the lock when the process ends. A complete `run.json` is the result; an interrupted
training continues from its last checkpoint.
"""

from __future__ import annotations

import json
import logging
import math
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lidstone.errors import LidstoneError, RunError, describe_os_error
from lidstone.files import read_json, write_json
from lidstone.lab.corpus.prepared import Prepared
from lidstone.lab.recipe.recipe import Recipe
from lidstone.lab.run.record import CHECKPOINTS, RunBusy, find_or_compute, read_record, run_id
from lidstone.lab.run.setup import cached_corpus
from lidstone.lab.sweep.grid import Cell

PRUNED = "pruned.json"
"""In a run's folder: a search stopped this training early, at the score in the file."""
log = logging.getLogger("lidstone.lab.sweep")


@dataclass(frozen=True)
class TrialName:
    """The trial of a search that a cell belongs to; any process can open it."""

    journal: str
    study: str
    number: int


@dataclass(frozen=True)
class Job:
    """A cell with everything that another process needs to compute it."""

    name: str
    """the id of its run"""
    recipe: Recipe
    """checked, with the CPU threads of this sweep"""
    output: str
    """the folder of runs"""
    corpus: str | None = None
    """the key of its prepared corpus"""
    label: str = ""
    """the name of the cell in logs"""
    trial: TrialName | None = None
    """for a search that may stop it early"""
    processes: int = 1
    """how many processes train it, by torchrun; a search does not stop such a training early"""
    timing: bool = False
    """do not train: time a few updates, and estimate the time of the training"""

    @property
    def folder(self) -> Path:
        """Where its run is recorded."""
        return Path(self.output) / self.name


@dataclass(frozen=True)
class Outcome:
    """The result of a job."""

    state: Literal["complete", "pruned", "busy", "failed"]
    """pruned: a search stopped it early; busy: another process computes it"""
    record: dict[str, Any] | None = None
    computed: bool = False
    """False if it was complete before"""
    message: str = ""

    def score(self, metric: str) -> float | None:
        """The score on validation; None if there is none, or if it is not finite."""
        return self.record["metrics"]["valid"].get(metric) if self.record else None

    @property
    def seconds(self) -> float | None:
        """How long the training took; None if it is not complete."""
        return float(self.record["cost"]["total_seconds"]) if self.record and self.state == "complete" else None


class Jobs:
    """The jobs of one sweep."""

    def __init__(self, recipe: Recipe, output: Path, *, processes: int = 1, threads: int | None = None) -> None:
        training = recipe.training.model_copy(update={"threads": threads or recipe.training.threads})
        self.base = recipe.model_copy(update={"training": training})
        self.output, self.processes = output, processes
        self._recipes: dict[str, Recipe] = {}
        self._jobs: dict[str, Job] = {}
        self._keys: dict[str, str] = {}

    def of(self, cell: Cell, trial: TrialName | None = None) -> Job:
        """The job of a cell, for an engine."""
        if cell.key not in self._jobs:
            self._jobs[cell.key] = self._make(cell)
        return replace(self._jobs[cell.key], trial=trial)

    def recipe(self, cell: Cell) -> Recipe:
        """The recipe of a cell; an invalid one is a `RecipeError`."""
        if cell.key not in self._recipes:
            self._recipes[cell.key] = cell.recipe(self.base)
        return self._recipes[cell.key]

    def corpus(self, recipe: Recipe) -> Prepared:
        """The prepared corpus of a recipe, which most cells share."""
        values = recipe.model_dump(mode="json", include={"task", "corpus", "tokenizer"})
        values["checkpoint"] = recipe.model.checkpoint
        section = json.dumps(values, sort_keys=True)
        prepared = cached_corpus(recipe, self._keys.get(section))
        self._keys[section] = prepared.key
        return prepared

    def _make(self, cell: Cell) -> Job:
        recipe = self.recipe(cell)
        prepared = self.corpus(recipe)
        return Job(
            run_id(recipe, prepared),
            recipe,
            str(self.output),
            corpus=prepared.key,
            label=str(cell),
            processes=self.processes,
        )


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
    return _outcome(job, lambda job: find_or_compute(job.folder, lambda: finished(job), lambda: work(job)))


class InProcess:
    """One cell after the other in this process, for scripts and notebooks."""

    width = 1

    def __init__(self, compute: Callable[[Job], Outcome] = compute) -> None:
        self.compute = compute
        self.jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        """Accept a job; `next` computes it."""
        self.jobs.append(job)

    def next(self, timeout: float | None = None) -> tuple[Job, Outcome] | None:
        """Compute the first job; `timeout` has no effect."""
        job = self.jobs.pop(0)
        return job, self.compute(job)

    def close(self) -> None:
        """Nothing to stop."""


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
        record = {"status": "pruned", "metrics": {"valid": {job.recipe.evaluation.metric: stop.score}}}
        shutil.rmtree(
            job.folder / CHECKPOINTS, ignore_errors=True
        )  # before: who finds the marker leaves the folder alone
        write_json(job.folder / PRUNED, record)
        outcome = Outcome("pruned", record, computed=True)
    metric = job.recipe.evaluation.metric
    log.info("%s %s: %s, valid %s %.5g", job.name, job.label, outcome.state, metric, outcome.score(metric) or math.nan)
    return outcome


def _train(job: Job) -> Outcome:
    from lidstone.lab.run.run import train_run

    prepared = cached_corpus(job.recipe, job.corpus)
    run = train_run(job.recipe, prepared, job.folder, resume=True, watch=_watch(job))
    return Outcome("complete", run.record, computed=True)


def _train_together(job: Job) -> Outcome:
    """Train in `job.processes` processes: torchrun, started by the worker that holds the cell's lock.

    Each process that torchrun starts runs this module, with the folder of the pickled job as its argument.
    """
    with tempfile.TemporaryDirectory() as folder:
        message = Path(folder) / "message"
        (Path(folder) / "job").write_bytes(pickle.dumps(replace(job, trial=None)))
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.processes}"]
        done = subprocess.run([*torchrun, "-m", __name__, folder], check=False, **_end_with_worker())
        if done.returncode:
            reason = message.read_text(encoding="utf-8") if message.exists() else ""
            raise RunError(reason or f"torchrun ended with {done.returncode}", hint="see sweep.log")
    return Outcome("complete", read_record(job.folder), computed=True)


def _end_with_worker() -> dict[str, Any]:
    """On Linux: torchrun stops its processes when the worker that started it is killed."""
    if sys.platform != "linux":
        return {}
    import ctypes

    set_parent_death_signal = 1
    prctl = ctypes.CDLL(None).prctl
    return {"preexec_fn": lambda: prctl(set_parent_death_signal, signal.SIGTERM)}


def _train_in_torchrun(folder: Path) -> None:
    """Train the job in a folder, as one of its processes; an error is written beside it."""
    from lidstone.lab.run.setup import first_process_first

    job = pickle.loads((folder / "job").read_bytes())
    try:
        with first_process_first():
            cached_corpus(job.recipe, job.corpus)
        _train(job)
    except LidstoneError as error:
        (folder / "message").write_text(str(error), encoding="utf-8")
        raise


def _time_updates(job: Job) -> Outcome:
    from lidstone.lab.run.run import estimate_seconds

    seconds = estimate_seconds(job.recipe, cached_corpus(job.recipe, job.corpus))
    return Outcome("complete", {"cost": {"total_seconds": seconds}})


def _outcome(job: Job, work: Callable[[Job], Outcome]) -> Outcome:
    try:
        return work(job)
    except RunBusy:
        return Outcome("busy")
    except LidstoneError as error:
        log.info("%s %s: failed: %s", job.name, job.label, error)
        return Outcome("failed", message=str(error))
    except OSError as error:
        log.info("%s %s: failed", job.name, job.label, exc_info=True)
        return Outcome("failed", message=f"{describe_os_error(error)}. hint: check the disk and its permissions")
    except Exception as error:
        traceback.print_exc()
        return Outcome("failed", message=f"{type(error).__name__}: {error}")


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
    from lidstone.lab.run.checkpoints import last_checkpoint, learning_curve
    from lidstone.lab.sweep.search import RunningTrial

    trial, found = RunningTrial(job.trial), last_checkpoint(job.folder / CHECKPOINTS)
    for point in learning_curve(found.state["log_history"]) if found else []:
        if "valid_loss" in point:
            trial.report(point[f"valid_{job.recipe.evaluation.metric}"])
    return trial


if __name__ == "__main__":
    _train_in_torchrun(Path(sys.argv[1]))
