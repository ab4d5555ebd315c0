"""What several threads do is what one does, to the last bit."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone import parallel
from lidstone.errors import TextError
from lidstone.ngram.adjusted import adjusted_counts
from lidstone.ngram.counts import count, count_text
from lidstone.ngram.smoothers.absolute_discounting import AbsoluteDiscounting
from lidstone.ngram.smoothers.base import FallbackUsed
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
from lidstone.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey
from lidstone.text import words
from lidstone.text.reader import Place, line_begin, read_chunks
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import read_words

MARK = "\ufeff"
TEXTS = st.text(alphabet=f"abé{MARK} \n", max_size=80)


def threaded(monkeypatch, threads):
    """As if the machine had so many cores, and nothing were too small for them."""
    monkeypatch.setattr(words, "cores", lambda: threads)
    monkeypatch.setattr(words, "PARALLEL_BYTES", 1)
    monkeypatch.setattr(parallel, "cores", lambda: threads)
    monkeypatch.setattr(parallel, "PARALLEL_ITEMS", 1)


@settings(deadline=None, max_examples=200)
@given(text=TEXTS, threads=st.integers(2, 5), blank=st.sampled_from(["skip", "count"]), fixed=st.booleans())
def test_text_is_read_as_by_one_thread(tmp_path_factory, text, threads, blank, fixed):
    path = tmp_path_factory.mktemp("read") / "text"
    path.write_text(text, encoding="utf-8")
    vocab = Vocabulary.from_words(["b", "ab"]) if fixed else None
    with pytest.MonkeyPatch.context() as monkeypatch:
        threaded(monkeypatch, threads)
        ids, found = read_words([path], vocab, blank=blank, chunk_bytes=8)
    expected, same = read_words(path, vocab, blank=blank, threads=1)
    assert ids.tolist() == expected.tolist() and found == same


@settings(deadline=None, max_examples=300)
@given(text=TEXTS, size=st.integers(1, 9), cuts=st.lists(st.integers(0, 80), max_size=3))
def test_ranges_of_a_file_have_the_chunks_of_the_whole(tmp_path_factory, text, size, cuts):
    path, data = tmp_path_factory.mktemp("range") / "text", text.encode()
    path.write_bytes(data)
    bounds = [0, *sorted(cut // size * size for cut in cuts if cut // size * size < len(data)), None]
    found = []
    for start, stop in itertools.pairwise(bounds):
        begin = Place(0, line_begin(path, start), data.count(b"\n", 0, start), data.count(b"\n", 0, start))
        found += read_chunks(path, begin, stop=stop, chunk_bytes=size)
    assert [replace(chunk, raw=0) for chunk in found] == [
        replace(chunk, raw=0) for chunk in read_chunks(path, chunk_bytes=size)
    ]
    assert b"".join(chunk.data for chunk in found) == data.removeprefix(MARK.encode())


def test_an_error_is_told_with_its_line(tmp_path, monkeypatch):
    threaded(monkeypatch, 3)
    (tmp_path / "text").write_bytes(b"a b\n" * 30 + b"a <s>\n")
    with pytest.raises(TextError, match=r"reserved word <s> \(.*line 31\)"):
        read_words(tmp_path / "text", chunk_bytes=8)


@pytest.mark.filterwarnings("ignore::lidstone.ngram.smoothers.base.FallbackUsed")
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_counting_and_fitting_give_the_same_bits(tmp_path, monkeypatch, order):
    generator = np.random.default_rng(0)
    lines = [" ".join(map(str, generator.integers(0, 12, generator.integers(1, 9)))) for _ in range(400)]
    (tmp_path / "text").write_text("\n".join(lines))
    smoother = ModifiedKneserNey(fallback=(0.5, 1.0, 1.5))
    one = smoother.fit(count_text(tmp_path / "text", order))
    threaded(monkeypatch, 3)
    counts = count_text(tmp_path / "text", order)
    several = smoother.fit(counts)
    assert one.signature == several.signature
    for name in ("base", "rows", "backoffs"):
        np.testing.assert_array_equal(getattr(several, name), getattr(one, name))
    np.testing.assert_array_equal(several.trie.suffixes, one.trie.suffixes)


@pytest.mark.filterwarnings("ignore::lidstone.ngram.smoothers.base.FallbackUsed")
@settings(deadline=None, max_examples=100)
@given(
    ids=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    order=st.integers(1, 5),
    threads=st.integers(1, 4),
    kind=st.sampled_from([ModifiedKneserNey((0.5, 1.0, 1.5)), KneserEssenNey(fallback=0.5), AbsoluteDiscounting(0.5)]),
)
def test_fitting_from_what_is_derived_gives_the_same_bits(ids, order, threads, kind):
    counts = count(np.array([*ids, 0]), Vocabulary(size=6, eos=0), order)
    with pytest.MonkeyPatch.context() as monkeypatch:
        threaded(monkeypatch, threads)
        table = kind.fit(counts)
    assert "derived" not in vars(counts)
    inner = counts.derived.adjusted[: counts.trie.num_histories]
    np.testing.assert_array_equal(adjusted_counts(counts.trie, counts.counts, threads), inner)
    expected = kind.fit(counts)
    assert table.signature == expected.signature
    for name in ("base", "rows", "backoffs"):
        np.testing.assert_array_equal(getattr(table, name), getattr(expected, name))


def test_a_signature_is_made_when_it_is_read():
    counts = count(np.array([1, 2, 0, 1, 0]), Vocabulary(size=3, eos=0), 2)
    with pytest.warns(FallbackUsed):
        table = ModifiedKneserNey((0.5, 1.0, 1.5)).fit(counts)
    assert "signature" not in vars(table) and "fingerprint" not in vars(counts)
    assert copy.deepcopy(table).signature["counts"] == table.signature["counts"] == counts.fingerprint
    assert table.signature is table.signature and vars(table)["make_signature"] is None
    with pytest.raises(AttributeError, match="no attribute 'name'"):
        _ = table.name
