"""Byte-pair encoding against subword-nmt."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.errors import FileFormatError, InputError, TextError
from lidstone.text.corpora import embedded_corpus
from lidstone.text.export import to_transformers
from lidstone.text.tokenizer import BPE, learn_bpe, subword_vocabulary
from lidstone.text.vocabulary import Vocabulary

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


def test_the_vocabulary_of_encoded_text():
    vocab = subword_vocabulary([["b@@", "a"], ["a", "c"]])
    assert vocab.tokens == ("<pad>", "<unk>", "</s>", "a", "b@@", "c")
    assert (vocab.eos, vocab.unk, vocab.unpredictable) == (2, 1, (0,))
    assert subword_vocabulary([["a", "a", "b"]], min_count=2).tokens[3:] == ("a",)
    with pytest.raises(InputError, match="lack </s>"):
        subword_vocabulary([["a"]], specials=("<pad>",))


def test_a_hugging_face_tokenizer_gives_the_same_ids_and_the_text_back(tmp_path):
    from transformers import AutoTokenizer

    encoded = LEARNT.encode_lines(LINES)
    vocab = subword_vocabulary(encoded, closed_under=LEARNT)
    to_transformers(LEARNT, vocab).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)

    unseen = [*LINES, "the 𝄞 theory"]
    ids = tokenizer(unseen)["input_ids"]
    expected = [vocab.encode(line).tolist() for line in LEARNT.encode_lines(unseen)]
    assert ids == [[*line, vocab.eos] for line in expected]
    assert tokenizer.batch_decode(ids[:-1], skip_special_tokens=True) == LINES
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    again = Vocabulary.from_tokenizer(tokenizer)
    assert (again.size, again.eos, again.unk, again.unpredictable) == (vocab.size, 2, 1, (0,))


def test_the_hugging_face_tokenizer_needs_the_pieces_that_merges_pass_through():
    bpe = BPE((("a", "b"), ("ab", "c</w>")))
    with pytest.raises(InputError, match="lacks") as caught:
        to_transformers(bpe, subword_vocabulary(bpe.encode_lines(["abc"])))
    assert "closed_under" in caught.value.hint
