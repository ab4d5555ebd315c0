"""What a stranger reads about the project agrees: metadata, citation, templates, workflows, commands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import lidstone

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NEXT = "3.15"
"""The Python whose tests may fail."""


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pythons() -> list[str]:
    return re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))


def test_the_toolkit_alone_needs_seven_packages() -> None:
    needed = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert needed == {"numpy", "numba", "safetensors", "typer", "rich", "zstandard", "filelock"}


def test_every_dependency_has_a_lower_bound() -> None:
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    free = [line for line in lines if ">=" not in line and not line.startswith(("lidstone[", "types-"))]
    assert free == []


def test_every_file_of_the_package_is_in_the_wheel() -> None:
    tool = tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]
    package = ROOT / "src" / "lidstone"
    packed = {path for pattern in tool["package-data"]["lidstone"] for path in package.glob(pattern)}
    found = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path.name for path in found - packed if path.suffix != ".py"} <= {"README.md"}


def test_links_of_the_page_on_pypi_lead_to_the_files_of_the_tag() -> None:
    pytest.importorskip("setuptools")
    page = runpy.run_path(str(ROOT / "setup.py"))["package_page"]()
    source, tag = PROJECT["urls"]["Source"], f"v{lidstone.__version__}"
    assert f"]({source}/blob/{tag}/docs/results.md#the-verdict)" in page
    assert f"]({source}/raw/{tag}/docs/images/ladder.svg)" in page
    assert re.findall(r"\]\((?!https://).*?\)", page) == []


def test_the_citation_agrees_with_the_metadata() -> None:
    yaml = pytest.importorskip("yaml")
    about = yaml.safe_load(read("CITATION.cff"))
    assert about["title"].lower() == f"{PROJECT['name']}: {PROJECT['description']}".lower()
    assert about["license"] == PROJECT["license"] and set(about["keywords"]) <= set(PROJECT["keywords"])
    assert about["references"][0]["url"] == PROJECT["urls"]["Paper"]
    assert PROJECT["license"] == "Apache-2.0" and "Apache License" in read("LICENSE").splitlines()[0] + read("LICENSE")


def test_the_pythons_are_the_same_everywhere() -> None:
    found = pythons()
    assert PROJECT["requires-python"] == f">={found[0]}"
    (matrix,) = re.findall(r"python: \[(.*)\]", read(".github/workflows/tests.yml"))
    assert re.findall(r"[\d.]+", matrix) == [*found, NEXT]
    assert f"matrix.python == '{NEXT}'" in read(".github/workflows/tests.yml")
    assert f"Python {found[0]} to {found[-1]}" in read("README.md")


def test_the_contact_stands_in_one_place() -> None:
    assert "SECURITY-CONTACT" in read("SECURITY.md") or re.search(r"[\w.]+@[\w.]+", read("SECURITY.md"))
    assert "](SECURITY.md)" in read("CODE_OF_CONDUCT.md")
    assert "](SECURITY.md)" in read("CONTRIBUTING.md") and "](CODE_OF_CONDUCT.md)" in read("CONTRIBUTING.md")


def test_every_command_that_is_named_exists() -> None:
    from lidstone.cli.main import VERBS

    templates = [path.relative_to(ROOT).as_posix() for path in (ROOT / ".github").rglob("*.*") if path.is_file()]
    targets = set(re.search(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)[1].split())  # type: ignore[index]
    pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md", ".ci/run", *templates]
    for page in pages:
        assert set(re.findall(r"(?:^|`|run: )make ([\w-]+)", read(page), re.MULTILINE)) <= targets, page
        assert set(re.findall(r"`lidstone (\w+)", read(page))) <= set(VERBS), page
    assert targets - {"test-gpu", "lint"} <= set(re.findall(r"make ([\w-]+)", read("CONTRIBUTING.md"))) | {"demo"}


def test_pre_commit_runs_the_tools_of_make_lint() -> None:
    lint = read("Makefile").split("\nlint:")[1].split("\n\n")[0]
    assert {"ruff", "mypy", "zizmor"} == set(re.findall(r"\.venv/bin/(\w+)", read(".pre-commit-config.yaml")))
    assert all(f"$(BIN)/{tool}" in lint for tool in ("ruff", "mypy", "zizmor")) and "$(ACTIONLINT)" in lint


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash_with_their_tag(path: Path) -> None:
    uses = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert uses and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in uses)


def test_what_is_left_before_a_release_is_named() -> None:
    release = pytest.importorskip("tests.release")
    if not (ROOT / ".git").exists():
        pytest.skip("not in a clone")
    left = "\n".join(release.left())
    assert ("OWNER" in left) == ("/OWNER/" in read("pyproject.toml"))
    assert ("SECURITY-CONTACT" in left) == ("SECURITY-CONTACT" in read("SECURITY.md"))
    assert "git tag -s v" in left and "trusted publisher" in left
