"""Damage of the files that commands write: whatever is read again is refused in one line, or its values are right.

Single bits are changed and ends cut off. What has no checksum, and why, is in docs/reliability.md.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fuzz.parsers import counted, fitted
from tests.fuzz.works import training
from tests.tiny import lm_values, recipe, write_texts

import lidstone as ld
from lidstone.errors import LidstoneError
from lidstone.lab.corpus import prepared as storage
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.report.runs import load_runs, read_run
from lidstone.lab.run.checkpoints import last_checkpoint, write_checksums
from lidstone.lab.run.record import read_record, write_explorer
from lidstone.lab.run.run import train
from lidstone.lab.run.saved import load_saved
from lidstone.lab.sweep.search import open_study
from lidstone.ngram.formats.safetensors import save

Read = Callable[[], Any]


def damages(data: bytes, number: int, seed: str) -> Iterator[bytes]:
    """Copies with one bit changed, and with the end cut off."""
    rng = random.Random(seed)
    for _ in range(number):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield bytes(changed)
    yield from (data[: len(data) * part // 4] for part in range(4))


def survives(path: Path, read: Read, number: int = 40) -> int:
    """Damage a file in many ways: how often it was refused. Else the values must be those before."""
    sound, before, refused = path.read_bytes(), read(), 0
    for damaged in damages(sound, number, path.name):
        path.write_bytes(damaged)
        try:
            found = read()
        except LidstoneError as error:
            assert "\n" not in str(error)
            refused += 1
        else:
            assert same(before, found), f"damage of {path.name} went unnoticed: {difference(sound, damaged)}"
    path.write_bytes(sound)
    return refused


def difference(sound: bytes, damaged: bytes) -> bytes:
    """The damaged place, for the message of a failure."""
    at = next((at for at, (a, b) in enumerate(zip(sound, damaged, strict=False)) if a != b), len(damaged))
    return damaged[max(0, at - 20) : at + 10]


def same(before: Any, found: Any) -> bool:
    """Whether all values are right; damage to the name of the checksum itself may leave one more key."""
    if isinstance(before, dict):
        values = {key: value for key, value in before.items() if key != "checksum"}
        return isinstance(found, dict) and all(
            key in found and same(value, found[key]) for key, value in values.items()
        )
    if isinstance(before, np.ndarray):
        return np.array_equal(before, found)
    return bool(before == found)


def contents(thing: ld.Counts | ld.BackoffTable) -> dict[str, Any]:
    rows = thing.counts if isinstance(thing, ld.Counts) else thing.prob([(), (thing.vocab.bos,), (1, 2)])
    return {"rows": rows, "words": thing.trie.words, "vocabulary": thing.vocab}


@pytest.mark.filterwarnings("ignore::lidstone.ngram.smoothers.base.FallbackUsed")
@pytest.mark.parametrize("make", [counted, fitted])
def test_counts_and_tables(tmp_path: Path, make: Callable[[], Any]) -> None:
    path = tmp_path / "x.safetensors"
    save(make(), path)
    assert survives(path, lambda: contents(ld.load(path)), 150) > 140


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A complete run with its cache, and an interrupted one."""
    home = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIDSTONE_CACHE", str(home / "cache"))
        training(home)
        values = recipe(lm_values(write_texts(home), max_steps=4, eval_every=2))
        train(values, home / "runs")
        write_explorer(values, home / "runs", prepare_corpus(values))
        patch.setattr("lidstone.lab.run.run._save_model", _stop)
        with pytest.raises(KeyboardInterrupt):
            train(values.model_copy(update={"training": values.training.model_copy(update={"seed": 2})}), home / "cut")
        yield home


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt


def only(pattern: Iterator[Path]) -> Path:
    (found,) = pattern
    return found


@pytest.mark.slow
def test_the_record_of_a_run(folder: Path) -> None:
    path = only(folder.glob("runs/*/run.json"))
    assert survives(path, lambda: read_record(path.parent), 80) > 40
    assert survives(path, lambda: vars(read_run(path)), 80) > 40


@pytest.mark.slow
def test_the_scores_of_sentences_and_the_explorer(folder: Path) -> None:
    path = only(folder.glob("runs/*/sentences.json.gz"))
    run = read_run(path.with_name("run.json"))
    assert survives(path, run.sentences) > 20
    path = folder / "runs" / "explorer.json"
    assert survives(path, lambda: load_runs(path.parent).explorer) > 20


@pytest.mark.slow
def test_a_saved_model(folder: Path) -> None:
    home = only(folder.glob("runs/*/model"))
    names = sorted(path.name for path in home.iterdir())
    assert {"config.json", "model.safetensors", "lidstone.json", "target.json"} <= set(names)
    for name in names:
        assert survives(home / name, lambda: _model(home), 8) >= 8, name


def _model(home: Path) -> dict[str, Any]:
    saved = load_saved(home)
    weights = {name: value.numpy().copy() for name, value in saved.model.state_dict().items()}
    return weights | {"target": saved.target.to_dict(), "beam": saved.beam, "task": saved.task}


@pytest.mark.slow
def test_a_prepared_corpus(folder: Path) -> None:
    home = only(folder.glob("cache/prepared/*/manifest.json")).parent
    for path in sorted(home.iterdir()):
        refused = survives(path, lambda: _corpus(home), 20)
        assert refused >= 12 or path.suffix in (".txt", ".bpe"), path.name  # these are for the user, never read again


def _corpus(home: Path) -> dict[str, Any]:
    found = storage.load(home)
    streams = {split: getattr(found, split).target.stream for split in storage.SPLITS}
    return streams | {"manifest": found.manifest, "target": found.target.to_dict()}


@pytest.mark.slow
def test_a_damaged_checkpoint_is_not_used(folder: Path, tmp_path: Path) -> None:
    sound = only(folder.glob("cut/*/checkpoints"))
    names = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
    assert last_checkpoint(Path(shutil.copytree(sound, tmp_path / "sound"))).step == 4
    for name in names:
        data = (sound / "checkpoint-4" / name).read_bytes()
        for number, damaged in enumerate(damages(data, 3, name)):
            home = Path(shutil.copytree(sound, tmp_path / f"{name}{number}"))
            (home / "checkpoint-4" / name).write_bytes(damaged)
            found = last_checkpoint(home)
            assert found is None or found.step == 2, name
            assert not (home / "checkpoint-4").exists()


@pytest.mark.slow
def test_a_damaged_journal_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.journal"
    study = open_study(path, "x")
    for number in range(3):
        trial = study.ask()
        trial.suggest_categorical("a", [1, 2, 3])
        study.tell(trial, float(number))
    assert json.loads(path.read_text().splitlines()[0])
    survives(path, lambda: len(open_study(path, "x").trials) >= 0, 60)


def test_the_newest_checkpoint_survives_damage_to_the_best(tmp_path):
    """Of the best checkpoint only the weights are needed; without them the newest is the best."""
    for name, file in (("states", "optimizer.pt"), ("weights", "model.safetensors")):
        home = tmp_path / name
        for step, best in ((100, 100), (900, 100)):
            folder = home / f"checkpoint-{step}"
            folder.mkdir(parents=True)
            for needed in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
                (folder / needed).write_bytes(f"{needed} {step}".encode())
            state = {"global_step": step, "max_steps": 1000, "best_global_step": best, "log_history": []}
            (folder / "trainer_state.json").write_text(json.dumps(state))
            write_checksums(folder)
        (home / "checkpoint-100" / file).write_bytes(b"damaged")
        found = last_checkpoint(home)
        assert found.step == 900
        assert found.best == home / ("checkpoint-100" if name == "states" else "checkpoint-900")
