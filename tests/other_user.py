"""Running Python as another user, where the tests run as root: a way to see permissions at work."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

NOBODY, SOMEBODY = 65534, 65533
"""Two ids without any rights of their own."""
ROOT = Path(__file__).resolve().parents[1]


def as_user(user: int) -> dict[str, Any]:
    """Arguments of `subprocess` for a process of this user; files that it makes are open to all."""
    return {"user": user, "group": user, "extra_groups": [], "umask": 0}


@cache
def interpreter() -> tuple[str, str]:
    """A Python that other users may start, and its PYTHONPATH; the test is skipped where there is none."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root may start processes of other users")
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), *site.getsitepackages()])
    same = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in filter(None, (sys.executable, shutil.which(same, path="/usr/local/bin:/usr/bin"))):
        try:
            done = subprocess.run([found, "-c", "import lidstone, numpy"], env={"PYTHONPATH": path}, cwd="/",
                                  capture_output=True, check=False, **as_user(NOBODY))  # fmt: skip
        except PermissionError:
            continue
        if done.returncode == 0:
            return found, path
    pytest.skip("other users may not start this Python, or not read its packages")


def open_way_to(folder: Path) -> None:
    """Let every user enter the folder and those above it; each worker of pytest has one more of them."""
    for each in (folder, *folder.parents):
        mode = each.stat().st_mode
        if mode & 0o055 != 0o055 and each.stat().st_uid == os.getuid():
            each.chmod(mode | 0o055)
