"""Outputs that cannot be written, and links in their paths: one line, a hint, and nothing lost, for every such verb."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.tiny import lm_values, write_texts
from typer.testing import CliRunner

from lidstone.cli.main import app

pytestmark = pytest.mark.unix
TREES = Path(__file__).parents[1] / "run_trees.py"
FILES = {
    "count": "count text -n 2 -o OUT",
    "count --memory": "count text -n 2 --memory 4G -o OUT",
    "merge": "merge c d -o OUT",
    "fit": "fit c -s witten-bell -o OUT",
    "fit --memory": "fit c -s witten-bell --memory 4G -o OUT",
    "convert": "convert t OUT",
    "convert to ARPA": "convert t OUT.arpa",
    "convert to KenLM": "convert t OUT.bin",
    "mix": "mix t t --weights 0.5,0.5 -o OUT",
    "prune": "prune t --entropy 1e-3 -o OUT",
    "filter": "filter t text --keep 0.5 -o OUT",
    "build-binary": "build-binary m.arpa OUT",
    "report --html": "report runs --no-tests --html OUT",
    "pack": "pack runs -o OUT.runs",
    "init": "init text --force -o OUT.yaml",
}
FOLDERS = {
    "data prepare": "data prepare recipe.yaml -o OUT",
    "train": "train recipe.yaml -o OUT",
    "sweep": "sweep recipe.yaml --jobs 1 -o OUT",
    "unpack": "unpack study.runs -o OUT",
    "report --plots": "report runs --no-tests --plots OUT",
}


def run(arguments: str, output: Path | str):
    suffixed = [word.replace("OUT", str(output)) for word in arguments.split()]
    return CliRunner().invoke(app, suffixed)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "text").write_text("a b c\nb c a\nc\n" * 5)
        values = lm_values(write_texts(folder, (40, 8, 8)), max_steps=2, eval_every=2, accumulation=1)
        (folder / "recipe.yaml").write_text(yaml.safe_dump(values))
        runpy.run_path(str(TREES))["write_tree"](folder / "runs", seeds=2, names=("none", "katz"))
        for arguments in (
            "count text -n 2 -o c",
            "count text -n 2 -o d",
            "fit c -s witten-bell -o t",
            "convert t m.arpa",
            "pack runs -o study.runs",
        ):
            done = run(arguments, "")
            assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def folder(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(inputs)
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def is_folder(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "old").write_text("old")
    return folder / name


def is_file(folder: Path, name: str) -> Path:
    (folder / name).write_text("old")
    return folder / name


def write_protected(folder: Path, name: str) -> Path:
    is_file(folder, name).chmod(0o444)
    return folder / name


def below_a_file(folder: Path, name: str) -> Path:
    (folder / "file").write_text("old")
    return folder / "file" / name


def below_nothing(folder: Path, name: str) -> Path:
    return folder / "nothing" / name


def loop(folder: Path, name: str) -> Path:
    (folder / name).symlink_to(name)
    return folder / name


def link_to_nothing(folder: Path, name: str) -> Path:
    (folder / name).symlink_to(folder / "nothing" / "out")
    return folder / name


def protected(folder: Path, name: str) -> Path:
    """In a folder of the system, where not even root makes files."""
    if not Path("/sys/kernel").is_dir():
        pytest.skip("this system has no /sys")
    return Path("/sys/kernel") / f"lidstone-test-{os.getpid()}{name.removeprefix('out')}"


def content(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): path.is_symlink() or path.is_dir() or path.read_bytes()
        for path in folder.rglob("*")
    }


def refused(verb: str, make: Callable[[Path, str], Path], folder: Path) -> None:
    arguments = (FILES | FOLDERS)[verb]
    suffix = next(word for word in arguments.split() if word.startswith("OUT")).removeprefix("OUT")
    output = make(folder, f"out{suffix}")
    before = content(folder)
    done = run(arguments, str(output).removesuffix(suffix))
    assert done.exit_code == 1, (done.output, done.exception)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and any(str(place) in errors[0] for place in (folder, output.parent)), done.stderr
    assert sum(line.startswith("hint: ") for line in done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
    assert content(folder) == before


@pytest.mark.parametrize(
    "make", [is_folder, write_protected, below_a_file, below_nothing, loop, link_to_nothing, protected]
)
@pytest.mark.parametrize("verb", FILES)
def test_a_file_that_cannot_be_written(verb: str, make: Callable[[Path, str], Path], folder: Path) -> None:
    refused(verb, make, folder)


@pytest.mark.parametrize("make", [is_file, below_a_file, loop, protected])
@pytest.mark.parametrize("verb", FOLDERS)
def test_a_folder_that_cannot_be_written(verb: str, make: Callable[[Path, str], Path], folder: Path) -> None:
    refused(verb, make, folder)


@pytest.mark.parametrize("verb", FILES)
def test_a_link_stays_a_link(verb: str, folder: Path) -> None:
    arguments = FILES[verb]
    suffix = next(word for word in arguments.split() if word.startswith("OUT")).removeprefix("OUT")
    (folder / "real").mkdir()
    (folder / f"out{suffix}").symlink_to(f"real/file{suffix}")
    for _ in range(2):  # to a file that is not there, then to one that is
        done = run(arguments, folder / "out")
        assert done.exit_code == 0, done.output
        assert (folder / f"out{suffix}").is_symlink()
        assert {path.name for path in (folder / "real").iterdir()} == {f"file{suffix}"}
        assert {path.name for path in folder.iterdir()} == {"real", f"out{suffix}"}


@pytest.mark.parametrize("verb", FOLDERS)
def test_a_link_to_a_folder_stays_a_link(verb: str, folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "out").symlink_to("real")
    done = run(FOLDERS[verb], folder / "out")
    assert done.exit_code == 0, done.output
    assert (folder / "out").is_symlink() and any((folder / "real").iterdir())
