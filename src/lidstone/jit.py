"""How functions are compiled: `kernel`, `helper` or `inlined`, with numba; kernels are kept on disk.

    kernel    called from Python, without Python's lock
    helper    called by compiled code only: without the part that unpacks Python's objects
    inlined   a helper that becomes a part of the machine code of its callers
    pasted    a helper that becomes a part of its callers before they are compiled, for loops over arrays: a call counts
              references to each of them. It copies the whole caller each time, so it is the slowest to compile

A process that finds nothing on disk waits for all that it calls to be compiled, so what matters is how many functions
there are, and for how many types each: a small helper takes 30 ms. So

- constants that are arguments are numpy's (`np.int64(4)`): for a plain 4 numba compiles the function once more;
- numbers and addresses cost less than arrays, and arrays made in Python less than those made in kernels;
- `a[i:j] = b` compiles the text of the error that shapes differ, half a second: write a loop;
- helpers are not kept: their callers have them inside, and each file costs time, whether it is written or read.

While one process compiles what it needs first, `compile_elsewhere` lets another compile what it needs next.
"""

from __future__ import annotations

import atexit
import functools
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event

from lidstone.parallel import cores

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def _fingerprint(package: Path) -> int:
    """A checksum of all that kernels are compiled from: numba notices changes of a kernel's own file, not of others."""
    files = [
        *package.glob("*.py"),
        *(file for part in ("text", "ngram", "loss") for file in package.glob(f"{part}/**/*.py")),
    ]
    return functools.reduce(lambda found, file: zlib.crc32(file.read_bytes(), found), sorted(files), 0)


_SOURCES = _fingerprint(Path(__file__).parent)


def mark_cache(compiled: Any) -> Any:
    """Let code that is kept on disk be of use only where no source has changed since."""
    if file := getattr(compiled._cache, "_cache_file", None):
        file._source_stamp = (file._source_stamp, _SOURCES)
    return compiled


def kernel(function: Callable[..., Any]) -> Any:
    """A function that Python calls."""
    return mark_cache(njit(**_OPTIONS, cache=True)(function))


helper = njit(**_OPTIONS, no_cpython_wrapper=True)
inlined = njit(**_OPTIONS, no_cpython_wrapper=True, forceinline=True)
pasted = njit(**_OPTIONS, inline="always")

PATIENCE = 0.3
"""Seconds of compilation before the user is told of it."""


class _Announcement(event.Listener):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """One line on stderr, once, when functions of lidstone take long to compile."""

    def __init__(self) -> None:
        self.depth, self.spent, self.start = 0, 0.0, 0.0

    def on_start(self, found: event.Event) -> None:
        """Count the time from the first of nested compilations on."""
        if self.depth == 0:
            self.start = time.monotonic()
        self.depth += 1
        if self.spent + time.monotonic() - self.start > PATIENCE:
            self.spent = -float("inf")
            print("compiling for this machine, once; `lidstone warm` does it ahead", file=sys.stderr, flush=True)

    def on_end(self, found: event.Event) -> None:
        """Add up the time of those that are not nested."""
        self.depth -= 1
        if self.depth == 0:
            self.spent += time.monotonic() - self.start


event.register("numba:compile", _Announcement())

_ELSEWHERE: dict[Callable[[], object], subprocess.Popen[bytes]] = {}


def compile_elsewhere(function: Callable[[], object], sample: Any) -> None:
    """Let another process call `function`, which compiles, if nothing is on disk where `sample`, a kernel, is kept.

    `function` is one of a module, without arguments. `wait_for` it before what it compiles is used.
    """
    is_python = Path(sys.executable or "").name.startswith("python")  # not a program that has Python inside
    if function in _ELSEWHERE or not is_python or cores() < 2 or any(Path(sample.stats.cache_path).glob("*.nbi")):
        return
    call = f"from {function.__module__} import {function.__name__} as f; f()"
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path}; {call}"]
    silent = subprocess.DEVNULL
    _ELSEWHERE[function] = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)


def wait_for(function: Callable[[], object]) -> None:
    """Wait until another process has compiled it, if one does; what it could not compile, this one will."""
    if process := _ELSEWHERE.pop(function, None):
        process.wait()


@atexit.register
def _stop_elsewhere() -> None:
    for process in _ELSEWHERE.values():
        process.kill()
        process.wait()
