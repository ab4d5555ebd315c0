"""How many files of the package a job visits: `python -m tests.visits [loss|score|sweep]`.

A file is visited if one of its Python functions runs during the job, or if the job is the first to use one of its
compiled kernels. What the job is given (text, counts, a table, a loaded model) is made before.

    loss   make a loss from a table and counts, then one step: forward and backward
    score  `lidstone.kenlm.Model.score` of a model that is loaded
    sweep  a grid of two settings, chosen on validation, in this process: from recipe and text to finished runs
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lidstone"
LIMITS = {"loss": 25, "score": 10, "sweep": 60}


@contextmanager
def visited() -> Iterator[set[str]]:
    """The files that are visited while the block runs; complete when it has ended."""
    files: set[str] = set()
    folder, before = f"{PACKAGE}/", set(_kernels_in_use())

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(folder) and code.co_name != "<module>":
            files.add(code.co_filename.removeprefix(folder))

    threading.settrace(note)
    sys.settrace(note)
    try:
        yield files
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    files |= {path.removeprefix(folder) for path, _ in set(_kernels_in_use()) - before}


def _kernels_in_use() -> Iterator[tuple[str, str]]:
    """File and name of each compiled function that has been compiled or read from the cache for some types."""
    for name, module in list(sys.modules.items()):
        if name.startswith("lidstone."):
            for value in list(vars(module).values()):
                if getattr(value, "overloads", None) and getattr(value, "py_func", None):
                    yield value.py_func.__code__.co_filename, value.py_func.__qualname__


def loss() -> set[str]:
    """Make a loss, and a step of it."""
    import torch

    import lidstone as ld

    vocab = ld.Vocabulary(size=10, eos=9)
    counts = ld.count([[1, 2, 3], [1, 2]], vocab, order=3)
    table = ld.WittenBell().fit(counts)
    logits = torch.zeros(2, 4, 10, requires_grad=True)
    labels = torch.tensor([[1, 2, 3, 9], [1, 2, 9, -100]])
    with visited() as files:
        step = ld.SmoothedCrossEntropy(table, counts, gamma=0.2)
        step(logits, labels).total.backward()
    return files


def score() -> set[str]:
    """Score a sentence as users of the kenlm module do."""
    from lidstone import kenlm

    model = kenlm.Model(str(ROOT / "tests" / "golden" / "files" / "kenlm" / "trie.bin"))
    with visited() as files:
        model.score("a b c", bos=True, eos=True)
    return files


def sweep() -> set[str]:
    """Train a tiny grid."""
    from tests.tiny import lm_values, write_texts

    from lidstone.lab.recipe.recipe import make_recipe
    from lidstone.lab.sweep.engines import InProcess
    from lidstone.lab.sweep.sweep import Sweep

    with tempfile.TemporaryDirectory() as folder:
        values = lm_values(write_texts(Path(folder)), max_steps=2, eval_every=1)
        grid = {"axes": {"regularizer.gamma": [0.1, 0.2]}, "seeds": [1]}
        with visited() as files:
            planned = Sweep(make_recipe({**values, "sweep": grid}), Path(folder) / "runs", threads=1)
            states = planned.run(InProcess())
        assert all(not state.failures() for state in states), states
    return files


def files_of(job: str) -> list[str]:
    """The files that a job visits, found in a process of its own, where nothing is imported yet."""
    command = [sys.executable, "-m", "tests.visits", job]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


JOBS: dict[str, Callable[[], set[str]]] = {"loss": loss, "score": score, "sweep": sweep}

if __name__ == "__main__":
    if sys.argv[1:]:
        print(*sorted(JOBS[sys.argv[1]]()), sep="\n")
    else:
        for job, limit in LIMITS.items():
            print(f"{job}: {len(files_of(job))} files (at most {limit})")
