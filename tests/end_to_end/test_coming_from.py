"""docs/coming-from.md: every call on its right-hand side runs, and every one on its left whose program is here.

Where both sides of a row give a model or a number, they are compared.
"""

from __future__ import annotations

import ast
import contextlib
import io
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lidstone as ld
from lidstone.cli.main import app
from lidstone.text.corpora import embedded_corpus, split_sentences

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[tuple[list[str], list[str]]]:
    """The calls in both cells of each row of a section's tables."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL).group(1)
    cells = re.findall(r"^\| (.*?) \| (.*?) \|$", section, re.MULTILINE)
    pairs = [(re.findall(r"`([^`]+)`", left), re.findall(r"`([^`]+)`", right)) for left, right in cells]
    return [pair for pair in pairs if pair[1]]


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """The texts that the page names, from the corpus that every Python has."""
    folder = tmp_path_factory.mktemp("texts")
    parts = split_sentences([sentence for sentence in embedded_corpus() if "<" not in sentence])
    for name, sentences in zip(("train", "dev", "test"), parts, strict=True):
        text = "".join(" ".join(sentence) + "\n" for sentence in sentences)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    words = sorted({word for sentence in parts[0] for word in sentence})
    chosen = sorted({*words[::2], "the", "value", "of"})
    (folder / "words.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def folder(texts, tmp_path, monkeypatch) -> Path:
    for file in texts.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(call: str) -> str:
    result = CliRunner().invoke(app, shlex.split(call)[1:])
    assert result.exit_code == 0, f"{call}\n{result.output}"
    return result.stdout


def shell(call: str) -> str | None:
    """Run a command of another toolkit; None if it is not here."""
    if not shutil.which(call.split()[0]):
        return None
    if call.startswith("lmplz") and " -S " not in call:
        call = call.replace("lmplz", "lmplz -S 200M")  # else it takes most of the machine's memory
    return subprocess.run(call, shell=True, capture_output=True, text=True, check=True).stdout


def python(code: str, names: dict[str, Any]) -> Any:
    """Run statements; the value of the last one, if it is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, code, "exec"), names)
        return eval(compile(ast.Expression(last.value), code, "eval"), names) if last else None


@pytest.mark.parametrize("toolkit", ["SRILM", "OpenGrm"])
def test_the_commands_run(folder, toolkit):
    calls = [call for _, right in rows(toolkit) for call in right]
    for call in calls:
        assert call.startswith("lidstone "), call
        command(call)
    assert len(calls) >= 12


def test_the_programs_of_kenlm(folder):
    found = 0
    for left, right in rows("KenLM"):
        if not right[-1].startswith("lidstone"):
            continue
        theirs = [shell(call) for call in left]
        ours = [command(call) for call in right]
        found += 1
        if theirs[-1] is not None and " -v summary " in left[0]:
            expected = float(re.search(r"Perplexity including OOVs:\s+([\d.e+]+)", theirs[-1]).group(1))
            assert float(re.search(r"perplexity ([\d.]+)", ours[-1]).group(1)) == pytest.approx(expected, rel=1e-3)
    assert found >= 9
    if shutil.which("lmplz"):
        for ours, theirs in (("model", "kenlm"), ("pruned", "kenlm-pruned")):
            one, other = (ld.read_arpa(f"{name}.arpa") for name in (ours, theirs))
            assert np.diff(one.trie.levels).tolist() == np.diff(other.trie.levels).tolist()


def test_the_kenlm_module(folder):
    pytest.importorskip("kenlm")
    for call in [call for _, right in rows("KenLM") for call in right if call.startswith("lidstone")][:2]:
        command(call)
    shutil.copy("model.arpa", "kenlm.arpa")
    names: dict[str, Any] = {"math": math}
    compared = 0
    for left, right in rows("KenLM"):
        if right[-1].startswith("lidstone"):
            continue
        theirs = python(left[0], names) if left and left != ["model.score"] else None
        ours = python(right[0], names)
        if isinstance(theirs, (int, float)) and isinstance(ours, (int, float, np.floating)):
            assert ours == pytest.approx(theirs, rel=1e-4), right
            compared += 1
    assert compared >= 4
    assert len(Path("scored.txt").read_text().splitlines()) == len(Path("test.txt").read_text().splitlines())
    assert names["log"] / math.log(10) == pytest.approx(
        python('model.BaseScore(state, "the", after)', {**names, "after": sys.modules["kenlm"].State()}), abs=1e-4
    )


def test_nltk(folder):
    pytest.importorskip("nltk")
    names: dict[str, Any] = {"math": math}
    smoothers = {"AddLambda": 1e-9, "WittenBell": None, "AbsoluteDiscounting": None, "KneserEssenNey": None}
    seen = set()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_closing_files())
        for left, right in rows("NLTK"):
            theirs, ours = python(left[0], names), python(right[0], names)
            kind = re.search(r"ld\.(\w+)\(.*\.fit", right[0])
            if kind:
                seen.add(kind.group(1))
                tolerance = smoothers[kind.group(1)]
                value = names["table"].prob([names["counts"].vocab.encode(["the"])])[0]
                assert value.sum() == pytest.approx(1)
                if tolerance:  # the only one whose definition does not involve the padding
                    size = names["counts"].vocab.size
                    expected = names["lm"].score("value", ["the"])
                    scale = _lidstone_scale(names, size)
                    assert value[names["counts"].vocab.index["value"]] * scale == pytest.approx(expected, rel=tolerance)
            elif "counts.of" in right[0]:
                assert theirs == ours > 0
    assert seen == set(smoothers)


def _lidstone_scale(names: dict[str, Any], size: int) -> float:
    """NLTK's vocabulary has <s> too, and <UNK>: (c(h) + lam |E|) / (c(h) + lam |V|) is what the sizes make."""
    lam = names["lm"].gamma
    total = names["lm"].counts[["the"]].N()
    return (total + lam * size) / (total + lam * len(names["lm"].vocab))


@contextlib.contextmanager
def _closing_files():
    """The page opens a file without closing it, as short examples do."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        import gc

        gc.collect()


def test_every_smoother_and_every_new_verb_is_on_the_page():
    for name in ("mix", "prune", "score", "sample", "convert", "merge", "count", "fit"):
        assert f"`lidstone {name} " in PAGE
    for name in (
        "katz",
        "witten-bell",
        "absolute-discounting",
        "kneser-essen-ney",
        "modified-kneser-ney",
        "add-lambda",
    ):
        assert f"--smoother {name}" in PAGE
