"""The committed runs: small, whole, and what docs/results.md says."""

import gzip
import json
import sys
from pathlib import Path

import pytest

from lidstone.files import with_checksum

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
    assert set(sentences) <= {
        "nll",
        "tokens",
        "hypotheses",
        "bleu_statistics",
        "ngram_nll",
        "mixture_nll",
    }  # nothing of the corpus


def test_the_page_says_what_the_runs_say(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "results"))
    import make
    import pages

    (tmp_path / "images").mkdir()
    for name, place in (("DOCS", tmp_path), ("PAGES", tmp_path), ("README", tmp_path / "README.md")):
        monkeypatch.setattr(pages, name, place)
    pages.README.write_text(f"a {make.MARKS[0]} old {make.MARKS[1]} b")
    make.main()
    for module in ("chapters", "make", "opening", "pages", "reading", "refined", "regimes", "sizes", "study"):
        sys.modules.pop(module)
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    begun, ended = make.MARKS
    table = pages.README.read_text().removeprefix("a ").removesuffix(" b")
    assert table.startswith(begun) and table.endswith(ended) and table in (ROOT / "README.md").read_text()
    for picture in tmp_path.glob("images/*.svg"):
        assert (ROOT / "docs" / "images" / picture.name).is_file()


def test_a_setting_under_two_names_counts_its_seeds_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "results"))
    import study

    source = next(file for file in RUNS if json.loads(file.read_text())["config"]["regularizer"]["gamma"])
    record = json.loads(source.read_text())
    both = {"gamma": None, "gamma_plus": record["config"]["regularizer"]["gamma"]}
    both["gamma_minus"] = both["gamma_plus"]
    for name, strengths in (("one", {}), ("two", both)):
        regularizer = {**record["config"]["regularizer"], "name": name, **strengths}
        twin = {**record, "id": name, "name": name, "config": {**record["config"], "regularizer": regularizer}}
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(with_checksum(twin)))
        (tmp_path / name / "sentences.json.gz").write_bytes((source.parent / "sentences.json.gz").read_bytes())
    (runs,) = study.Study.of("wikitext2", folder=str(tmp_path)).settings.values()
    sys.modules.pop("study")
    assert len(runs) == 1
