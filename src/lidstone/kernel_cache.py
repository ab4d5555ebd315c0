"""A folder for numba's compiled code where neither the package nor the user's home can be written to.

numba keeps compiled code beside the module or in the user's cache, and refuses to import a module if it can write to
neither. Then a folder for temporary files takes their place.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def ensure_kernel_cache() -> None:
    """Set numba's cache folder, unless it is set or numba finds one itself."""
    if os.environ.get("NUMBA_CACHE_DIR") or os.name != "posix":
        return
    if os.access(Path(__file__).parent, os.W_OK) or _is_writable(_user_cache() / "numba"):
        return
    os.environ["NUMBA_CACHE_DIR"] = folder = str(_own_folder())
    if "numba" in sys.modules:  # it has read the environment already
        sys.modules["numba"].config.CACHE_DIR = folder


def _user_cache() -> Path:
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.expanduser raises an error if there is no home
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _own_folder() -> Path:
    """A folder of this user alone, used again by later processes: whoever can write there can run code as this user."""
    import tempfile

    folder = Path(tempfile.gettempdir()) / f"lidstone-numba-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="lidstone-numba-"))
