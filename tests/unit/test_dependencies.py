"""The dependencies: every one pinned, and under a licence that lets anyone use the package."""

from __future__ import annotations

import re

from tests.audit import ROOT, licence, pins, problems

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    names = {re.split(r"[\s\[<>=!~;]", line)[0].lower().replace("_", "-") for line in project["dependencies"] + extras}
    missing = names - {name.lower().replace("_", "-") for name in pins()} - {"lidstone", "triton"}
    assert not missing, f"not in requirements.lock: {missing}"


def test_licences_are_free_ones() -> None:
    assert [problem for problem in problems() if "licence" in problem] == []


def test_a_licence_is_found_in_each_form() -> None:
    from importlib.metadata import distribution

    assert "BSD" in licence(distribution("numpy")) and licence(distribution("pytest")) == "MIT"
