"""`lidstone warm`: compile everything ahead, for images and homes that cannot be written to.

Numba compiles a function when it is first called, and keeps it on disk. So warming is to call: the verbs with a small
text, and what they do not reach from Python.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Option

from lidstone.cli.console import print_json, print_pairs
from lidstone.cli.inputs import JSON
from lidstone.errors import InputError

COMMANDS = """
count @text --order 3 --output @counts
count @text --order 2 --output @bigrams
count @large --order 3 --output @many
count @text --order 3 --output @disk --memory 1G
fit @counts --output @table.safetensors
fit @counts --output @model.arpa
fit @counts --smoother katz --output @katz.safetensors
fit @counts --smoother jelinek-mercer --held-out @text --output @mercer.safetensors
fit @disk --memory 1G --output @disk.safetensors
score @table.safetensors @text
score @table.safetensors @text --words
score @model.arpa @text
convert @model.arpa @model.bin
convert @model.arpa @model.trie -q 8 -b 8 -a 22
convert @table.safetensors @small.safetensors --bits 8 --pack
score @small.safetensors @text
score @model.bin @text
score @model.trie @text
filter @table.safetensors @text --keep 0.5 --output @kept
filter @model.bin @text --normalize ccnet --output @normalized
sample @table.safetensors
prune @table.safetensors --entropy 1e-7 --output @pruned.safetensors
mix @table.safetensors @katz.safetensors --output @mixed.safetensors
"""
"""What is run; `@` stands for a temporary folder."""


def warm(
    folder: Annotated[
        Path | None,
        Option("--folder", help="Where to keep compiled code; by default NUMBA_CACHE_DIR or numba's choice."),
    ] = None,
    cpu: Annotated[
        str | None, Option("--cpu", help="Compile for this processor of LLVM, such as x86-64-v3 or generic.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Compile everything ahead, so that no first call has to wait.

    Prints the environment variables with which the compiled code is found.
    """
    variables = {}
    if folder is not None:
        variables["NUMBA_CACHE_DIR"] = str(folder.absolute())
    if cpu is not None:
        check_processor(cpu)
        variables |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
    os.environ.update(variables)  # numba is imported later, and reads them
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        compile_all(Path(place))
    facts = {"seconds": round(time.perf_counter() - start, 1), **variables}
    print_json(facts) if as_json else print_pairs(facts)


def check_processor(name: str) -> None:
    """Refuse a processor that LLVM does not know, which would end the process; another one sees what LLVM prints."""
    code = "import llvmlite.binding as b, sys; b.initialize_native_target(); b.initialize_native_asmprinter(); "
    code += "b.Target.from_default_triple().create_target_machine(cpu=sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=False)
    if "not a recognized processor" in done.stderr:
        raise InputError(f"LLVM does not know the processor {name!r}", hint="such as generic or x86-64-v3")


def compile_all(folder: Path) -> None:
    """Run all commands, and what is reached from Python only."""
    from lidstone.cli.main import app

    words = random.Random(0).choices([f"w{i}" for i in range(200)], [1 / (i + 1) for i in range(200)], k=4000)
    text = "".join(f"{' '.join(words[i : i + 10])}\n" for i in range(0, 4000, 10))
    for name, times in (("text", 1), ("large", 400)):  # of large texts each core reads a part
        (folder / name).write_text(text * times, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for command in COMMANDS.strip().splitlines():
            app(command.replace("@", f"{folder}/").split(), standalone_mode=False)
        _call_library(folder)


def _call_library(folder: Path) -> None:
    from lidstone import kenlm
    from lidstone.ngram.formats.safetensors import load_counts, load_table

    for name in ("table.safetensors", "model.arpa", "model.bin", "model.trie"):
        model, state = kenlm.Model(folder / name), kenlm.State()
        model.score_lines(["w1 w2"] * 2)
        model.score("w1 w2"), list(model.full_scores("w1 w2")), model.BaseScore(state, "w1", state)
    table = load_table(folder / "table.safetensors")
    table.prob([(1,)]), table.logprob([1], [(2,)]), table.next_probs([-1])
    table.advance(-1, 1), table.advance([-1], [1])
    if find_spec("torch"):
        import torch

        from lidstone.loss.losses import SmoothedCrossEntropy

        counts = load_counts(folder / "counts")
        for loss in (
            SmoothedCrossEntropy(table, counts, gamma=0.1, empirical="token"),
            SmoothedCrossEntropy(table, counts, gamma=0.1, form="published", empirical="ngram"),
        ):
            logits = torch.zeros(1, 8, table.vocab.size, requires_grad=True)
            loss(logits, torch.randint(2, table.vocab.size, (1, 8))).total.backward()
