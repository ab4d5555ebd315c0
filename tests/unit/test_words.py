"""Text to ids: the compiled reader against its plain twin, and the words it must refuse."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lidstone.errors import InputError, TextError
from lidstone.text.vocabulary import Vocabulary
from lidstone.text.words import read_batches, read_words, slow_read_words

# few letters, so that words recur; separators, other spaces and controls; 2 to 4 bytes of UTF-8; long words
PARTS = [
    *"ab \n\t\r",
    "<unk>",
    "<s>",
    "</s>",
    "\x0b",
    "\x0c",
    "\x01",
    "\u00a0",
    "\u2003",
    "é",
    "𝄞",
    "abcdefgh",
    "abcdefghi",
    "a" * 300,
]
texts = st.lists(st.sampled_from(PARTS), max_size=60).map("".join)


def read(text, vocab=None, **options):
    content = text if isinstance(text, bytes) else text.encode()
    ids, vocab = read_words(io.BytesIO(content), vocab, **options)
    return ids.tolist(), vocab


def outcome(reader, text, *vocab, **options):
    """The ids and the vocabulary, or the error."""
    try:
        ids, found = reader(io.BytesIO(text.encode()), *vocab, **options)
    except TextError as error:
        return str(error)
    return ids.tolist(), found


@settings(deadline=None)  # the first call compiles
@given(texts, st.integers(1, 40), st.sampled_from(["skip", "count"]))
def test_the_reader_equals_its_plain_twin(text, size, blank):
    found = outcome(read_words, text, chunk_bytes=size, blank=blank)
    assert found == outcome(slow_read_words, text, blank=blank)


@settings(deadline=None)  # the first call compiles
@given(texts, texts, st.integers(1, 40), st.sampled_from(["skip", "count"]), st.booleans())
def test_with_a_given_vocabulary_too(known, text, size, blank, unk):
    _, vocab = read(known.replace("<s>", "").replace("</s>", ""))
    if not unk:
        vocab = Vocabulary(vocab.size, vocab.eos, tokens=vocab.tokens)
    found = outcome(read_words, text, vocab, chunk_bytes=size, blank=blank)
    assert found == outcome(slow_read_words, text, vocab, blank=blank)


@settings(deadline=None)
@given(texts.map(lambda text: text.replace("<s>", "").replace("</s>", "")), st.integers(1, 40))
def test_batches_hold_every_line(text, size):
    vocab = Vocabulary.from_words(["a", "é"])
    batches = list(read_batches(io.BytesIO(text.encode()), vocab, chunk_bytes=size))
    assert b"".join(batch.text for batch in batches) == text.encode()
    whole, _ = read_words(io.BytesIO(text.encode()), vocab, blank="count")
    assert [token for batch in batches for token in batch.ids.tolist()] == whole.tolist()
    assert int((whole == vocab.eos).sum()) == len(text.removesuffix("\n").split("\n")) * bool(text)


def test_a_word_that_is_nothing_but_a_form_feed_is_named():
    with pytest.raises(TextError, match=r"'\\x0c' is not in the vocabulary \(<stream>, line 2\)"):
        read("a\n\x0c\n", Vocabulary(2, eos=0, tokens=("</s>", "a")))


def test_blank_lines_are_skipped_or_counted():
    vocab = Vocabulary.from_words(["a"])
    assert read("\na\n \n\n", vocab)[0] == [2, 1]
    assert read("\na\n \n\n", vocab, blank="count")[0] == [1, 2, 1, 1, 1]
    with pytest.raises(InputError, match="skip or count"):
        read("a", blank="keep")


def test_what_is_no_text_is_named(tmp_path):
    import lidstone as ld

    counts = ld.count([[2, 3]], Vocabulary.from_words(["a", "b"]), order=2)
    table = ld.AddLambda().fit(counts)
    table.save(tmp_path / "table")
    ld.write_arpa(table, tmp_path / "m.arpa.gz")
    for name, what in (("table", "a table, not text"), ("m.arpa.gz", "an ARPA file, not text")):
        with pytest.raises(TextError, match=what):
            read_words(tmp_path / name)
    (tmp_path / "k").write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(100))
    with pytest.raises(TextError, match="a KenLM binary, not text"):
        read_words(tmp_path / "k")


def test_many_words_outgrow_the_table_and_the_buffers():
    words = [f"w{number * 7919 % 50_021}-{'x' * (number % 13)}" for number in range(50_000)]
    ids, vocab = read(" ".join(words) + "\n" + " ".join(reversed(words)), chunk_bytes=1 << 16)
    there = [vocab.tokens[word] for word in ids[:50_000]]
    back = [vocab.tokens[word] for word in ids[50_001:-1]]
    assert there == words and back == words[::-1]
    assert ids[50_000] == ids[-1] == vocab.eos


@pytest.mark.parametrize("text", ["", "\n\n\n", " \t\r\n \n"])
def test_text_without_words_is_an_empty_stream(text):
    ids, vocab = read(text)
    assert ids == [] and vocab.tokens == ("<unk>", "</s>")


def test_one_word_without_a_line_end_is_a_sentence():
    ids, vocab = read("word")
    assert ids == [2, 1] and vocab.tokens[2] == "word"


def test_separators_are_those_of_kenlm():
    # a no-break space and a vertical tab belong to words; tab and carriage return do not
    _, vocab = read("a\tb\r\nc\u00a0d e\x0bf\n")
    assert vocab.tokens[2:] == ("a", "b", "c\u00a0d", "e\x0bf")


def test_several_texts_share_one_vocabulary(tmp_path):
    (tmp_path / "1.txt").write_text("a b")  # no line end: the sentence ends with the file
    (tmp_path / "2.txt").write_text("b c\n")
    ids, vocab = read_words([tmp_path / "1.txt", tmp_path / "2.txt"])
    assert ids.tolist() == [2, 3, 1, 3, 4, 1] and ids.dtype == np.int32 and vocab.size == 5
    with pytest.raises(InputError, match="no text"):
        read_words([])


@pytest.mark.parametrize("word", ["<s>", "</s>"])
@pytest.mark.parametrize("vocab", [None, Vocabulary.from_words(["a"])])
@pytest.mark.parametrize("size", [2, 1 << 20])
def test_reserved_words_are_refused_with_their_line(word, vocab, size):
    with pytest.raises(TextError, match=rf"reserved word {word} \(<stream>, line 3\)") as caught:
        read(f"a\n\na {word} b\n", vocab, chunk_bytes=size)
    assert word in caught.value.hint


def test_unpredictable_words_are_refused():
    vocab = Vocabulary(4, eos=2, unpredictable=(0,), unk=1, tokens=("<pad>", "<unk>", "[end]", "a"))
    assert read("a b <unk>", vocab)[0] == [3, 1, 1, 2]
    for word in ("<pad>", "[end]", "</s>"):
        with pytest.raises(TextError, match="reserved"):
            read(word, vocab)


def test_unknown_words_need_an_unknown_id():
    vocab = Vocabulary(2, eos=0, tokens=("</s>", "a"))
    assert read("a a", vocab)[0] == [1, 1, 0]
    with pytest.raises(TextError, match=r"'b' is not in the vocabulary \(<stream>, line 2\)"):
        read("a\nb", vocab)


def test_tokens_that_no_word_can_be_do_not_disturb_the_ids():
    vocab = Vocabulary(6, eos=0, unk=1, tokens=("</s>", "<unk>", "a\0", "", "b c", "a"))
    assert read("a b c", vocab)[0] == [5, 1, 1, 0]


def test_bad_bytes_are_reported_by_line():
    with pytest.raises(TextError, match="line 2"):
        read(b"a\n\xff\n", chunk_bytes=2)
    with pytest.raises(TextError, match="NUL byte in line 2"):
        read(b"a\nb\0c\n", chunk_bytes=2)


def test_wikitext(data_dir):
    ids, vocab = read_words(data_dir / "wikitext-2" / "wiki.train.tokens.xz")
    # 2,051,910 words in 23,767 non-empty lines; 33,278 types with <unk> and the sentence end
    assert len(ids) == 2_051_910 + 23_767 and int((ids == vocab.eos).sum()) == 23_767
    assert vocab.size == 33_278
