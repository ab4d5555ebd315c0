"""Adding count files: the counts of the texts together, bit for bit; and what cannot be added."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.errors import FileFormatError, InputError, VocabularyMismatch
from lidstone.ngram.counts import count
from lidstone.ngram.disk import write_counts
from lidstone.ngram.disk.add import add_files
from lidstone.ngram.formats.checked_tensors import read_arrays, write_arrays
from lidstone.ngram.formats.safetensors import load_counts, save
from lidstone.text.vocabulary import Vocabulary

VOCAB = Vocabulary(size=6, eos=0)
TEXTS = st.lists(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=8), min_size=2, max_size=4
)
MEMORY = 1 << 40


def saved(folder, name, text, order=3, vocab=VOCAB, **options):
    save(count(text, vocab, order, **options), folder / name)
    return folder / name


@settings(deadline=None, max_examples=60)
@given(texts=TEXTS, order=st.integers(1, 5), nodes=st.integers(60, 200))
def test_the_sum_is_the_count_of_all_texts(tmp_path_factory, texts, order, nodes):
    folder = tmp_path_factory.mktemp("add")
    paths = [saved(folder, str(number), text, order) for number, text in enumerate(texts)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(write_counts, "bucket_nodes", lambda *_: nodes)
        add_files(paths, folder / "sum", memory=MEMORY)
    together = saved(folder, "all", [sentence for text in texts for sentence in text], order)
    assert (folder / "sum").read_bytes() == together.read_bytes()
    assert not list(folder.glob(".*"))


def test_counts_that_do_not_fit_32_bits_together(tmp_path):
    paths = [saved(tmp_path, name, [[1, 2, 3]]) for name in "ab"]
    for path in paths:
        counts = load_counts(path)
        counts.counts[:] = np.where(counts.counts > 0, 2**31 - 1, 0)
        save(counts, path)
    add_files(paths, tmp_path / "sum", memory=MEMORY)
    total = load_counts(tmp_path / "sum")
    assert total.of([1, 2]) == total.of([1, 2, 3]) == total.of([1]) == 2**32 - 2


@pytest.mark.parametrize(
    ("second", "error", "message"),
    [
        ({"order": 2}, InputError, "b has order 2 and .*a has order 3"),
        ({"vocab": Vocabulary(size=7, eos=0)}, VocabularyMismatch, "different vocabularies, of 7 and 6 ids"),
        ({"thresholds": [0, 1]}, InputError, "b was counted with thresholds 0 1 1"),
    ],
)
def test_what_cannot_be_added(tmp_path, second, error, message):
    paths = [saved(tmp_path, "a", [[1, 2]]), saved(tmp_path, "b", [[1, 2]], **second)]
    with pytest.raises(error, match=message):
        add_files(paths, tmp_path / "sum", memory=MEMORY)
    assert not (tmp_path / "sum").exists()


def test_names_that_would_count_something_twice(tmp_path):
    paths = [saved(tmp_path, "a", [[1, 2]]), saved(tmp_path, "b", [[1, 2]])]
    with pytest.raises(InputError, match="a is named twice"):
        add_files([*paths, tmp_path / "." / "a"], tmp_path / "sum", memory=MEMORY)
    with pytest.raises(InputError, match="b is one of the files to add"):
        add_files(paths, paths[1], memory=MEMORY)
    with pytest.raises(InputError, match="one file is given"):
        add_files(paths[:1], tmp_path / "sum", memory=MEMORY)


def test_a_damaged_file_is_not_added(tmp_path):
    paths = [saved(tmp_path, "a", [[1, 2]]), saved(tmp_path, "b", [[1, 2]])]
    data = bytearray(paths[1].read_bytes())
    data[-3] ^= 4
    paths[1].write_bytes(data)
    with pytest.raises(FileFormatError, match=r"b cannot be used: its part .* is damaged"):
        add_files(paths, tmp_path / "sum", memory=MEMORY)


@pytest.mark.parametrize(
    ("name", "node", "value"), [("first", 8, 2**30), ("words", 8, 99), ("words", -1, 5), ("first", 9, 8)]
)
def test_a_file_with_good_checksums_that_is_no_trie(tmp_path, name, node, value):
    paths = [saved(tmp_path, "a", [[1, 2], [3]]), saved(tmp_path, "b", [[1, 2], [2, 3]])]
    arrays, metadata = read_arrays(paths[1])
    arrays[name][node] = value
    write_arrays(paths[1], arrays, metadata)
    with pytest.raises(FileFormatError, match="do not form a trie"):
        add_files(paths, tmp_path / "sum", memory=MEMORY)
    assert not (tmp_path / "sum").exists()
