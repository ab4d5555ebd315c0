"""Reading runs: a tree of `run.json` files becomes a tuple of `Run` values.

A run is plain JSON. It is checked here, and never changed or deleted.
This module also checks that the runs of one table agree in task, test set, vocabulary and metric.
"""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lidstone.errors import FileFormatError, InputError, LidstoneError
from lidstone.files import CHECKSUM, is_portable_name, parse_json, read_object
from lidstone.lab.report.packed import EXPLORER, RATIO, RECORD, SMALL, is_file, pack, read_bytes, records_in

SCHEMA = 1
ABOUT_THE_RECIPE = {"name", "sweep", "methods"}
"""First-level keys of a recipe that do not affect this training: other methods, the sweep, names."""
NOT_THE_SETTING = {"seed", "seeds", "output", "folder", "runs", "device", "threads", "workers", "jobs", "engine"}
NOT_THE_SETTING |= {"report_to"}
"""Keys at any level that do not make another setting of the method."""
REQUIRED = {
    "method": dict, "signature": dict, "metrics": dict, "id": (str, int), "task": str, "name": str, "seed": int,
}  # fmt: skip
"""Keys that every record has."""
OPTIONAL = {
    "sentences": dict, "config": dict, "cost": dict, "curve": list, "names": list, "ngram": dict, "mixture": dict,
    "calibration": dict,
}  # fmt: skip
"""Optional keys of a record."""
NOISE = 1.0
"""A BLEU below this says nothing: the network has not learned to translate."""
SHORTCOMINGS = {
    "ended in the warm-up": "train longer (training.epochs, training.max_steps), or shorten training.warmup_steps",
    f"BLEU below {NOISE:g}": "it has not learned to translate; train longer, or on more text",
    "still improving at the last evaluation": "train longer: raise training.epochs or training.max_steps",
}
"""Reasons why the score of a run says little about its method, and what to do."""
STRENGTHS = ("gamma", "gamma_plus", "gamma_minus")
"""Optional numbers of a method."""


@dataclass(frozen=True)
class Run:
    """One training run with everything that a report needs."""

    id: str
    task: str
    """`lm` or `mt`."""
    name: str
    method: Mapping[str, Any]
    seed: int
    config: Mapping[str, Any]
    signature: Mapping[str, Any]
    metrics: Mapping[str, Mapping[str, Any]]
    curve: Sequence[Mapping[str, Any]] = ()
    cost: Mapping[str, Any] | None = None
    sentences_file: Path | None = None
    status: str = "complete"
    path: Path | None = None
    names: tuple[str, ...] = ()
    """all methods of the sweep that share this training, if there are several"""
    ngram: Mapping[str, Any] = field(default_factory=dict)
    """language models: the n-gram model of the training text, its order and scores"""
    mixture: Mapping[str, Any] = field(default_factory=dict)
    """its mixture with the network, the weight and scores"""
    calibration: Mapping[str, Any] = field(default_factory=dict)
    """the temperature chosen on validation, and what it changes on the test set"""

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], path: Path | None = None) -> Run:
        """Make a `Run` from the record of a `run.json`, after checking it."""
        where = str(path or "the run")
        _check_schema(record, where)
        found = {key: _need(record, key, kind, where) for key, kind in REQUIRED.items()}
        found |= {key: _maybe(record, key, kind, where) for key, kind in OPTIONAL.items()}
        method, signature, metrics = found["method"], found["signature"], found["metrics"]
        for inside, key in ((method, "parameters"), (signature, "corpus"), (metrics, "valid"), (metrics, "test")):
            _maybe(inside, key, dict, where)
        for key in STRENGTHS:
            _maybe(method, key, (int, float), where)
        if found["task"] not in ("lm", "mt"):
            raise FileFormatError(f"{where} has the unknown task {found['task']!r}", hint="known are lm, mt")
        sentences = found.pop("sentences").get("file")
        if isinstance(sentences, str) and not is_portable_name(sentences):
            raise FileFormatError(f"{where} names {sentences!r} as its sentences", hint="only files beside it are read")
        found |= {
            "id": str(found["id"]),
            "curve": tuple(point for point in found["curve"] if isinstance(point, dict)),
            "cost": {key: value for key, value in found["cost"].items() if isinstance(value, (int, float))},
            "names": tuple(map(str, found["names"])),
            "sentences_file": path.parent / sentences if path and isinstance(sentences, str) else None,
        }
        return cls(**found, status=str(record.get("status", "complete")), path=path)

    def value(self, split: str, metric: str, model: str = "network") -> float:
        """A metric of a split, of the network, the `ngram` model or the `mixture`; NaN if the run does not have it."""
        scores = {"network": self.metrics, "ngram": self.ngram, "mixture": self.mixture}[model].get(split)
        value = scores.get(metric) if isinstance(scores, Mapping) else None
        return float(value) if isinstance(value, (int, float)) else float("nan")

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """The reasons in `SHORTCOMINGS` that hold for this run."""
        training = self.config.get("training")
        warmup = training.get("warmup_steps", 0) if isinstance(training, Mapping) else 0
        steps = [step for point in self.curve if isinstance(step := point.get("step"), int)]
        ended = bool(steps) and steps[-1] <= warmup
        improving = len(steps) > 1 and steps[-1] == self.value("valid", "step")
        held = (ended, self.value("test", "bleu") < NOISE, improving)
        return tuple(reason for reason, holds in zip(SHORTCOMINGS, held, strict=True) if holds)

    def sentences(self) -> dict[str, Any]:
        """The stored values of each test sentence: `nll`, or `bleu_statistics` for translation."""
        if self.sentences_file is None:
            raise InputError(f"{self.path or self.id} has no scores of single sentences", hint="train this run again")
        try:
            return dict(parse_json(self.sentences_text()))
        except (OSError, EOFError, ValueError, TypeError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileFormatError(f"{self.sentences_file} cannot be read: {reason}") from error

    def sentences_text(self) -> bytes:
        """The stored values of each test sentence as JSON."""
        assert self.sentences_file
        if not is_file(self.sentences_file):  # a pipe or a device could be read for ever
            raise FileNotFoundError(errno.ENOENT, "No such file, or not a regular one")
        raw = read_bytes(self.sentences_file)
        return _unpacked(raw) if raw[:2] == b"\x1f\x8b" else raw


def _unpacked(raw: bytes) -> bytes:
    """The content of a gzip file; no more than can be honest is ever in memory."""
    reader = zlib.decompressobj(zlib.MAX_WBITS | 16)
    found = reader.decompress(raw, max(SMALL, RATIO * len(raw)))
    if not reader.eof or reader.unused_data:
        raise ValueError("it is cut off, or much larger than it should be")
    return found


@dataclass(frozen=True)
class LoadedRuns:
    """The runs of a tree, with notes on those that were left out."""

    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()
    explorer: Mapping[str, Any] | None = None


def load_runs(paths: str | Path | Iterable[str | Path], *, skip_damaged: bool = False) -> LoadedRuns:
    """Read every `run.json` at or below `paths`; unfinished runs and second copies are left out with a note."""
    roots = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    runs, notes = [], []
    for file in _run_files(roots):
        try:
            run = read_run(file)
            runs += [run, *(replace(run, name=name) for name in run.names if name != run.name)]
        except LidstoneError as error:
            if not skip_damaged:
                raise
            notes.append(f"Left out, damaged: {error.message}")
    kept, left_out = without_copies(runs)
    if not kept:
        raise InputError("none of the runs is complete", hint="wait until a run is complete; notes: " + str(notes))
    return LoadedRuns(kept, (*notes, *left_out, *_unfinished(roots)), _explorer(roots))


def read_run(file: Path) -> Run:
    """Read one `run.json`."""
    return Run.from_dict(read_object(file, "run", "run it again, or skip it (--skip-damaged)", read_bytes), file)


def pack_runs(sources: Iterable[str | Path], study: str | Path) -> tuple[int, int]:
    """Add the finished runs of folders and packed studies to a packed study, or begin one; how many it has, and how
    many of them are new. A run that it has already is replaced.
    """
    roots, study = [Path(source) for source in sources], Path(study)
    files: dict[str, bytes] = {}
    before = len(records_in(study))
    for file in _run_files(roots):
        run = read_run(file)
        if run.status != "complete":
            continue
        files[f"{run.id}/{RECORD}"] = read_bytes(file)
        if run.sentences_file and is_file(run.sentences_file):
            run.sentences()  # an error if they are damaged
            files[f"{run.id}/{run.sentences_file.name}"] = run.sentences_text()
    for root in roots:
        if is_file(root / EXPLORER):
            files[EXPLORER] = read_bytes(root / EXPLORER)
    pack(files, study)
    after = len(records_in(study))
    return after, after - before


def differences(runs: Sequence[Run]) -> dict[str, dict[str, list[Run]]]:
    """What makes runs incomparable: each property that differs, with the runs of each value."""
    found: dict[str, dict[str, list[Run]]] = {}
    for quality in ("task", "test set", "test sentences", "vocabulary", "metric"):
        values: dict[str, list[Run]] = {}
        for run in runs:
            values.setdefault(identity(run)[quality], []).append(run)
        if len(values) > 1:
            found[quality] = values
    return found


def identity(run: Run) -> dict[str, str]:
    """The properties in which comparable runs agree."""
    corpus = run.signature.get("corpus") or {}
    return {
        "task": run.task,
        "test set": str(corpus.get("test") or corpus.get("name", "?"))[:12],
        "test sentences": str(run.signature.get("test_sentences", "?")),
        "vocabulary": f"{str(run.signature.get('vocabulary', '?'))[:12]} ({run.signature.get('vocabulary_size', '?')})",
        "metric": str(run.signature.get("metric", "?")),
    }


def check_comparable(runs: Sequence[Run]) -> None:
    """Raise an error that names the differences, if runs cannot be in one table."""
    found = differences(runs)
    if found:
        what = "; ".join(f"{quality} differs: {_examples(values)}" for quality, values in found.items())
        raise InputError(
            f"these {len(runs)} runs cannot be in one table. {what}",
            hint="pass the runs of one test set and vocabulary, or make one table of each (--split)",
        )


def split_comparable(runs: Sequence[Run]) -> list[tuple[Run, ...]]:
    """The runs in groups of comparable ones."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(identity(run)), []).append(run)
    return [tuple(group) for group in groups.values()]


def setting_of(run: Run) -> str:
    """A key of everything but the seed: runs with the same key are seeds of one setting."""
    corpus = run.signature.get("corpus") or {}
    recipe = _without({key: value for key, value in run.config.items() if key not in ABOUT_THE_RECIPE})
    if isinstance(regularizer := recipe.get("regularizer"), dict):
        regularizer.pop("name", None)  # the run's own name replaces it
    if isinstance(corpus.get("train"), str) and isinstance(text := recipe.get("corpus"), dict):
        for split in ("train", "valid", "test"):
            text.pop(split, None)  # paths, which may be written in several ways: the checksums replace them
    sums = [corpus.get("train"), corpus.get("valid")]
    return json.dumps([run.name, run.method, recipe, sums, run.signature.get("model_parameters")],
                      sort_keys=True, default=str)  # fmt: skip


def _without(config: Any) -> Any:
    if not isinstance(config, Mapping):
        return config
    return {key: _without(value) for key, value in config.items() if key not in NOT_THE_SETTING}


def _run_files(roots: Sequence[Path]) -> list[Path]:
    files: dict[Path, Path] = {}
    for root in roots:
        inside = records_in(root) or ([root] if root.is_file() else sorted(root.rglob(RECORD)))
        if not inside and not root.exists():
            raise InputError(f"there is no {root}", hint="pass a folder of runs, a packed study or a run.json")
        for file in inside:
            files.setdefault(file.resolve(), file)
    if not files:
        raise InputError(
            f"there is no run.json below {', '.join(map(str, roots))}",
            hint="train something first, or name packed studies",
        )
    return list(files.values())


def _unfinished(roots: Sequence[Path]) -> Iterable[str]:
    """Notes on trainings that are unfinished, or that a search stopped early."""
    for root in roots:
        for mark, what in (("checkpoints", "unfinished"), ("pruned.json", "stopped early by the search")):
            for found in sorted(root.rglob(mark)) if root.is_dir() else ():
                if not (found.parent / "run.json").exists():
                    yield f"Left out, {what}: {found.parent}"


def without_copies(runs: Sequence[Run]) -> tuple[tuple[Run, ...], list[str]]:
    """The finished runs, each setting and seed once, and notes on the others: a copy is no independent seed."""
    kept: dict[tuple[str, int], Run] = {}
    notes = [f"Left out, {run.status}: {run.path or run.id}" for run in runs if run.status != "complete"]
    for run in runs:
        if run.status != "complete":
            continue
        first = kept.setdefault((json.dumps(identity(run)) + setting_of(run), run.seed), run)
        if first is not run:
            notes.append(f"Left out, same setting and seed as {first.path or first.id}: {run.path or run.id}")
    return tuple(kept.values()), notes


def _explorer(roots: Sequence[Path]) -> Mapping[str, Any] | None:
    for root in roots:
        file = root / EXPLORER
        if is_file(file):
            data = read_object(file, "data", "make it again or move it away", read_bytes)
            return {key: value for key, value in data.items() if key != CHECKSUM}
    return None


def _check_schema(record: Mapping[str, Any], where: str) -> None:
    schema = _need(record, "schema", int, where)
    if schema > SCHEMA:
        raise FileFormatError(
            f"{where} has schema {schema}, this lidstone reads up to {SCHEMA}", hint="upgrade lidstone"
        )


def _need(record: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:
    if not isinstance(record.get(key), kind) or isinstance(record[key], bool):
        problem = f"{key!r} is {'missing' if key not in record else 'not what it should be'}"
        raise FileFormatError(f"{where} is damaged: {problem}", hint="run it again, or skip it (--skip-damaged)")
    return record[key]


def _maybe(record: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:
    """What need not be there, but if it is, must be of its kind; one of several kinds has no empty value."""
    if record.get(key) is None:
        return None if isinstance(kind, tuple) else kind()
    return _need(record, key, kind, where)


def _examples(values: Mapping[str, Sequence[Run]]) -> str:
    shown = [
        f"{value} ({len(runs)} runs of {(runs[0].signature.get('corpus') or {}).get('name', '?')}, "
        f"e.g. {runs[0].path or runs[0].id})"
        for value, runs in values.items()
    ]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
