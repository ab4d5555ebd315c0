"""The README as PyPI shows it: its links lead to the files of this version's tag. All else is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def find(pattern: str, name: str) -> str:
    """What the group of `pattern` matches in a file."""
    found = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{name}: {pattern}"
    return found[1]


def package_page() -> str:
    """The README with the addresses of its relative links and images."""
    source = find(r'^Source = "(.*)"', "pyproject.toml")
    tag = "v" + find(r'^__version__ = "(.*)"', "src/lidstone/__init__.py")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/raw/{tag}/", text)
    return re.sub(r"(\]\()(?!https?:|#)", rf"\1{source}/blob/{tag}/", text)


if __name__ == "__main__":
    setup(long_description=package_page(), long_description_content_type="text/markdown")
