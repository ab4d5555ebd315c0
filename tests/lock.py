"""`python -m tests.lock [--upgrade]`: write requirements.lock, every package of `pip install .[dev]` with its hash.

pip itself resolves, for this Python and platform, so that the lock is what pip would install. Versions stay as they
are in the lock, where pyproject.toml allows them; with --upgrade all become the newest. torch has no hash: which of its
builds a machine installs differs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.audit import ROOT, pins

TORCH = "torch==2.13.0"
HEAD = """\
# Every package of `pip install .[dev]`, with its version and hash: Python 3.11 on Linux. Written by `make lock`.
# The Makefile installs from it, torch first.
"""


def resolve(upgrade: bool) -> list[dict[str, Any]]:
    """What pip would install into an empty environment."""
    with TemporaryDirectory() as folder:
        report, present = Path(folder) / "report.json", Path(folder) / "constraints.txt"
        present.write_text("" if upgrade else "\n".join(f"{name}=={version}" for name, version in pins().items()))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--constraint", str(present), "--report", str(report), TORCH, f"{ROOT}[dev]"]
        subprocess.run(command, check=True)
        return list(json.loads(report.read_text(encoding="utf-8"))["install"])


def line_of(package: dict[str, Any]) -> str:
    """A line of the lock.

    >>> about = {"name": "Typed_Thing", "version": "1.2+cpu"}
    >>> line_of({"metadata": about, "download_info": {"archive_info": {"hashes": {"sha256": "ab"}}}})
    'typed-thing==1.2 --hash=sha256:ab'
    """
    name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
    pin = f"{name}=={package['metadata']['version'].partition('+')[0]}"
    found = package["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    return pin if name == "torch" or not found else f"{pin} --hash=sha256:{found}"


def main() -> None:
    """Resolve and write."""
    lines = sorted(
        line_of(package) for package in resolve("--upgrade" in sys.argv) if package["metadata"]["name"] != "lidstone"
    )
    (ROOT / "requirements.lock").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"requirements.lock: {len(lines)} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
