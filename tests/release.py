"""`python -m tests.release`: what is left for people to do before a release. `make release-check` does the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lidstone

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = (
    "register the trusted publisher on PyPI, once: project lidstone, workflow release.yml, environment pypi",
    "push, and wait until all jobs of the workflow tests have passed: only they run on macOS and Windows",
)

PLACEHOLDERS = {"OWNER": "the account that holds the repository", "SECURITY-CONTACT": "an address that is read"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def left() -> Iterator[str]:
    """Every step that only a person can do, or that was forgotten."""
    version = lidstone.__version__
    for word, meaning in PLACEHOLDERS.items():
        if files := git("grep", "-lw", word, "--", ":!tests").split():
            yield f"{', '.join(files)}: replace {word} by {meaning}"
    if f"version: {version}\n" not in read("CITATION.cff"):
        yield f"CITATION.cff: the version is not {version}"
    if not re.search(rf"^## {re.escape(version)}\b", read("CHANGELOG.md"), re.MULTILINE):
        yield f"CHANGELOG.md: there is no section {version}; rename Unreleased, with the date"
    if git("status", "--porcelain"):
        yield "commit or remove what git status shows"
    if f"v{version}" in git("tag").split():
        yield f"the tag v{version} exists: raise __version__ in src/lidstone/__init__.py"
    yield from ALWAYS
    yield f"git tag -s v{version} && git push origin v{version}"


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout


def main() -> int:
    """Print the steps; fail while there are more than those of every release."""
    steps = list(left())
    print("Left to do:", *(f"  {number}. {step}" for number, step in enumerate(steps, 1)), sep="\n")
    return int(len(steps) > len(ALWAYS) + 1)


if __name__ == "__main__":
    sys.exit(main())
