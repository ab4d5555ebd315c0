"""Saved tables and counts come back as they were; damage of any kind is noticed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.errors import FileFormatError, InputError, LidstoneError
from lidstone.ngram.counts import Counts, count
from lidstone.ngram.formats.checked_tensors import read_arrays, write_arrays
from lidstone.ngram.formats.safetensors import load, load_counts, load_table, save
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey
from lidstone.ngram.table import BackoffTable
from lidstone.text.vocabulary import Vocabulary

TOKENS = ("<unk>", "</s>", "a", "b c", "é\n", "\udcff", "")  # whatever a tokenizer may call a token
VOCAB = Vocabulary(size=7, eos=1, unk=0, unpredictable=(6,), tokens=TOKENS)
TEXT = [[2, 3, 4], [2, 3], [3, 4, 2], [2, 4, 5]]


def counts_of(order=3, thresholds=None, vocab=VOCAB):
    return count(TEXT, vocab, order, thresholds=thresholds)


def table_of(order=3):
    return KneserEssenNey(discount=0.75).fit(counts_of(order))


@pytest.fixture(scope="module")
def table_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "table.safetensors"
    save(table_of(), path)
    return path


@pytest.mark.parametrize("order", [1, 2, 5])
def test_a_table_comes_back(tmp_path, order):
    table, path = table_of(order), tmp_path / "t"
    table.save(path)
    loaded = load(path)
    assert isinstance(loaded, BackoffTable)
    assert loaded.vocab == table.vocab
    assert loaded.signature == table.signature
    histories = [(), (7,), (2,), (2, 3), (5, 5)]
    np.testing.assert_array_equal(loaded.prob(histories), table.prob(histories))
    assert loaded.perplexity(TEXT).value == table.perplexity(TEXT).value


@pytest.mark.parametrize("thresholds", [None, [0, 1, 1]])
def test_counts_come_back_and_fit_alike(tmp_path, thresholds):
    counts, path = counts_of(thresholds=thresholds), tmp_path / "c"
    save(counts, path)
    loaded = load(path)
    assert isinstance(loaded, Counts)
    assert loaded.thresholds == counts.thresholds
    assert loaded.fingerprint == counts.fingerprint
    fitted = [KneserEssenNey(discount=0.75).fit(each) for each in (counts, loaded)]
    np.testing.assert_array_equal(fitted[1].rows, fitted[0].rows)
    np.testing.assert_array_equal(fitted[1].backoffs, fitted[0].backoffs)


def test_a_vocabulary_without_strings_comes_back(tmp_path):
    save(counts_of(vocab=Vocabulary(size=7, eos=1)), tmp_path / "c")
    assert load(tmp_path / "c").vocab == Vocabulary(size=7, eos=1)


def test_settings_in_the_signature_survive(tmp_path):
    smoother = ModifiedKneserNey(fallback=(0.5, 1.0, 1.5))
    with pytest.warns(UserWarning, match="uses its fallback"):
        table = smoother.fit(counts_of())
    save(table, tmp_path / "t")
    assert load(tmp_path / "t").signature["parameters"]["fallback"] == [0.5, 1.0, 1.5]
    save(AddLambda(lam=np.float32(0.5)).fit(counts_of()), tmp_path / "t")
    assert load(tmp_path / "t").signature["parameters"]["lam"] == 0.5


def test_the_arrays_are_mapped_plain_and_writable_without_touching_the_file(table_file, tmp_path):
    path = shutil.copy(table_file, tmp_path / "t")
    before = Path(path).read_bytes()
    table = load_table(path)
    assert type(table.rows) is np.ndarray
    assert table.rows.flags.writeable and table.rows.flags.aligned
    table.rows[:] = 7
    assert Path(path).read_bytes() == before
    assert load_table(path).rows[0] == 0


def test_safetensors_itself_reads_the_file(table_file):
    from safetensors import safe_open

    with safe_open(table_file, framework="numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("rows"), table_of().rows)
        assert json.loads(file.metadata()["signature"])["smoother"] == "kneser-essen-ney"


def answers(path):
    """All that a loaded table says."""
    table = load_table(path)
    return table.prob([(), (7,), (2,), (2, 3)]).tobytes(), table.vocab, table.signature


@settings(deadline=None, max_examples=400)
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), body=st.booleans())
def test_every_flipped_bit_is_noticed_or_harmless(table_file, position, bit, body):
    content = bytearray(table_file.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    begin, end = (start, len(content)) if body else (0, start)
    content[begin + int(position * (end - begin))] ^= 1 << bit
    path = table_file.with_name("flipped")
    path.write_bytes(content)
    try:
        found = answers(path)
    except FileFormatError as error:
        assert error.hint
    else:
        assert found == answers(table_file)  # the spaces after the header


def test_no_cut_goes_unnoticed(table_file, tmp_path):
    content = table_file.read_bytes()
    for size in [*range(0, len(content), 13), len(content) - 1]:
        (tmp_path / "t").write_bytes(content[:size])
        with pytest.raises(FileFormatError) as caught:
            load(tmp_path / "t")
        assert caught.value.hint


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        b"\\data\\\nngram 1=3\n",
        b"\xff" * 200,
        b"\x1f\x8b" + bytes(50),
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"{}",
        (10**5).to_bytes(8, "little") + b"[" * 10**5,
        (19).to_bytes(8, "little") + b'{"__metadata__": 5}',
    ],
)
def test_foreign_files_are_refused(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(FileFormatError):
        load(tmp_path / "t")


def test_the_safetensors_file_of_another_program_is_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"weight": np.zeros(3)}, tmp_path / "t", metadata={"format": "pt"})
    with pytest.raises(FileFormatError, match="not written by lidstone"):
        load(tmp_path / "t")


def rewrite(path, *, metadata=None, **changed):
    """Change a file and make its checksums right again: what a forger would do."""
    arrays, found = read_arrays(path)
    keep = {name: text for name, text in found.items() if not name.endswith(("checksum", "checksums"))}
    write_arrays(path, {**arrays, **changed}, {**keep, **(metadata or {})})


def test_a_newer_version_is_named(table_file, tmp_path):
    path = shutil.copy(table_file, tmp_path / "t")
    rewrite(path, metadata={"version": "2"})
    with pytest.raises(FileFormatError, match="version 2 of the format; this lidstone reads version 1") as caught:
        load(path)
    assert "update lidstone" in caught.value.hint


def test_an_unknown_kind_is_refused(table_file, tmp_path):
    path = shutil.copy(table_file, tmp_path / "t")
    rewrite(path, metadata={"kind": "poem"})
    with pytest.raises(FileFormatError, match="'poem'"):
        load(path)


@pytest.mark.parametrize("name", ["words", "suffixes", "first", "levels", "base", "rows", "backoffs", "token_lengths"])
@pytest.mark.parametrize("value", [-2, 2**31 - 1])
def test_forged_arrays_that_point_outside_are_refused(table_file, tmp_path, name, value):
    path = shutil.copy(table_file, tmp_path / "t")
    forged = read_arrays(path)[0][name].copy()
    if forged.dtype.kind == "f":
        forged = forged[:-1]
    else:
        forged[len(forged) // 2] = value
    rewrite(path, **{name: forged})
    with pytest.raises(FileFormatError):
        load(path)


def test_without_verification_only_the_header_is_checked(table_file, tmp_path):
    content = bytearray(table_file.read_bytes())
    content[-1] ^= 0x01  # the last byte of the tokens' text, within a letter
    (tmp_path / "t").write_bytes(content)
    assert load(tmp_path / "t", verify=False).order == 3
    with pytest.raises(FileFormatError, match="'token_text' is damaged"):
        load(tmp_path / "t")


def test_a_table_is_not_counts_and_counts_are_no_table(table_file, tmp_path):
    save(counts_of(), tmp_path / "c")
    assert load_table(table_file).order == load_counts(tmp_path / "c").order == 3
    with pytest.raises(InputError, match="holds a table, not counts"):
        load_counts(table_file)
    with pytest.raises(InputError, match="holds counts, not a table"):
        load_table(tmp_path / "c")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nothing: No such file"):
        load(tmp_path / "nothing")
    with pytest.raises(InputError, match="Is a directory"):
        load(tmp_path)


def test_a_full_disk_leaves_no_file_and_keeps_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "t"
    save(table_of(2), path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LidstoneError, match="No space left on device"):
        save(table_of(3), path)
    assert [file.name for file in tmp_path.iterdir()] == ["t"]
    assert path.read_bytes() == before
