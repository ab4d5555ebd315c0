"""`python -m tests.audit`: what can be said about the dependencies without a network: pins and licences.

`make audit` also asks the advisory service of PyPI about known vulnerabilities, with pip-audit.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.!+]*)(?: --hash=sha256:[0-9a-f]{64})*")
LICENCES = re.compile(r"MIT|BSD|Apache|PSF|Python Software|ISC|MPL|Mozilla", re.IGNORECASE)
"""Licences that allow use in any program; MPL asks only for changes of its own files."""
CHECKED = {"kenlm": "LGPL, and only for the tests that compare with it; it is no dependency of the package"}
"""Packages without a licence in their metadata, looked at by hand."""


def pins() -> dict[str, str]:
    """Name and version of every line of requirements.lock; a line that is no exact pin is an error."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    found = {}
    for line in filter(None, (line.partition("#")[0].strip() for line in lines)):
        matched = PIN.fullmatch(line)
        if matched is None:
            raise SystemExit(f"requirements.lock: {line!r} is not an exact pin")
        found[matched[1]] = matched[2]
    return found


def licence(package: Distribution) -> str:
    """The licence by a package's metadata, in the newer form or the older ones."""
    about = package.metadata
    classifiers = [text.split("::")[-1].strip() for text in about.get_all("Classifier") or () if "License" in text]
    first_line = (about.get("License") or "").strip().partition("\n")[0]
    return about.get("License-Expression") or "; ".join(classifiers) or first_line


def problems() -> list[str]:
    """Packages that are installed in another version than the lock says, or whose licence is not a known free one."""
    found = []
    for name, version in pins().items():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        if package.version.partition("+")[0] != version.partition("+")[0]:
            found.append(f"{name}: {package.version} is installed, {version} is pinned")
        if not LICENCES.search(licence(package)) and name not in CHECKED:
            found.append(f"{name}: the licence is {licence(package)!r}")
    return found


def main() -> int:
    """Print what is wrong."""
    found = problems()
    print(*found, f"{len(pins())} packages, each pinned; {len(found)} problems", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
