"""The tutorial notebook: its outputs are clean, its text says what they say, and its code still does what it claims."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = [
    re.sub(r"(?m)^( *)%pip .*", r"\1raise SystemExit", "".join(cell["source"]))  # not where lidstone is installed
    for cell in CELLS
    if cell["cell_type"] == "code"
]
PROSE = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
OUTPUTS = [output for cell in CELLS for output in cell.get("outputs", [])]
PRINTED = "".join("".join(output.get("text", [])) for output in OUTPUTS)


def test_every_cell_was_executed_in_order_and_printed_to_stdout_alone():
    assert [cell["execution_count"] for cell in CELLS if cell["cell_type"] == "code"] == list(range(1, len(CODE) + 1))
    assert {(output["output_type"], output.get("name")) for output in OUTPUTS} == {("stream", "stdout")}


def test_the_first_cell_installs_what_the_others_need():
    cell = next(cell for cell in CELLS if cell["cell_type"] == "code")
    assert cell["source"][-1].strip() == '%pip install -q "lidstone[train]"' and cell["outputs"] == []


def test_no_path_of_a_machine_is_in_it():
    assert not re.findall(r"/(?:home|root|tmp|usr|work|Users|var)/", NOTEBOOK.read_text(encoding="utf-8"))


def test_the_figures_of_the_text_are_those_of_the_outputs():
    figures = re.findall(r"\d+\.\d\d|\d+,\d{3}", PROSE)
    assert len(figures) >= 6
    assert [figure for figure in figures if figure not in PRINTED] == []


def test_the_diff_shows_the_lines_of_the_code():
    (diff,) = re.findall(r"```diff\n(.*?)```", PROSE, flags=re.DOTALL)
    code = "\n".join(CODE)
    assert [line for line in diff.splitlines() if line[1:] not in code] == []


@pytest.mark.slow
def test_the_mixtures_are_best_then_the_ngram_model_then_the_networks(tmp_path):
    """With two epochs, and the text of this Python: which network is better depends on both."""
    program = "\n\n".join(CODE)
    assert program.count("EPOCHS = 5") == 1
    script = tmp_path / "tutorial.py"
    script.write_text(program.replace("EPOCHS = 5", "EPOCHS = 2") + "\n\nimport json\n\nprint(json.dumps(results))\n")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for network in ("plain", "regularized"):
        assert found[f"{network} + n-gram"] < found["n-gram alone"] < found[network]
