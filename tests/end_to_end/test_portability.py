"""Other platforms: the package works where the modules of Unix are missing, and its wheel in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.tiny import lm_values, write_texts

ROOT = Path(__file__).resolve().parents[2]

MISSING_MODULES = ("fcntl", "resource", "termios", "pwd", "grp", "pty")
MISSING_FUNCTIONS = ("fchmod", "fchown", "sched_getaffinity", "fork", "mkfifo", "getloadavg")
NOT_IMPORTED = ("lidstone.__main__", "lidstone.loss.kernels.triton")
"""The first runs the command line; the second needs the package Triton, which is for Linux alone."""
WITHOUT_UNIX = f"""
import builtins, os, sys
missing = {MISSING_MODULES}
import_module = builtins.__import__
def refuse(name, globals=None, *rest, **named):
    if name in missing and str((globals or dict()).get("__name__")).startswith("lidstone"):
        raise ModuleNotFoundError("No module named " + name, name=name)
    return import_module(name, globals, *rest, **named)
builtins.__import__ = refuse
for name in {MISSING_FUNCTIONS}:
    if hasattr(os, name):
        delattr(os, name)
"""
EVERY_MODULE = """
import importlib, pkgutil, lidstone
names = [module.name for module in pkgutil.walk_packages(lidstone.__path__, "lidstone.")]
for name in names:
    if name not in sys.argv:
        importlib.import_module(name)
print(*names)
"""


def python(code: str, *arguments: object, **environment: str) -> str:
    command = [sys.executable, "-W", "error::ImportWarning", "-c", WITHOUT_UNIX + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_module_imports_without_the_modules_of_unix() -> None:
    names = python(EVERY_MODULE, *NOT_IMPORTED).split()
    assert len(names) > 100 and set(NOT_IMPORTED) < set(names)


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux has, and other systems lack")
def test_what_is_taken_away_exists() -> None:
    assert [name for name in MISSING_MODULES if find_spec(name) is None] == []
    assert [name for name in MISSING_FUNCTIONS if not hasattr(os, name)] == []


def test_count_fit_and_score_work_without_the_modules_of_unix(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the cat sat\nthe dog sat\na cat ran\n")
    verbs = """
from lidstone.cli.main import app
os.chdir(sys.argv[1])
for arguments in ("count text --order 2 --output c", "fit c --smoother witten-bell --output t", "score t text --json"):
    app(arguments.split(), standalone_mode=False)
"""
    assert '"perplexity": ' in python(verbs, tmp_path)
    assert os.name != "posix" or (tmp_path / "t").stat().st_mode & 0o600 == 0o600


def test_peak_memory_is_unknown_where_the_system_does_not_say() -> None:
    code = """
from pathlib import Path
from lidstone.lab.run.record import peak_memory
Path.exists = lambda path: False
print(peak_memory())
"""
    assert python(code) == "None\n"


@pytest.mark.slow
def test_a_training_works_without_the_modules_of_unix(tmp_path: Path) -> None:
    import yaml

    values = lm_values(write_texts(tmp_path, (40, 10, 10)), max_steps=2, eval_every=2)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    code = """
from lidstone.cli.main import app
app(["train", sys.argv[1], "--output", sys.argv[2], "--json"])
"""
    out = python(code, tmp_path / "recipe.yaml", tmp_path / "runs", LIDSTONE_CACHE=str(tmp_path / "cache"))
    assert '"computed": true' in out


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_torchrun_asks_for_the_death_signal_on_linux_only(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    from lidstone.lab.sweep import work

    monkeypatch.setattr(sys, "platform", platform)
    assert work._end_with_worker() == {}


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """The wheel is built and installed as a user would; numpy and the like are lent by this environment."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    source = tmp_path / "source"
    needed = ("src", "pyproject.toml", "setup.py", "README.md", "LICENSE")
    listed = ["git", "-C", ROOT, "ls-files", "-z", *needed]
    copied = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    for name in filter(None, copied.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([*build, "-w", tmp_path, source], check=True, timeout=240)
    (wheel,) = tmp_path.glob("lidstone-*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    bin_folder = tmp_path / "empty" / ("Scripts" if os.name == "nt" else "bin")
    own = Path(subprocess.check_output([bin_folder / "python", "-c", "import site; print(site.getsitepackages()[0])"],
                                       text=True).strip())  # fmt: skip
    install = [sys.executable, "-m", "pip", "--python", bin_folder / "python", "install", "-q", "--no-deps", wheel]
    subprocess.run(install, check=True, timeout=120)
    lend_packages(own)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LIDSTONE_DATA")}

    def run(*arguments: str) -> str:
        command = [bin_folder / "lidstone", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "sweep" in run("--help")
    (tmp_path / "text").write_text("the cat sat\nthe dog sat\na cat ran\n")
    run("count", "text", "--order", "2", "--output", "counts")
    run("fit", "counts", "--smoother", "witten-bell", "--output", "table")
    assert '"perplexity": ' in run("score", "table", "text", "--json")
    code = (
        "import lidstone; from lidstone.lab.recipe.recipe import recipe_names; print(lidstone.__file__, recipe_names())"
    )
    shown = subprocess.check_output([bin_folder / "python", "-c", code], text=True, env=environment)
    assert str(own) in shown  # the wheel's own files, not this checkout
    assert "demo" in shown


def lend_packages(site_packages: Path) -> None:
    """Put this environment's packages, but not its lidstone, behind those of another one."""
    import numpy

    lent = Path(numpy.__file__).parents[1]
    (site_packages / "lent.pth").write_text(f"{lent}\n")
