"""A small file of each format, kept: what one version wrote, all later ones read, with the same numbers.

`first/` was written by the first version of the format, whose identities and names of settings were others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lidstone as ld

FILES = Path(__file__).parent / "files"
LINES = [line.split() for line in (FILES / "text.txt").read_text(encoding="utf-8").splitlines()]
PERPLEXITY = 2.4394285421494457  # of text.txt under Kneser-Essen-Ney with D = 0.75, order 3


def perplexity(table):
    return table.perplexity([table.vocab.encode(line) for line in LINES]).value


def test_a_table():
    table = ld.load(FILES / "table.safetensors")
    assert isinstance(table, ld.BackoffTable)
    assert (table.order, table.vocab.size, table.vocab.unk) == (3, 11, 0)
    assert table.signature["parameters"] == {"discount": 0.75, "fallback": None}
    assert perplexity(table) == pytest.approx(PERPLEXITY, rel=1e-14)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("float32", 2.439428544711337),
        ("packed", PERPLEXITY),
        ("16-bits", 2.439425983553638),
        ("16-bits-packed", 2.439425983553638),
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_a_compact_table(name, value, verify):
    table = ld.load(FILES / f"table-{name}.safetensors", verify=verify)
    assert perplexity(table) == pytest.approx(value, rel=1e-14)
    assert table.prob([table.vocab.encode(["the"])]).sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_an_arpa_file(name):
    assert perplexity(ld.read_arpa(FILES / name)) == pytest.approx(PERPLEXITY, rel=1e-6)


@pytest.mark.parametrize("folder", [FILES, FILES / "first"])
def test_counts(folder):
    counts = ld.load(folder / "counts.safetensors")
    again = ld.count_text(FILES / "text.txt", 3)
    assert counts.fingerprint == again.fingerprint == "7090280d7ed338ee"
    assert counts.of(counts.vocab.encode(["on", "the"])) == 3
    assert perplexity(ld.KneserEssenNey(discount=0.75).fit(counts)) == pytest.approx(PERPLEXITY, rel=1e-14)


@pytest.mark.parametrize("folder", [FILES, FILES / "first"])
def test_counts_with_thresholds(folder):
    counts = ld.load(folder / "counts-thresholds.safetensors")
    assert counts.thresholds == (0, 0, 1)
    again = ld.count_text(FILES / "text.txt", 3, thresholds=[0, 0, 1])
    assert counts.fingerprint == again.fingerprint
    fitted = [ld.KneserEssenNey(discount=0.75).fit(each) for each in (counts, again)]
    np.testing.assert_array_equal(fitted[0].rows, fitted[1].rows)


def test_counts_without_strings():
    counts = ld.load(FILES / "counts-without-strings.safetensors")
    assert counts.vocab == ld.Vocabulary(size=5, eos=0, unpredictable=(4,))
    assert counts.of([counts.vocab.bos, 1]) == 1


def test_a_table_of_the_first_version_keeps_its_numbers_and_the_old_name_of_its_setting():
    table = ld.load(FILES / "first" / "table.safetensors")
    assert table.signature["parameters"]["d"] == 0.75
    again = ld.AbsoluteDiscounting(discount=0.75).fit(ld.load(FILES / "counts.safetensors"))
    np.testing.assert_array_equal(table.rows, again.rows)
    table.require(again.vocab)


def test_a_teacher():
    teacher = ld.load_teacher(FILES / "teacher")
    assert [len(taught.labels) for taught in teacher] == [7, 7, 7]
    assert teacher.signature["models"] == ["3ba063fe85ca1de7"]
    second = teacher[1]
    assert second.labels.tolist() == [7, 4, 7, 8, 13, 4, 2]
    assert second.ids[:2].tolist() == [[27, 32], [23, 27]]
    assert second.logprobs[0].tolist() == [-2.31787109375, -2.388671875]
