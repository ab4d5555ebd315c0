"""How many files of the package a job visits: `python -m tests.visits [loss|score|sweep]`.

A file is visited if one of its Python functions runs during the job, or if a compiled kernel that the job is the first
to call is in it, or calls one in it. What the job is given (text, counts, a table, a loaded model) is made before.

    loss   make a loss from a table and counts, then one step: forward and backward
    score  `lidstone.kenlm.Model.score` of a model that is loaded
    sweep  a grid of two settings, chosen on validation, in this process: from recipe and text to finished runs
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, FunctionType
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
        name = frame.f_code.co_filename.removeprefix(folder)
        if name != frame.f_code.co_filename and name not in files and not _is_import(frame):
            files.add(name)

    threading.settrace(note)
    sys.settrace(note)
    try:
        yield files
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    for kernel in set(_kernels_in_use()) - before:
        files |= {path.removeprefix(folder) for path in _files_below(kernel, set()) if path.startswith(folder)}


def _is_import(frame: FrameType | None) -> bool:
    """Whether a call is a part of an import: of the code of a module or a class, not of the job's own work."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(f"{PACKAGE}/"):
            return True
        frame = frame.f_back
    return False


def _kernels_in_use() -> Iterator[FunctionType]:
    """Each compiled function that has been compiled, or read from the cache, for some types."""
    for name, module in list(sys.modules.items()):
        if name.startswith("lidstone."):
            yield from (value.py_func for value in list(vars(module).values()) if getattr(value, "overloads", None))


def _files_below(kernel: FunctionType, seen: set[FunctionType]) -> set[str]:
    """The files of a kernel and of the kernels that it calls."""
    seen.add(kernel)
    named = (kernel.__globals__.get(name) for name in kernel.__code__.co_names)
    called = {getattr(value, "py_func", None) or getattr(value, "_defn", None) for value in named} - {None, *seen}
    return {kernel.__code__.co_filename}.union(*(_files_below(each, seen) for each in called))


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
    """Score a sentence as users of the kenlm module do; the first waits for what is compiled."""
    from lidstone import kenlm

    model = kenlm.Model(str(ROOT / "tests" / "golden" / "files" / "kenlm" / "trie.bin"))
    model.score("a b c")
    with visited() as files:
        model.score("a b c", bos=True, eos=True)
    return files


def sweep() -> set[str]:
    """Train a tiny grid."""
    from tests.tiny import lm_values, write_texts

    from lidstone.lab.recipe.recipe import make_recipe
    from lidstone.lab.sweep.sweep import Sweep
    from lidstone.lab.sweep.work import InProcess

    with tempfile.TemporaryDirectory() as folder:
        os.environ["LIDSTONE_CACHE"] = f"{folder}/cache"  # nothing is prepared or counted yet
        values = lm_values(write_texts(Path(folder)), max_steps=2, eval_every=1)
        grid = {"axes": {"regularizer.gamma": [0.1, 0.2]}, "seeds": [1]}
        with visited() as files:
            planned = Sweep(make_recipe({**values, "sweep": grid}), Path(folder) / "runs", threads=1)
            states = planned.run(InProcess())
        assert all(not state.failures() for state in states), states
    return files


def files_of(job: str) -> list[str]:
    """The files that a job visits in a process of its own; one before it compiles what is to be compiled."""
    command = [sys.executable, "-m", "tests.visits", job]
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return done.stdout.split()


JOBS: dict[str, Callable[[], set[str]]] = {"loss": loss, "score": score, "sweep": sweep}

if __name__ == "__main__":
    if sys.argv[1:]:
        print(*sorted(JOBS[sys.argv[1]]()), sep="\n")
    else:
        for job, limit in LIMITS.items():
            print(f"{job}: {len(files_of(job))} files (at most {limit})")
