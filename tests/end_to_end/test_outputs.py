"""Outputs that cannot be written, and links in their paths: one line, a hint, and nothing lost, for every such verb."""

from __future__ import annotations

import errno
import os
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.tiny import lm_values, write_texts
from typer.testing import CliRunner, Result

from lidstone.cli.main import app

pytestmark = [pytest.mark.unix, pytest.mark.filterwarnings("ignore:.*uses its fallback")]
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
    "lmplz": "lmplz -o 2 --discount_fallback --text text --arpa OUT.arpa",
    "teach --parquet": "teach network text --top 2 -o taught --parquet OUT.parquet",
}
FOLDERS = {
    "data prepare": "data prepare recipe.yaml -o OUT",
    "train": "train recipe.yaml -o OUT",
    "sweep": "sweep recipe.yaml --jobs 1 -o OUT",
    "unpack": "unpack study.runs -o OUT",
    "report --plots": "report runs --no-tests --plots OUT",
    "teach": "teach network text --top 2 -o OUT",
    "install-kenlm-names": "install-kenlm-names OUT",
    "demo": "demo --smoke -o OUT",
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
            "train recipe.yaml -o trained",
        ):
            done = run(arguments, "")
            assert done.exit_code == 0, done.output
        next((folder / "trained").glob("*/model")).rename(folder / "network")
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
    assert any(str(place) in the_error(done) for place in (folder, output.parent)), done.stderr
    assert content(folder) == before


def the_error(done: Result) -> str:
    """The one line of a command that failed; beside it there is a hint."""
    assert done.exit_code == 1, (done.output, done.exception)
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert sum(line.startswith("hint: ") for line in done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
    return error


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


@pytest.mark.parametrize("verb", [verb for verb in FILES | FOLDERS if verb != "install-kenlm-names"])
def test_a_renaming_that_fails(verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    arguments = (FILES | FOLDERS)[verb]
    suffix = next(word for word in arguments.split() if word.startswith("OUT")).removeprefix("OUT")
    before = is_file(folder, f"out{suffix}") if verb in FILES and verb != "pack" else None
    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(os, name, fail)
        done = run(arguments, folder / "out")
    assert os.strerror(errno.EXDEV) in the_error(done)
    assert before is None or before.read_text() == "old"
    done = run(arguments, folder / "out")
    assert done.exit_code == 0, done.output
    assert [path.name for path in folder.iterdir()] == [f"out{suffix}"]


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
