"""`lidstone env`: versions, cores, threads and folders, for bug reports."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from lidstone.cli.console import print_json, print_pairs
from lidstone.cli.inputs import JSON
from lidstone.parallel import cores

PACKAGES = (
    *("lidstone", "numpy", "numba", "safetensors", "typer", "rich", "zstandard"),
    *("torch", "transformers", "accelerate", "tokenizers", "subword-nmt", "sacremoses", "sacrebleu", "scipy"),
    *("pydantic", "filelock", "optuna", "ray", "matplotlib", "kenlm", "nltk"),
)
THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def env(as_json: JSON = False) -> None:
    """Print versions, cores, threads and folders, for bug reports."""
    facts = environment()
    if as_json:
        print_json(facts)
    else:
        print_pairs(_flat(facts))


def environment() -> dict[str, Any]:
    """All facts, by topic; a package that is not installed has the version None.

    >>> environment()["versions"]["lidstone"] is None
    False
    """
    from lidstone.files import cache_folder

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in PACKAGES},
        "cores": os.cpu_count(),
        "usable_cores": cores(),
        "threads": {name: os.environ.get(name) for name in THREAD_VARIABLES},
        "folders": {
            "data": os.environ.get("LIDSTONE_DATA"),
            "cache": str(cache_folder()),
            "numba_cache": os.environ.get("NUMBA_CACHE_DIR", "beside the modules (__pycache__)"),
        },
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _flat(facts: dict[str, Any]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for topic, fact in facts.items():
        pairs |= fact if isinstance(fact, dict) else {topic: fact}
    return pairs
