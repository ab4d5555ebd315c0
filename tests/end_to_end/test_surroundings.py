"""Unfriendly surroundings: an unprivileged user, a home that is read-only, other locales, odd paths, no git."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.other_user import NOBODY, ROOT, as_user, interpreter, open_way_to
from tests.tiny import lm_values, write_texts

pytestmark = pytest.mark.skipif(os.name != "posix", reason="users, modes and locales of Unix")
VERBS = """
import sys
from lidstone.cli.main import app
for arguments in ("count text --order 2 --output c", "fit c --smoother witten-bell --output t", "score t text --json"):
    app(arguments.split(), standalone_mode=False)
"""
TRAIN = "from lidstone.cli.main import app; app(['train', 'recipe.yaml', '--output', 'runs', '--json'])"
TEXT = "die größte Katze saß\nder Hund saß\neine Katze lief über die Straße\n"
HOMES = ("HOME", "LIDSTONE_CACHE", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")


def run(
    folder: Path, code: str, *, python: str = sys.executable, how: dict[str, Any] | None = None, **more: str
) -> str:
    """Run a program in a folder with nothing of this environment but what is needed."""
    usual = {name: value for name, value in os.environ.items() if name not in HOMES}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**usual, "PYTHONPATH": path, "HOME": str(folder), **more}
    done = subprocess.run([python, "-c", code], cwd=folder, env=environment, capture_output=True, timeout=300,
                          check=False, **(how or {}))  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


def perplexity(folder: Path, **options: Any) -> float:
    (folder / "text").write_text(TEXT, encoding="utf-8")
    found = run(folder, VERBS, **options)
    return float(json.loads(found[found.index("{") :])["perplexity"])


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The perplexity in friendly surroundings."""
    return perplexity(tmp_path_factory.mktemp("usual"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that its user cannot write to, and a folder that everyone can."""
    open_way_to(tmp_path)
    (tmp_path / "home").mkdir(mode=0o555)
    (tmp_path / "work").mkdir()
    (tmp_path / "work").chmod(0o777)
    return tmp_path / "home"


def test_an_unprivileged_user_with_a_home_that_is_read_only(home: Path, usual: float) -> None:
    python, path = interpreter()
    how = as_user(NOBODY)
    assert perplexity(home.with_name("work"), python=python, how=how, PYTHONPATH=path, HOME=str(home)) == usual
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_an_unprivileged_user_trains(home: Path) -> None:
    python, path = interpreter()
    work = home.with_name("work")
    values = lm_values(write_texts(work, (40, 10, 10)), max_steps=2, eval_every=2)
    (work / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    cache = {"HOME": str(home), "LIDSTONE_CACHE": str(work / "cache")}
    out = run(work, TRAIN, python=python, how=as_user(NOBODY), PYTHONPATH=path, PATH="/nowhere", **cache)
    assert json.loads(out.splitlines()[0])["computed"] is True
    without = subprocess.run([python, "-c", TRAIN], cwd=work, env={"PYTHONPATH": path, "HOME": str(home)}, text=True,
                             capture_output=True, check=False, **as_user(NOBODY))  # fmt: skip
    assert without.returncode == 1 and "LIDSTONE_CACHE" in without.stderr and "Traceback" not in without.stderr


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.UTF-8"])
def test_another_locale(tmp_path: Path, usual: float, locale: str) -> None:
    known = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.lower().split()
    if locale.lower().replace("utf-8", "utf8") not in known:
        pytest.skip(f"this machine has no {locale}")
    no_utf8 = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert perplexity(tmp_path, LC_ALL=locale, LANG=locale, **no_utf8) == usual


def test_a_path_with_spaces_and_umlauts(tmp_path: Path, usual: float) -> None:
    folder = tmp_path / "zwei Wörter & ein 'Strich'"
    folder.mkdir()
    assert perplexity(folder) == usual


def test_no_git_on_the_path(tmp_path: Path, usual: float) -> None:
    assert perplexity(tmp_path, PATH=str(tmp_path)) == usual


@pytest.mark.slow
def test_a_training_with_umlauts_another_locale_and_no_git(tmp_path: Path) -> None:
    folder = tmp_path / "zwei Wörter"
    folder.mkdir()
    values = lm_values(write_texts(folder, (40, 10, 10)), max_steps=2, eval_every=2)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
    out = run(folder, TRAIN, LIDSTONE_CACHE=str(folder / "cache"), PATH=str(tmp_path), LC_ALL="C")
    assert json.loads(out.splitlines()[0])["computed"] is True


def test_a_path_that_the_locale_cannot_spell_is_one_line(tmp_path: Path) -> None:
    """Python itself uses UTF-8 in the C locale, unless both of its ways to do so are switched off."""
    (tmp_path / "r.yaml").write_text(
        "task: lm\nname: x\ncorpus: {train: Wörter, valid: Wörter, test: Wörter}\n", encoding="utf-8"
    )
    code = "from lidstone.cli.main import app; app(['data', 'prepare', 'r.yaml', '--output', 'o'])"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **ascii_only}, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "PYTHONUTF8" in done.stderr and done.stderr.startswith("error: ")
