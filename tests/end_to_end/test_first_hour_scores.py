"""A new user's first hour, as one who knows KenLM: from a text to the score of every line of a file.

Every command is a process, as in a shell; the kenlm module, where it is installed, judges the numbers.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import lidstone as ld
from lidstone.text.corpora import embedded_corpus, split_sentences

pytestmark = pytest.mark.slow  # a dozen processes
ODD = ["", "   ", "the value of the zyzzyva", "\tthe  value\tis ", "\u00e9t\u00e9 \u4e2d\u6587 the", ""]


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in a folder, with this very lidstone."""
    line = re.sub(r"\blidstone\b", f"{shlex.quote(sys.executable)} -m lidstone", command)
    environment = {**os.environ, "PYTHONUTF8": "1"}
    return subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model made on the command line, and a file of lines as they come: empty, blank, with words nobody knows."""
    folder = tmp_path_factory.mktemp("first-hour")
    train, _, test = split_sentences([line for line in embedded_corpus() if "<" not in line])
    (folder / "train.txt").write_text("".join(" ".join(line) + "\n" for line in train), encoding="utf-8")
    lines = [*ODD, *(" ".join(line) for line in test[:200]), *ODD]
    (folder / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    done = shell("lidstone count train.txt --order 3 --output c && lidstone fit c --output model.arpa", folder)
    assert done.returncode == 0, done.stderr
    return folder


def lines_of(folder: Path) -> list[str]:
    return (folder / "lines.txt").read_text(encoding="utf-8").split("\n")


def test_one_record_per_line_with_the_scores_of_kenlm(folder):
    done = shell("lidstone score model.arpa lines.txt --sentences --blank count", folder)
    assert done.returncode == 0, done.stderr
    lines = lines_of(folder)[:-1]  # nothing stands after the last line feed
    records = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(records) == len(lines), "stdout holds records alone, one for every line, also an empty one"
    assert "perplexity" in done.stderr and "lidstone:" in done.stderr, "the summary and its signature are talk"
    kenlm = pytest.importorskip("kenlm")
    model = kenlm.Model(str(folder / "model.arpa"))
    for line, (log10, tokens, oov, perplexity) in zip(lines, records, strict=True):
        assert float(log10) == pytest.approx(model.score(line), abs=2e-4)
        assert int(tokens) == len(line.split()) + 1
        assert int(oov) == sum(unknown for _, _, unknown in model.full_scores(line))
        assert float(perplexity) == pytest.approx(10 ** (-model.score(line) / int(tokens)), rel=1e-4)


def test_the_same_from_a_pipe_as_json_from_python_and_through_the_filter(folder):
    """Four ways to the same numbers."""
    plain = shell("lidstone score model.arpa lines.txt --sentences --blank count", folder).stdout
    piped = shell("lidstone score model.arpa - --sentences --blank count < lines.txt", folder).stdout
    assert piped == plain
    facts = json.loads(shell("lidstone score model.arpa lines.txt --sentences --blank count --json", folder).stdout)
    values = [float(line.split("\t")[3]) for line in plain.splitlines()]
    assert [row["perplexity"] for row in facts["sentences"]] == pytest.approx(values, rel=1e-4)
    ld.filter_documents(ld.read_arpa(folder / "model.arpa"), folder / "lines.txt", folder / "scored")
    scored = (folder / "scored").read_text(encoding="utf-8").split("\n")[:-1]
    assert [float(line.split("\t", 1)[0]) for line in scored] == pytest.approx(values, rel=1e-4)
    total = sum(math.log(value) * row["tokens"] for value, row in zip(values, facts["sentences"], strict=True))
    assert facts["perplexity"] == pytest.approx(math.exp(total / facts["tokens"]), rel=1e-4)


def test_skipped_blank_lines_keep_their_place_and_say_nothing(folder):
    done = shell("lidstone score model.arpa lines.txt --sentences", folder)
    records = [line.split("\t") for line in done.stdout.splitlines()]
    lines = lines_of(folder)[:-1]
    assert [record == ["0.000000", "0", "0", "-"] for record in records] == [not line.split() for line in lines]
