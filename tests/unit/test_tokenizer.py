"""Byte-pair encoding against subword-nmt."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.errors import FileFormatError, InputError, TextError
from lidstone.text.bpe import BPE, learn_bpe
from lidstone.text.corpora import embedded_corpus

LINES = [" ".join(sentence) for sentence in embedded_corpus()[:400]]
LEARNT = learn_bpe(LINES, 300)


def oracle(merges):
    from subword_nmt.apply_bpe import BPE as Oracle

    return Oracle(io.StringIO("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges)))


ORACLE = oracle(LEARNT.merges)


def test_learning_gives_the_merges_asked_for_and_says_nothing(capfd):
    assert len(LEARNT.merges) == 300
    learn_bpe(["low low lower lowest"], 2)
    assert capfd.readouterr() == ("", "")


def test_encoding_equals_subword_nmt():
    assert LEARNT.encode_lines(LINES) == [ORACLE.segment(line).split(" ") for line in LINES]


@settings(deadline=None)
@given(st.lists(st.text(alphabet="theroabn<>/w@ é𝄞\t\u00a0", max_size=30), max_size=5))
def test_on_letters_the_codes_have_never_seen_too(lines):
    assert LEARNT.encode_lines(lines) == [ORACLE.segment_tokens(line.strip("\r\n ").split(" ")) for line in lines]


def test_decoding_joins_the_pieces():
    encoded = LEARNT.encode_lines(LINES)
    assert any(piece.endswith("@@") for line in encoded for piece in line)
    assert [LEARNT.decode(line) for line in encoded] == LINES
    assert LEARNT.decode([]) == ""


def test_overlapping_pairs_merge_from_the_left():
    # x x x x</w>: the first two join, then nothing does, for the last x ends the word
    assert BPE((("x", "x"),)).encode_lines(["xxxx"]) == [["xx@@", "x@@", "x"]]


def test_codes_files_go_both_ways(tmp_path):
    LEARNT.save(tmp_path / "codes")
    assert BPE.load(tmp_path / "codes") == LEARNT
    from subword_nmt.apply_bpe import BPE as Oracle

    with (tmp_path / "codes").open(encoding="utf-8") as codes:
        assert Oracle(codes).segment(LINES[0]).split(" ") == LEARNT.encode_lines(LINES[:1])[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "not a BPE codes file"), ("a b\n", "version 0.2"), ("#version: 0.2\na b\na b c\n", "line 3")],
)
def test_foreign_codes_files_are_refused(tmp_path, content, message):
    (tmp_path / "codes").write_text(content)
    with pytest.raises(FileFormatError, match=message):
        BPE.load(tmp_path / "codes")


def test_learning_needs_words_and_merges():
    with pytest.raises(TextError, match="two letters"):
        learn_bpe(["a b", ""], 10)
    with pytest.raises(InputError, match="0 merges"):
        learn_bpe(["ab"], 0)


def test_learning_stops_where_no_pair_recurs():
    assert learn_bpe(["ab ab cd"], 50).merges == (("a", "b</w>"),)
