"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real corpora, or a skip where they are absent."""
    folder = Path(os.environ.get("LIDSTONE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "wikitext-2").is_dir():
        pytest.skip("the real corpora are not here: set LIDSTONE_DATA to the folder that holds them")
    return folder
