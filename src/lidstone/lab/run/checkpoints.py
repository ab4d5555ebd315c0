"""Checkpoints on disk: which of them are complete, and the state of the training in them, with its learning curve.

The Trainer writes `trainer_state.json` last, then follow the checksums. A checkpoint is complete if this file can be
read and the weights and states are there; one that was being written or deleted when the process was killed is not.
One whose files do not fit their checksums is not used either.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any

from lidstone.errors import LidstoneError, RunError
from lidstone.files import file_checksums, parse_json, read_json, verify_files, write_json

_NEEDED = ("model.safetensors", "optimizer.pt", "scheduler.pt")
_STATE, _CHECKSUMS = "trainer_state.json", "checksums.json"
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, LidstoneError)
log = logging.getLogger("lidstone")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint and the Trainer's state in it."""

    path: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """The number of updates made."""
        return int(self.state["global_step"])

    @property
    def finished(self) -> bool:
        """Whether the training ended here: after all steps, or stopped early."""
        control = self.state.get("stateful_callbacks", {}).get("TrainerControl", {}).get("args", {})
        return self.step >= int(self.state["max_steps"]) or bool(control.get("should_training_stop"))

    @property
    def best(self) -> Path:
        """The checkpoint with the best validation score so far, in the same folder."""
        step = self.state.get("best_global_step") or self.step
        found = self.path.with_name(f"checkpoint-{step}")
        return found if (found / _NEEDED[0]).is_file() else self.path


def last_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest sound checkpoint in a folder; newer ones, which are incomplete or damaged, are removed."""
    for path in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        found = _read(path)
        if found is not None:
            return found
        shutil.rmtree(path, ignore_errors=True)
    return None


def remove_older(folder: Path, best: str | None) -> None:
    """Keep the newest checkpoint by its step and the best one; where these are the same, the one before.

    The Trainer itself goes by times of files, and deletes the newest one after the clock was set back.
    """
    others = sorted(folder.glob("checkpoint-*"), key=_step, reverse=True)[1:]
    kept = [path for path in others if best and path.name == Path(best).name] or others[:1]
    for path in others:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def write_errors(folder: Path, what: str = "a checkpoint") -> Iterator[None]:
    """Convert the errors of torch and safetensors for a full disk to one line."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_from_saving(error):
            raise
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise RunError(
            f"cannot write {what} to {folder}: {reason}",
            hint="free some space, then continue from the last complete checkpoint with --resume",
        ) from error


@contextmanager
def read_errors(folder: str | None) -> Iterator[None]:
    """Convert whatever torch and transformers raise at weights and states of another training, or of a stranger."""
    try:
        yield
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        hint = "delete this folder, then continue from the checkpoint before with --resume"
        raise RunError(f"cannot go on from {folder}: {reason}", hint=hint) from error


def _is_from_saving(error: RuntimeError) -> bool:
    """Whether `torch.save` raised it: its messages for a full disk vary and do not name the reason."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == "torch.serialization" for frame in frames)


def write_checksums(folder: Path) -> None:
    """Write the checksums of the files of a checkpoint that is complete, so that damage is noticed."""
    names = (*_NEEDED, _STATE, "rng_state.pth")  # with several processes, each writes its own state of the generators
    sums = file_checksums(folder, [name for name in names if (folder / name).is_file()])
    write_json(folder / _CHECKSUMS, {"files": sums})


def _read(path: Path) -> Checkpoint | None:
    try:
        state = parse_json((path / _STATE).read_bytes())
        found = Checkpoint(path, state)
        _verify(path)
        _ = found.best, found.finished, sum(sum(point.values()) for point in learning_curve(state["log_history"]))
    except _DAMAGED:
        return None
    try:
        _verify(found.best, only=_NEEDED[0])
    except _DAMAGED as error:
        log.warning("%s is damaged (%s): the newest checkpoint is taken for the best", found.best, error)
        shutil.rmtree(found.best, ignore_errors=True)
    complete = all((path / name).is_file() for name in _NEEDED) and any(path.glob("rng_state*.pth"))
    return found if complete else None


def _verify(folder: Path, only: str = "") -> None:
    """Raise an error if a file of a checkpoint has changed; one that was killed before its checksums has none."""
    if (folder / _CHECKSUMS).is_file():
        files = read_json(folder / _CHECKSUMS)["files"]
        verify_files(folder, {name: value for name, value in files.items() if only in (name, "")})


def _step(path: Path) -> int:
    number = path.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


@dataclass(frozen=True)
class Fitted:
    """The results of a training; the model itself has the best weights."""

    curve: list[dict[str, Any]]
    seconds: float
    """wall time of training, interrupted parts included"""
    seconds_before: float
    """the part of it that an earlier process spent"""
    steps: int
    best: dict[str, Any]
    """the point of the curve with the best validation score"""
    tokens_per_second: float | None = None
    """of the updates alone; None if this process made none"""
    update_seconds: float | None = None
    """the median; None if this process made none"""


def summarize_training(state: dict[str, Any], metric: str, before: float, elapsed: float = 0.0) -> Fitted:
    """The results in the Trainer's state: `before` are seconds of earlier processes, `elapsed` those of this one."""
    curve = learning_curve(state["log_history"])
    key = f"valid_{metric}"
    scored = [point for point in curve if key in point]
    sign = 1 if metric == "perplexity" else -1
    best = min(scored, key=lambda point: sign * point[key], default={})
    return Fitted(curve, before + elapsed, before, int(state["global_step"]), best)


def learning_curve(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The Trainer's log as one point per evaluation.

    >>> learning_curve([{"step": 5, "loss": 2.0}, {"step": 5, "epoch": 1.0, "eval_loss": 3.0, "eval_seconds": 1.5}])
    [{'step': 5, 'train_loss': 2.0, 'epoch': 1.0, 'valid_loss': 3.0, 'seconds': 1.5}]
    """
    points: dict[int, dict[str, Any]] = {}
    names = {"loss": "train_loss", "nll": "train_nll", "epoch": "epoch", "eval_seconds": "seconds"}
    for line in history:
        if "loss" not in line and not any(key.startswith("eval_") for key in line):
            continue
        point = points.setdefault(int(line["step"]), {"step": int(line["step"])})
        for key, value in line.items():
            name = names.get(key) or (f"valid_{key.removeprefix('eval_')}" if key.startswith("eval_") else None)
            if name:
                point[name] = value
    return list(points.values())


def trained_seconds(history: list[dict[str, Any]]) -> float:
    """The wall time of a training until its last evaluation, from the Trainer's log."""
    return max((line["eval_seconds"] for line in history if "eval_seconds" in line), default=0.0)
