"""The dependencies: every one pinned, and under a licence that lets anyone use the package."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.audit import ROOT, licence, pins, problems

import lidstone

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib


def test_the_lock_satisfies_every_requirement_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    needed = [Requirement(line) for line in project["dependencies"] + extras]
    locked = {canonicalize_name(name): version for name, version in pins().items()}
    wrong = [
        str(one)
        for one in needed
        if one.name != "lidstone" and not one.specifier.contains(locked.get(canonicalize_name(one.name), "0"))
    ]
    assert not wrong, f"requirements.lock does not satisfy {wrong}: run make lock"


def test_every_pin_but_torch_has_a_hash_and_no_line_names_a_server() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith(("#", "torch==")) and " --hash=sha256:" not in line] == []
    assert not any("://" in line for line in lines)


def test_the_version_stands_in_one_place_and_the_citation_follows() -> None:
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dynamic"]
    assert f"\nversion: {lidstone.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_licences_are_free_ones() -> None:
    assert [problem for problem in problems() if "licence" in problem] == []


def test_a_licence_is_found_in_each_form() -> None:
    from importlib.metadata import distribution

    assert "BSD" in licence(distribution("numpy")) and licence(distribution("pytest")) == "MIT"
