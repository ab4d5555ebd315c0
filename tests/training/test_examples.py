"""The examples run as a reader would run them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(script: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), "--smoke", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def perplexities(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"perplexity (\S+)", text)]


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_begins_with_what_to_install(script: Path) -> None:
    about, commands, *_ = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n\n")
    install, run, *_ = commands.splitlines()
    assert about and re.match(r"pip install ('lidstone\[(torch|train)\]'|lidstone )", install)
    assert run.startswith(f"python examples/{script.name}")


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["datasets", "datatrove", "ray"])
def test_stages_of_pipelines_keep_the_same_texts(stage: str) -> None:
    pytest.importorskip(stage, reason=f"{stage} is not installed")
    kept = [line for line in run("corpus_filter.py", stage).splitlines() if line.startswith("kept: ")]
    assert kept == [
        "kept: The cat sat on the mat.",
        "kept: THE DOG SAT ON THE MAT!",
        "kept: A cat saw the dog — twice.",
    ]


@pytest.mark.slow
def test_pytorch_loop_trains_with_and_without_a_table() -> None:
    plain, smoothed = perplexities(run("pytorch_loop.py"))
    assert plain != smoothed
    assert 1 < plain < 900 and 1 < smoothed < 900  # the vocabulary is about that large: guessing would be worse


@pytest.mark.slow
def test_lightning_module_trains() -> None:
    pytest.importorskip("lightning", reason="Lightning is not installed")
    (found,) = perplexities(run("lightning_module.py"))
    assert 1 < found < 900


@pytest.mark.slow
def test_hugging_face_trainer_gives_the_same_model_in_three_ways() -> None:
    printed = [run("hf_trainer.py", *options) for options in ((), ("--hook",), ("--linear",))]
    found = [perplexities(text)[0] for text in printed]
    assert 1 < found[0] < 900
    assert found[1:] == pytest.approx([found[0]] * 2, rel=1e-2)
    for text in printed:
        assert all(f"'{part}':" in text for part in ("nll", "plus", "minus"))
