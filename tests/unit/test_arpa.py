r"""ARPA text in its dialects, there and back, and what is said about broken files."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma

import numpy as np
import pytest
import zstandard
from tests.smoothing_cases import fitted

from lidstone.errors import FileFormatError, InputError, TextError, VocabularyMismatch
from lidstone.ngram.closure import build, close
from lidstone.ngram.counts import count
from lidstone.ngram.formats.arpa import parents_of, read_arpa, words_of, write_arpa
from lidstone.ngram.formats.arpa_reader import parse
from lidstone.ngram.formats.safetensors import load
from lidstone.ngram.smoothers.add_lambda import AddLambda
from lidstone.ngram.smoothers.kneser_essen_ney import KneserEssenNey
from lidstone.text.interning import index_words
from lidstone.text.tokens import PADDING
from lidstone.text.vocabulary import Vocabulary

MODEL = r"""
\data\
ngram 1=5
ngram 2=4
ngram 3=2

\1-grams:
-1.0	<unk>
-99	<s>	-0.3
-0.6	</s>
-0.5	tea	-0.2
-0.9	milk	-0.4

\2-grams:
-0.4	<s> tea	-0.1
-0.7	tea milk	0.05
-0.8	tea </s>
-0.25	milk </s>

\3-grams:
-0.15	<s> tea milk
-0.05	tea milk </s>

\end\
"""


def read(text, vocab=None):
    return read_arpa(io.BytesIO(text.encode() if isinstance(text, str) else text), vocab)


def log10(table, words):
    """log10 p of the last word after those before it."""
    *before, word = [table.vocab.bos if w == "<s>" else int(table.vocab.encode([w])[0]) for w in words.split()]
    return float(table.logprob([word], [before])[0] / np.log(10))


# Each worked out by hand from MODEL: listed n-grams as they stand, others as backoff + shorter history.
EXPECTED = {
    "tea": -0.5,
    "<s> tea": -0.4,
    "<s> tea milk": -0.15,
    "tea milk": -0.7,
    "tea milk </s>": -0.05,
    "milk milk": -0.4 - 0.9,
    "<s> milk": -0.3 - 0.9,
    "<s> tea </s>": -0.1 - 0.8,  # bow(<s> tea) + p(</s>|tea)
    "<s> tea tea": -0.1 - 0.2 - 0.5,  # bow(<s> tea) + bow(tea) + p(tea)
    "tea milk tea": 0.05 - 0.4 - 0.5,  # a backoff above one
    "tea coffee": -0.2 - 1.0,  # an unknown word is <unk>
    "coffee tea": -0.5,  # and has no backoff here
    "milk tea milk": -0.7,  # "milk tea" is unknown: the history is "tea"
}

DIALECTS = {
    "kenlm": MODEL.lstrip(),
    "kenlm, <s> at 0": MODEL.replace("-99\t<s>", "0\t<s>"),
    "srilm, with a blank first line": MODEL,
    "opengrm, spaces": MODEL.replace("\t", " "),
    "windows": MODEL.replace("\n", "\r\n"),
    "comments first": "made by hand\n# on a Sunday\n" + MODEL,
    "padded": MODEL.replace("\t", "  \t ").replace("\n", "  \n  "),
    "exponents": MODEL.replace("-0.05\t", "-5e-2\t").replace("-0.9\t", "-9.0E-01\t").replace("\t0.05", "\t+.05"),
    "no blank lines": "\n".join(line for line in MODEL.split("\n") if line),
    "blank lines everywhere": MODEL.replace("\n", "\n\n"),
    "no line end at the end": MODEL.rstrip(),
    "text after the end": MODEL + "\nngram of nothing\n\\data\\\n",
    "spaced header": MODEL.replace("ngram 1=5", "ngram  1 = 5"),
    "<UNK> in capitals": MODEL.replace("<unk>", "<UNK>"),
}


@pytest.mark.parametrize("text", DIALECTS.values(), ids=DIALECTS.keys())
def test_every_dialect_says_the_same(text):
    table = read(text)
    assert table.vocab.tokens == ("<unk>", "</s>", "tea", "milk")
    for words, value in EXPECTED.items():
        assert log10(table, words) == pytest.approx(value, abs=1e-12), words


@pytest.mark.parametrize("order", [2, 3])
def test_full_rows_say_the_same_as_single_words(order):
    table = read(MODEL)
    for history in itertools.product(range(5), repeat=order - 1):
        row = table.prob([history])[0]
        single = np.exp(table.logprob(np.arange(4), [history] * 4))
        np.testing.assert_allclose(row, single, rtol=1e-12)


COMPRESSORS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress, "": bytes}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_files_are_read(tmp_path, suffix):
    path = tmp_path / f"model.arpa{suffix}"
    path.write_bytes(COMPRESSORS[suffix](MODEL.encode()))
    assert log10(read_arpa(path), "tea milk") == pytest.approx(-0.7)
    assert read_arpa(path).signature["parameters"]["file"] == path.name


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_what_is_written_compressed_comes_back(tmp_path, suffix):
    table, path = read(MODEL), tmp_path / f"model.arpa{suffix}"
    write_arpa(table, path)
    magic = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7z", ".zst": b"\x28\xb5", "": b"\\data\\"}
    assert path.read_bytes().startswith(magic[suffix])
    assert list(tmp_path.iterdir()) == [path]
    again = read_arpa(path)
    assert again.vocab == table.vocab
    np.testing.assert_allclose(again.rows, table.rows, atol=1e-7)
    np.testing.assert_allclose(again.backoffs, table.backoffs, rtol=1e-6)


def test_writing_a_read_model_gives_the_same_text(tmp_path):
    write_arpa(read(MODEL), tmp_path / "one")
    write_arpa(read_arpa(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_standard_output(capsysbinary):
    write_arpa(read(MODEL), "-")
    text = capsysbinary.readouterr().out
    assert read(text).order == 3


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("smoother", [KneserEssenNey(discount=0.75), AddLambda(lam=0.1)])
def test_tables_come_back_from_arpa(tmp_path, smoother, order):
    vocab = Vocabulary(7, eos=1, unk=0, unpredictable=(2,), tokens=("<unk>", "</s>", "<pad>", "a", "b", "c", "d"))
    table = smoother.fit(count([[3, 4, 5], [3, 4], [4, 6, 3], [3]], vocab, order))
    write_arpa(table, tmp_path / "t")
    again = read_arpa(tmp_path / "t", vocab)
    histories = [(), (7,), (3,), (7, 3), (3, 4, 5), (6, 6)]
    np.testing.assert_allclose(again.prob(histories), table.prob(histories), atol=1e-7)
    assert "<pad>" not in (tmp_path / "t").read_text()


# --- gaps: pruned models lack prefixes or suffixes


PRUNED = r"""\data\
ngram 1=5
ngram 2=1
ngram 3=2
\1-grams:
-1 <unk>
-99 <s> -0.3
-0.6 </s>
-0.5 a -0.2
-0.9 b -0.4
\2-grams:
-0.7 b a -0.1
\3-grams:
-0.3 a b a
-0.2 <s> b b
\end\
"""


def test_missing_prefixes_and_suffixes_change_nothing():
    table = read(PRUNED)
    # a b, b b and <s> b are inserted
    assert {table.trie.ngram(node) for node in range(5, table.trie.levels[2])} == {(3, 2), (2, 3), (3, 3), (4, 3)}
    assert log10(table, "a b a") == pytest.approx(-0.3)
    assert log10(table, "<s> b b") == pytest.approx(-0.2)
    assert log10(table, "a b") == pytest.approx(-0.2 - 0.9)
    assert log10(table, "a b </s>") == pytest.approx(-0.4 - 0.6)  # "a b" has no backoff of its own
    assert log10(table, "<s> b a") == pytest.approx(-0.7)
    assert log10(table, "b a </s>") == pytest.approx(-0.1 - 0.2 - 0.6)


def test_closing_random_sets_gives_a_trie_of_all_their_parts():
    random = np.random.default_rng(1)
    given = [np.unique(random.integers(0, 4, (9, order)), axis=0).astype(np.int32) for order in (2, 3, 4)]
    levels = close([random.permutation(ngrams) for ngrams in given])
    trie, nodes = build(levels, vocab_size=3)
    whole = [tuple(ngram) for ngrams in given for ngram in ngrams.tolist()]
    parts = {gram[i:j] for gram in whole for i in range(len(gram)) for j in range(i + 1, len(gram) + 1)}
    assert {trie.ngram(node) for node in range(trie.size)} == parts | {(word,) for word in range(4)}
    for level, at in zip(levels, nodes[1:], strict=True):
        assert [trie.ngram(node) for node in at] == [tuple(ngram) for ngram in level.ngrams.tolist()]
    for node in range(4, trie.size):
        assert trie.find(trie.ngram(node)) == node
        assert trie.ngram(trie.suffixes[node]) == trie.ngram(node)[1:]


# --- vocabularies


def test_a_missing_unk_gets_a_tiny_probability():
    table = read(MODEL.replace("-1.0\t<unk>\n", "").replace("1=5", "1=4"))
    assert log10(table, "coffee") == pytest.approx(-100)


def test_a_word_may_be_spelt_like_the_unknown_word_in_capitals(tmp_path):
    vocab = Vocabulary.from_words(["tea", "<UNK>"])
    table = KneserEssenNey(discount=0.5).fit(count([[2, 3], [3]], vocab, 2))
    write_arpa(table, tmp_path / "t")
    again = read_arpa(tmp_path / "t")
    assert again.vocab == vocab
    np.testing.assert_allclose(again.prob([(2,), ()]), table.prob([(2,), ()]), atol=1e-7)


def test_a_given_vocabulary_decides_the_ids():
    vocab = Vocabulary(6, eos=0, unk=5, tokens=("<|end|>", "milk", "tea", "sugar", "more", "<oov>"))
    table = read(MODEL, vocab)
    assert table.vocab is vocab
    for words, value in EXPECTED.items():
        assert log10(table, words.replace("</s>", "<|end|>")) == pytest.approx(value, abs=1e-12)
    assert table.prob([()])[0, 3:5].tolist() == [0, 0]  # sugar and more: not in the file


def test_words_that_the_vocabulary_lacks_are_named():
    with pytest.raises(VocabularyMismatch, match="1 words of the ARPA file are not in the vocabulary, such as milk"):
        read(MODEL, Vocabulary.from_words(["tea"]))


def test_a_vocabulary_without_unk_drops_it():
    table = read(MODEL, Vocabulary(3, eos=0, tokens=("</s>", "tea", "milk")))
    assert log10(table, "tea milk") == pytest.approx(-0.7)


def test_one_id_cannot_be_two_words():
    with pytest.raises(VocabularyMismatch, match="two words of the ARPA file have the same id"):
        read(MODEL, Vocabulary(3, eos=2, unk=0, tokens=("oov", "tea", "milk")))


def test_ngrams_with_a_sentence_start_inside_are_left_out():
    table = read(MODEL.replace("ngram 2=4", "ngram 2=5").replace("\\3-grams", "-0.2\tmilk <s>\n\\3-grams"))
    assert log10(table, "tea milk </s>") == pytest.approx(-0.05)
    assert table.prob([[3]]).shape == (1, 4)


def test_strange_words_survive(tmp_path):
    words = ["5", "-0.3", "\\3-grams:", "é", "\u00a0", "\u2028", "日本", "\x0b", "a\\"]
    vocab = Vocabulary.from_words(words)
    table = KneserEssenNey(discount=0.5).fit(count([np.arange(2, 11), [2, 2, 3]], vocab, 3))
    write_arpa(table, tmp_path / "t")
    again = read_arpa(tmp_path / "t")
    assert again.vocab == vocab
    np.testing.assert_allclose(again.prob([(2,), (2, 2)]), table.prob([(2,), (2, 2)]), atol=1e-7)


# --- what cannot be written


def table_with(tokens, **settings):
    vocab = Vocabulary(size=3, eos=0, tokens=tokens, **settings)
    return AddLambda().fit(count([[1, 2]], vocab, 2))


def test_strings_may_be_given_for_a_vocabulary_without_any(tmp_path):
    write_arpa(table_with(None), tmp_path / "t", tokens=["end", "x", "y"])
    assert read_arpa(tmp_path / "t").vocab.tokens == ("<unk>", "</s>", "x", "y")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (None, "no strings"),
        (["a", "b"], "2 tokens given for 3 ids"),
        (["e", "x y", "z"], "'x y' cannot be a word"),
        (["e", "", "z"], "'' cannot be a word"),
        (["e", "\udcff", "z"], "cannot be a word"),
        (["e", "x", "x"], "both be written as 'x'"),
        (["e", "<s>", "x"], "both be written as '<s>'"),
        (["e", "</s>", "x"], "both be written as '</s>'"),
    ],
)
def test_strings_that_arpa_cannot_hold_are_refused(tmp_path, tokens, message):
    with pytest.raises(InputError, match=message):
        write_arpa(table_with(None), tmp_path / "t", tokens)
    assert not list(tmp_path.iterdir())


def test_zero_probabilities_and_backoffs_are_written_as_minus_99(tmp_path):
    table = table_with(("</s>", "x", "y"))
    base, backoffs = np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, 1.0, 1.0])
    changed = type(table)(table.vocab, table.trie, base, np.zeros(table.trie.size), backoffs, {})
    write_arpa(changed, tmp_path / "t")
    lines = (tmp_path / "t").read_text().split("\n")
    assert "-99\ty" in lines
    assert "-0.30103\tx\t-99" in lines
    assert "-99\t<s>" in lines
    assert read_arpa(tmp_path / "t").prob([(2,)])[0].max() < 1e-98


# --- broken files


def broken(old, new):
    assert old in MODEL
    return MODEL.replace(old, new, 1)


BROKEN = {
    "not a number": (broken("-0.5\ttea", "zero\ttea"), 11, "zero is not a log-probability"),
    "nan": (broken("-0.5\ttea", "nan\ttea"), 11, "nan is not a log-probability"),
    "nan backoff": (broken("tea\t-0.2", "tea\tNaN"), 11, "NaN is not a backoff"),
    "infinite backoff": (broken("tea\t-0.2", "tea\tinf"), 11, "inf is not a backoff"),
    "a backoff beyond float64": (broken("tea\t-0.2", "tea\t310"), 11, "310 is not a backoff"),
    "half a number": (broken("-0.7\ttea milk", "-0.7x\ttea milk"), 16, "-0.7x is not a log-probability"),
    "positive": (broken("-0.7\ttea milk", "0.7\ttea milk"), 16, "0.7 is not a log-probability"),
    "no number": (broken("-0.4\t<s> tea\t-0.1", "-0.4"), 15, "1 fields, where 3 or 4 are due"),
    "too many fields": (broken("-0.4\t<s> tea", "-0.4\t<s> tea milk x"), 15, "6 fields, where 3 or 4 are due"),
    "a backoff at the top": (broken("-0.15\t<s> tea milk", "-0.15\t<s> tea milk\t-1"), 21, "5 fields, where 4 are due"),
    "unknown word": (broken("tea milk </s>", "tea coffee </s>"), 22, "the word 'coffee' is not among the unigrams"),
    "repeated word": (broken("\tmilk\t", "\ttea\t"), 12, "the word 'tea' is listed twice"),
    "repeated n-gram": (broken("-0.8\ttea </s>", "-0.8\ttea milk"), 17, "this 2-gram was listed before"),
    "too few": (broken("ngram 2=4", "ngram 2=5"), 20, "the header declares 5 2-grams, but 4 stand above"),
    "too many": (broken("ngram 3=2", "ngram 3=1"), 24, "the header declares 1 3-grams, but 2 stand above"),
    "a huge count": (broken("ngram 3=2", "ngram 3=999999999999999"), 24, "but 2 stand above"),
    "order skipped": (broken("ngram 2=4", "ngram 4=4"), 4, "'ngram 4=4' was found where ngram 2=COUNT is expected"),
    "odd header": (broken("ngram 2=4", "bigrams: 4"), 4, "'bigrams: 4' was found where"),
    "section missing": (broken("\\2-grams:", "\\3-grams:"), 14, r"\\3-grams: was found where \\2-grams: is expected"),
    "no words": ("\\data\\\nngram 1=0\n\\1-grams:\n\\end\\\n", 3, "the model has no words"),
    "no counts": ("\\data\\\n\\end\\\n", 2, "the model has no words"),
    "cut off": (MODEL[: MODEL.index("\\end")], 24, r"\\end\\ is missing"),
    "cut off in the header": (MODEL[: MODEL.index("ngram 3")], 5, r"\\end\\ is missing"),
    "order 9": ("\\data\\\n" + "".join(f"ngram {k}=1\n" for k in range(1, 10)) + "\\1-grams:\n", 11, "order 9"),
}


@pytest.mark.parametrize(("text", "line", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_are_refused_with_the_line(text, line, message):
    with pytest.raises(FileFormatError, match=rf"line {line}: .*{message}") as caught:
        read(text)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "\n", "just text\n", "\\1-grams:\n", "\x1f\x8b"])
def test_other_files_are_not_arpa(text):
    with pytest.raises((FileFormatError, TextError)):
        read(text.encode("latin1"))


def test_bytes_that_are_not_text_are_refused():
    with pytest.raises(TextError, match="not UTF-8"):
        read(MODEL.encode().replace(b"tea", b"t\xff\xff"))


def test_no_cut_goes_unnoticed():
    text = MODEL.rstrip()
    for size in range(len(text)):
        with pytest.raises(FileFormatError):
            read(text[:size])


# --- numbers


@pytest.mark.parametrize(
    "number",
    ["-1", "-1.", "-.5", "-0", "-0.30103", "-1.2345678901234567", "-123456789012345678901234",
     "-0.000000000000000001234", "-1e-5", "-1E+2", "-9.9e-300", "-1e5", "-inf", "-INF",
     "-0.1000000000000000055511151231257827"],
)  # fmt: skip
def test_numbers_are_read_as_python_reads_them(number):
    logprobs, backoffs = np.zeros(1), np.zeros(1)
    text = np.frombuffer(f"{number}\tx\t{number}\n".encode() + PADDING, np.uint8)
    ngrams, lines = np.zeros((1, 1), np.int32), np.zeros(1, np.int64)
    table, columns = index_words([b"x"]), (ngrams, logprobs, backoffs, lines)
    addresses = (column.ctypes.data for column in columns)
    status, _, _, size = parse(text.ctypes.data, 0, len(text) - 8, 1, True, table.address, *addresses)
    assert (status, size) == (0, 1)
    assert logprobs[0] == pytest.approx(float(number), rel=3e-16)
    assert backoffs[0] == pytest.approx(float(number), rel=3e-16)


@pytest.mark.parametrize(
    "number",
    ["", "-", ".", "-.", "e5", "1.2.3", "-1-", "0x1", "--1", "-1,5", "1e", "-0.3e", "-0.3e-", "nan", "-iffy", "-in"],
)
def test_what_is_no_number_is_refused(number):
    with pytest.raises(FileFormatError):
        read(MODEL.replace("-0.5\ttea", f"{number}\ttea"))


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("block", [1, 7, 1 << 16])
def test_tables_in_memory_in_files_and_packed_are_written_alike(tmp_path, monkeypatch, order, block):
    """Blocks of any size find the words, probabilities and backoffs that whole arrays have."""
    table = fitted("modified-kneser-ney", order)
    strings = [f"w{number}" for number in range(table.vocab.size)]
    write_arpa(table, tmp_path / "memory.arpa", strings)
    monkeypatch.setattr("lidstone.ngram.formats.arpa._BLOCK", block)
    table.save(tmp_path / "table")
    mapped = load(tmp_path / "table", verify=False)
    write_arpa(mapped, tmp_path / "mapped.arpa", strings)
    write_arpa(table.compact(bits=64, pack=True), tmp_path / "packed.arpa", strings)
    expected = (tmp_path / "memory.arpa").read_bytes()
    assert (tmp_path / "mapped.arpa").read_bytes() == expected
    assert (tmp_path / "packed.arpa").read_bytes() == expected
    assert "ngram_probs" not in vars(mapped) and "parents" not in vars(mapped.trie)


@pytest.mark.parametrize("order", [2, 4])
def test_words_and_parents_of_blocks_are_those_of_the_trie(order):
    trie = fitted("modified-kneser-ney", order).trie
    nodes = np.arange(trie.levels[order - 1], trie.levels[order])
    assert parents_of(trie, nodes, order).tolist() == trie.parents[nodes].tolist()
    found = list(zip(*(column.tolist() for column in words_of(trie, nodes, order)), strict=True))
    assert found == [trie.ngram(int(node)) for node in nodes]
