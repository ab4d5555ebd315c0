"""The committed runs: small, whole, and what docs/results.md says."""

import gzip
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "results").glob("*/*/run.json"))


def test_there_are_runs():
    assert len(RUNS) > 20


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.parent.name)
def test_a_run_is_whole_and_small(file):
    record = json.loads(file.read_text())
    assert record["id"] == file.parent.name and record["status"] == "complete"
    assert {path.name for path in file.parent.iterdir()} - {"model"} == {"run.json", "sentences.json.gz"}
    sentences = json.loads(gzip.decompress((file.parent / "sentences.json.gz").read_bytes()))
    test = record["metrics"]["test"]
    assert sum(sentences["nll"]) == pytest.approx(test["nll"], rel=1e-5)
    assert sum(sentences["tokens"]) == test["tokens"]
    assert len(sentences["nll"]) == record["signature"]["test_sentences"]
    assert set(sentences) <= {"nll", "tokens", "hypotheses", "bleu_statistics"}  # nothing of the corpus


def test_the_page_says_what_the_runs_say(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "results"))
    import make

    (tmp_path / "images").mkdir()
    monkeypatch.setattr(make, "DOCS", tmp_path)
    monkeypatch.setattr(make, "PAGES", tmp_path)
    monkeypatch.setattr(make, "README", tmp_path / "README.md")
    make.README.write_text(f"a {make.MARKS[0]} old {make.MARKS[1]} b")
    make.main()
    for module in ("make", "reading", "study"):
        sys.modules.pop(module)
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    begun, ended = make.MARKS
    table = make.README.read_text().removeprefix("a ").removesuffix(" b")
    assert table.startswith(begun) and table.endswith(ended) and table in (ROOT / "README.md").read_text()
    for picture in tmp_path.glob("images/*.svg"):
        assert (ROOT / "docs" / "images" / picture.name).is_file()
