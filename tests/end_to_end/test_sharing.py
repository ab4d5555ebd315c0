"""Many processes with one cache and one journal, and two users of one folder: no corruption, nothing done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.other_user import NOBODY, ROOT, SOMEBODY, as_user, interpreter, open_way_to
from tests.sweep_cells import CELLS, begun, ended
from tests.tiny import lm_values, write_texts

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="users and modes of Unix")]
PROCESSES = 8
PREPARE = """
import json, sys
from pathlib import Path
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.recipe.recipe import make_recipe
found = prepare_corpus(make_recipe(json.loads(sys.argv[1])))
print(found.key, found.train.sha256, int(found.train.target.stream.sum()))
"""


def outputs(commands: list[list[str]], how: list[dict[str, Any]], environment: dict[str, str]) -> list[str]:
    """Start all at once; what each printed."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    started = [
        subprocess.Popen(command, env=environment, **pipes, **options)
        for command, options in zip(commands, how, strict=True)
    ]
    ends = [process.communicate(timeout=240) for process in started]
    for process, (_, error) in zip(started, ends, strict=True):
        assert process.returncode == 0, error
    return [out for out, _ in ends]


@pytest.mark.parametrize("search", ["grid", "tpe"])
def test_eight_sweeps_with_one_journal_train_every_cell_once(tmp_path: Path, search: str) -> None:
    cache = {**os.environ, "LIDSTONE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tests.sweep_cells", str(tmp_path / "runs"), search, "local", "1", "0.05"]
    (best,) = set(outputs([command] * PROCESSES, [{}] * PROCESSES, cache))
    assert json.loads(best)
    assert set(Counter(begun(tmp_path / "runs")).values()) == {1}
    assert len(begun(tmp_path / "runs")) == len(ended(tmp_path / "runs")) == (CELLS if search == "grid" else 11)


def test_eight_processes_prepare_one_corpus(tmp_path: Path) -> None:
    cache = {**os.environ, "LIDSTONE_CACHE": str(tmp_path / "cache")}
    values = json.dumps(lm_values(write_texts(tmp_path)))
    (one,) = set(outputs([[sys.executable, "-c", PREPARE, values]] * PROCESSES, [{}] * PROCESSES, cache))
    (folder,) = (tmp_path / "cache" / "prepared").iterdir()  # and nothing temporary is left
    assert one.split()[0] == folder.name


def test_two_users_share_a_folder_of_runs(tmp_path: Path) -> None:
    python, path = interpreter()
    open_way_to(tmp_path)
    tmp_path.chmod(0o777)
    environment = {"PYTHONPATH": path, "LIDSTONE_CACHE": str(tmp_path / "cache"), "HOME": "/nonexistent",
                   "LIDSTONE_DATA": os.environ.get("LIDSTONE_DATA", "")}  # fmt: skip
    command = [python, "-m", "tests.sweep_cells", str(tmp_path / "runs"), "tpe", "local", "1", "0.1"]
    users = (NOBODY, SOMEBODY)
    (best,) = set(outputs([command] * 2, [as_user(user) for user in users], environment))
    assert json.loads(best)
    assert set(Counter(begun(tmp_path / "runs")).values()) == {1}
    assert len(ended(tmp_path / "runs")) == 11
    owners = {path.stat().st_uid for path in (tmp_path / "runs").glob("*/run.json")}
    assert owners == set(users)
