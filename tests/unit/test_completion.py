"""Shell completion of values: what is offered, and that nothing heavy is imported for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lidstone.cli.inputs import complete_recipes, complete_runs, complete_smoothers
from lidstone.ngram.smoothers.registry import smoother_names

HEAVY = ("numpy", "numba", "torch", "transformers", "yaml")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("0aa", "0ab"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text(json.dumps({"name": "katz", "seed": 3}))
    (tmp_path / "runs" / "1bb").mkdir()  # a training that is not finished
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "run.json").write_text("{")
    for name in ("mine.yaml", "notes.txt", "demographics.yml"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_smoothers_are_offered_by_name() -> None:
    assert complete_smoothers("") == smoother_names()
    assert complete_smoothers("k") == ["katz", "kneser-essen-ney"]
    assert complete_smoothers("zz") == []


def test_recipes_are_offered_by_name_and_by_file(here: Path) -> None:
    assert complete_recipes("dem") == ["demo", "demographics.yml"]
    assert complete_recipes("m") == ["mine.yaml"]
    assert complete_recipes("ru") == ["runs/"]
    assert complete_recipes("nowhere/x") == []


@pytest.mark.parametrize("typed", ["", "ru", "runs"])
def test_runs_are_offered_with_what_they_are(here: Path, typed: str) -> None:
    assert complete_runs(typed) == [("runs/0aa", "katz, seed 3"), ("runs/0ab", "katz, seed 3"), ("runs/damaged", "")]


def test_runs_are_offered_as_typed(here: Path) -> None:
    assert complete_runs("runs/0a") == [("runs/0aa", "katz, seed 3"), ("runs/0ab", "katz, seed 3")]
    assert complete_runs("runs/1") == []


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("fit counts --smoother modif", "modified-kneser-ney"),
        ("train wikitext2_", "wikitext2_small"),
        ("sweep dem", "demo\ndemographics.yml"),
        ("data prepare wmt14_ende_", "wmt14_ende_small"),
        ("evaluate runs/0a", "runs/0aa\nruns/0ab"),
        ("translate runs/0a", "runs/0aa\nruns/0ab"),
        ("compare runs/0ab runs/0aa", "runs/0aa"),
    ],
)
def test_the_shell_is_answered_without_heavy_imports(here: Path, words: str, offered: str) -> None:
    code = (
        "import atexit, sys; "
        f"atexit.register(lambda: print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)); "
        "from lidstone.cli.main import run; run()"
    )
    asked = {
        "_LIDSTONE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"lidstone {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == offered, done.stderr
    assert done.stderr.strip() == ""
