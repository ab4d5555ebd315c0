"""Fixtures shared by all tests."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

if START_METHOD := os.environ.get("START_METHOD"):  # `make test-spawn`: processes start as on macOS and Windows
    multiprocessing.set_start_method(START_METHOD, force=True)
    if START_METHOD == "spawn" and hasattr(os, "fork"):
        del os.fork


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real corpora, or a skip where they are absent."""
    folder = Path(os.environ.get("LIDSTONE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "wikitext-2").is_dir():
        pytest.skip("the real corpora are not here: set LIDSTONE_DATA to the folder that holds them")
    return folder


OPTIONAL = {"torch", "transformers", "accelerate", "tokenizers", "subword_nmt", "sacremoses", "sacrebleu", "scipy"}
OPTIONAL |= {"pydantic", "yaml", "tensorboard", "optuna", "ray", "matplotlib", "fsspec", "huggingface_hub", "pyarrow"}
OPTIONAL |= {"kenlm", "nltk", "datasets", "lightning", "trl", "triton", "flashlight", "jinja2", "nbformat", "mkdocs"}
"""What the extras bring: where one is not installed, the tests that need it are skipped."""


ABSENT = re.compile(r"No module named '(\w+)|needs the package (\w+)|cannot import name '\w+' from '(tests)\.")


def missing(report: pytest.CollectReport | pytest.TestReport) -> str | None:
    """The optional package whose absence made a test fail; a module of `tests` that cannot be imported is one, too."""
    text = "\n".join([report.longreprtext, *(content for _, content in report.sections)])
    names = {name for found in ABSENT.findall(text) for name in found if name}
    gone = {name for name in OPTIONAL if find_spec(name) is None}
    return next(iter(sorted(names & (gone | {"tests"} if gone else gone))), None)


def skipped(report: Any, place: Path) -> Any:
    """The report of a failure, or of a skip where a package is missing."""
    name = missing(report) if report.failed else None
    if name:
        report.outcome, report.longrepr = "skipped", (str(place), 0, f"Skipped: {name} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    return skipped((yield), collector.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    return skipped((yield), item.path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if os.name != "posix" and item.get_closest_marker("unix"):
            item.add_marker(pytest.mark.skip(reason="needs Unix"))
