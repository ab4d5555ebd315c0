"""lidstone: classical n-gram smoothing as regularizers for neural language models.

The public names are those of `__init__.pyi`, imported when first used: `import lidstone` is quick and needs no torch.

>>> import lidstone as ld
>>> vocab = ld.Vocabulary(size=4, eos=3)
>>> counts = ld.count([[0, 1], [0, 2]], vocab, order=2)
>>> table = ld.AddLambda(lam=1.0).fit(counts)
>>> table.prob([(0,)])[0].round(3).tolist()  # after 0 came 1 and 2, once each: (c + 1) / (2 + 4)
[0.167, 0.333, 0.333, 0.167]
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from lidstone.kernel_cache import ensure_kernel_cache as _ensure_kernel_cache

__version__ = "0.1.0"

_MODULES = {
    alias.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

__all__ = ["__version__", *_MODULES]

_ensure_kernel_cache()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lidstone' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
