"""The committed runs: small, whole, and what docs/results.md says."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import results
from results import pages
from results.__main__ import main
from results.study import Study

from lidstone.errors import InputError
from lidstone.files import with_checksum
from lidstone.lab.report.packed import read_bytes, records_in
from lidstone.lab.report.runs import pack_runs, read_run

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "results").glob("*.runs"))


def test_there_are_runs():
    assert {study.stem for study in STUDIES} >= set(pages.TITLES)
    assert sum(len(records_in(study)) for study in STUDIES) > 400


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.stem)
def test_the_runs_of_a_study_are_whole_and_small(study):
    assert study.stat().st_size < 5_000_000
    for file in records_in(study):
        run = read_run(file)
        assert run.id == file.parent.name and run.status == "complete"
        sentences, test = run.sentences(), run.metrics["test"]
        assert sum(sentences["nll"]) == pytest.approx(test["nll"], rel=1e-5)
        assert sum(sentences["tokens"]) == test["tokens"]
        assert len(sentences["nll"]) == run.signature["test_sentences"]
        ours = {"nll", "tokens", "hypotheses", "bleu_statistics", "ngram_nll", "mixture_nll"}
        assert set(sentences) <= ours, "nothing of the corpus"


def test_packing_a_study_again_gives_the_same_bytes(tmp_path):
    study = min(STUDIES, key=lambda study: study.stat().st_size)
    pack_runs([study], tmp_path / study.name)
    assert (tmp_path / study.name).read_bytes() == study.read_bytes()


WRITTEN = ("README.md", *(f"docs/{name}.md" for name in pages.WRITTEN))
FIGURE = re.compile(r"(?<![\w-])\d+\.\d+(?!\w)(?!<!--)")


@pytest.mark.parametrize("page", WRITTEN)
def test_the_numbers_and_tables_of_a_page_are_those_of_the_runs(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert pages.filled(text) == text, "run `make results`"


def test_sentences_about_results_have_no_number_without_its_source():
    """A number with decimals in a sentence stands before a comment that names its runs; tables are filled in whole."""
    text = pages.TABLE.sub("", (ROOT / "docs" / "results.md").read_text(encoding="utf-8"))
    assert not [line for line in text.splitlines() if FIGURE.search(re.sub(r"`[^`]*`|\]\([^)]*\)", "", line))]


def test_a_number_that_the_runs_do_not_say_is_corrected():
    assert pages.filled("it has 99.99<!-- tatoeba: none -->") == "it has 25.39<!-- tatoeba: none -->"
    assert pages.filled("by 0.0<!-- tatoeba: none + n-gram below none --> %").startswith("by 12.0<!--")
    assert pages.filled("9.9<!-- all_captions: none -->") == "16.5<!-- all_captions: none -->"
    other = "n-gram of 4-grams of more captions"
    assert pages.filled(f"9.9<!-- fine_tuning: {other} -->") == f"14.0<!-- fine_tuning: {other} -->"
    assert pages.filled(f"9.9<!-- fine_tuning: none + {other} -->") == f"13.3<!-- fine_tuning: none + {other} -->"
    with pytest.raises(InputError, match="no runs of 'nobody'"):
        pages.filled("1<!-- tatoeba: nobody -->")


def test_the_pages_of_the_studies_are_those_of_the_runs(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    written = {page: tmp_path / Path(page).name for page in WRITTEN}
    for page, copy in written.items():
        copy.write_bytes((ROOT / page).read_bytes())
    for name, place in (("DOCS", tmp_path), ("PAGES", tmp_path), ("README", tmp_path / "README.md")):
        monkeypatch.setattr(results, name, place)
    assert main("pages") == 0
    for page in tmp_path.glob("results*.md"):
        assert page.read_text(encoding="utf-8") == (ROOT / "docs" / page.name).read_text(encoding="utf-8")
    for picture in tmp_path.glob("images/*.svg"):
        assert (ROOT / "docs" / "images" / picture.name).is_file()
    ladder = ElementTree.parse(tmp_path / "images" / "ladder.svg").getroot()
    dots = [found for found in ladder.iter() if found.tag.endswith("circle")]
    assert len(dots) == 5 + 1 + 5 + 5 + 5 + 5 + 5 + 5 + 5 + 5 + 5 + 5 + 5  # one per seed


def test_an_unknown_step_lists_the_steps(capsys):
    assert main("page") == 2
    told = capsys.readouterr().err
    assert all(
        f"python -m results {step} " in told for step in ("pages", "ngrams", "blimp", "rescore", "mixed", "again")
    )


def test_a_setting_under_two_names_counts_its_seeds_once(tmp_path):
    file = next(file for file in records_in(STUDIES[-1]) if read_run(file).config["regularizer"]["gamma"])
    record = json.loads(read_bytes(file))
    both = {"gamma": None, "gamma_plus": record["config"]["regularizer"]["gamma"]}
    both["gamma_minus"] = both["gamma_plus"]
    for name, strengths in (("one", {}), ("two", both)):
        regularizer = {**record["config"]["regularizer"], "name": name, **strengths}
        twin = {**record, "id": name, "name": name, "config": {**record["config"], "regularizer": regularizer}}
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(with_checksum(twin)))
    assert pack_runs([tmp_path], tmp_path / "twins.runs") == (2, 2)
    (runs,) = Study.of("wikitext2", runs=str(tmp_path / "twins")).settings.values()
    assert len(runs) == 1
