"""A new user's first hour, as a researcher with text of one's own: from a German file to a sweep and a report."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DETERMINERS, ADJECTIVES = ("Das", "Ein", "Dieses"), ("alte", "kleine", "rote", "schöne")
NOUNS, VERBS, TIMES = ("Haus", "Kind", "Pferd", "Mädchen"), ("sieht", "hört", "findet"), ("heute", "morgen", "nie")
SMALL = (
    *("model.layers=1", "model.width=16", "model.heads=2", "model.ffn=32", "tokenizer.merges=60"),
    *("training.epochs=2", "training.batch_tokens=512", "sweep.seeds=[1, 2]", "sweep.axes={regularizer.gamma: [0.25]}"),
)


def sentence(rng: random.Random) -> str:
    words = [rng.choice(part) for part in (DETERMINERS, ADJECTIVES, NOUNS, VERBS)]
    return f"{' '.join(words)} {rng.choice(DETERMINERS).lower()} {rng.choice(NOUNS)}, {rng.choice(TIMES)}."


def lidstone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LIDSTONE_CACHE": str(folder / "cache"), "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "lidstone", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_from_a_german_file_to_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "eigene Märchen"
    folder.mkdir()
    rng = random.Random(1)
    (folder / "märchen.txt").write_text("".join(sentence(rng) + "\n" for _ in range(400)), encoding="utf-8")

    chosen = lidstone(folder, "init", "--task", "lm", "märchen.txt").stderr
    assert "language: de" in chosen and "tokenization: moses" in chosen and "name: märchen" in chosen

    swept = lidstone(folder, "sweep", "recipe.yaml", *(word for key in SMALL for word in ("--set", key)))
    assert len(list((folder / "runs").glob("*/run.json"))) == 6  # three methods, two seeds
    assert len(re.findall(r"seed=\d", swept.stderr)) >= 6, "a line for each cell where stderr is no terminal"
    assert (folder / "runs" / "sweep.log").stat().st_size > 0

    told = lidstone(folder, "report", "runs", "--html", "report.html")
    assert "n-gram" in told.stdout and "Kneser" in (folder / "report.html").read_text(encoding="utf-8")
