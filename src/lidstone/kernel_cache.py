"""A folder for numba's compiled code where neither the package nor the user's home can be written to.

numba keeps compiled code beside the module, in the user's cache or in NUMBA_CACHE_DIR, and refuses to import a module
if it cannot write there. Then a folder for temporary files takes their place, with a copy of what NUMBA_CACHE_DIR has:
the code that `lidstone warm` compiled for an image that is read only.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def ensure_kernel_cache() -> None:
    """Set numba's cache folder where numba would find none."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if os.name != "posix" or (not given and os.access(Path(__file__).parent, os.W_OK)):
        return
    if _is_writable(Path(given) if given else _user_cache() / "numba"):
        return
    folder = _copied(Path(given)) if given else _own_folder()
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:  # it has read the environment already
        sys.modules["numba"].config.CACHE_DIR = str(folder)


def _copied(given: Path) -> Path:
    """A folder with the compiled code of one that cannot be written to: made once, by the first process."""
    import hashlib
    import shutil
    import tempfile

    own = _own_folder()
    folder = own / hashlib.sha256(os.fsencode(given.absolute())).hexdigest()[:16]
    if folder.is_dir():
        return folder
    made = Path(tempfile.mkdtemp(dir=own))
    for file in given.glob("*/*.nb[ci]"):
        target = made / file.parent.name / file.name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)
    try:
        made.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(made, ignore_errors=True)
    return folder


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
