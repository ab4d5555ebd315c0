"""How functions are compiled: `kernel`, `helper` or `inlined`, with numba, and kept on disk.

    kernel    called from Python, without Python's lock
    helper    called by compiled code only: without the part that unpacks Python's objects
    inlined   a helper that becomes a part of the machine code of its callers
    pasted    a helper that becomes a part of its callers before they are compiled, for loops over arrays: a call counts
              references to each of them. It copies the whole caller each time, so it is the slowest to compile

A process that finds nothing on disk waits for all that it calls to be compiled, so what matters is how many functions
there are, and for how many types each: a small helper takes 30 ms. So

- constants that are arguments are numpy's (`np.int64(4)`): for a plain 4 numba compiles the function once more;
- numbers and addresses cost less than arrays, and arrays made in Python less than those made in kernels;
- `a[i:j] = b` compiles the text of the error that shapes differ, half a second: write a loop.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

kernel = njit(**_OPTIONS)
helper = njit(**_OPTIONS, no_cpython_wrapper=True)
inlined = njit(**_OPTIONS, no_cpython_wrapper=True, forceinline=True)
pasted = njit(**_OPTIONS, inline="always")
