r"""The `kenlm` module as judge: it reads what we write and scores alike, and we read what it reads.

KenLM adds float32 numbers of seven digits, so single tokens agree to about 1e-6 in log10.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.smoothing_cases import SMOOTHERS, VOCAB, fit, fitted, make_text

from lidstone.ngram.counts import count
from lidstone.ngram.formats.arpa import read_arpa, write_arpa
from lidstone.text.corpora import embedded_corpus
from lidstone.text.vocabulary import Vocabulary

kenlm = pytest.importorskip("kenlm", reason="the kenlm module is not installed")

TOKENS = ["<pad>", "</s>", "two", "three", "four", "five", "six", "seven"]
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def kenlm_scores(path, sentences):
    """log10 p of every token, ends of sentences included."""
    model = kenlm.Model(str(path))
    return np.array([score for words in sentences for score, _, _ in model.full_scores(" ".join(words))])


def our_scores(table, sentences):
    """The same by our own reading."""
    ids = [token for words in sentences for token in (*table.vocab.encode(words), table.vocab.eos)]
    return table.token_logprobs(np.array(ids)) / np.log(10)


@pytest.mark.parametrize("order", [2, 3, 4, 5])
@pytest.mark.parametrize("name", SMOOTHERS)
def test_every_smoother_scores_alike_in_kenlm(tmp_path, name, order):
    table = fitted(name, order)
    write_arpa(table, tmp_path / "t.arpa", TOKENS)
    text = [*make_text(60, seed=1), [7, 7, 2], [7], [2, 7, 3, 7]]  # seven never occurs in the text
    expected = table.token_logprobs(np.array([token for words in text for token in (*words, VOCAB.eos)])) / np.log(10)
    found = kenlm_scores(tmp_path / "t.arpa", [[TOKENS[token] for token in words] for words in text])
    np.testing.assert_allclose(found, np.maximum(expected, -99), **TOLERANCE)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
def test_kenlm_reads_the_compressed_file_or_its_plain_twin(tmp_path, suffix):
    path = tmp_path / f"t.arpa{suffix}"
    write_arpa(fitted("witten-bell", 3), path, TOKENS)
    try:
        found = kenlm_scores(path, [["two", "three"]])
    except OSError as error:  # the module may have been built without this format
        pytest.skip(f"this kenlm cannot read {suffix}: {error}")
    write_arpa(fitted("witten-bell", 3), tmp_path / "plain", TOKENS)
    np.testing.assert_array_equal(found, kenlm_scores(tmp_path / "plain", [["two", "three"]]))


@pytest.fixture(scope="module")
def english():
    sentences = embedded_corpus()
    train, held_out = sentences[:3000], sentences[3000:3400]
    vocab = Vocabulary.from_words(dict.fromkeys(word for words in train for word in words))
    return vocab, [vocab.encode(words) for words in train], held_out


@pytest.mark.parametrize("thresholds", [None, [0, 0, 1]])
@pytest.mark.parametrize("name", SMOOTHERS)
def test_real_text_with_unknown_words_scores_alike(tmp_path, english, name, thresholds):
    vocab, train, held_out = english
    table = fit(name, count(train, vocab, 3, thresholds=thresholds))
    write_arpa(table, tmp_path / "t.arpa")
    ours = our_scores(table, held_out)
    theirs = kenlm_scores(tmp_path / "t.arpa", held_out)
    assert (ours < -3).any()  # there are unknown words, and rare ones
    np.testing.assert_allclose(theirs, np.maximum(ours, -99), **TOLERANCE)
    np.testing.assert_allclose(our_scores(read_arpa(tmp_path / "t.arpa"), held_out), ours, **TOLERANCE)


# The other way round: small models by hand, pruned in every way, in three dialects.

BY_HAND = r"""
\data\
ngram 1=8
ngram 2=8
ngram 3=5
ngram 4=2

\1-grams:
-1.7	<unk>	-0.4
-99	<s>	-0.35
-0.9	</s>
-0.8	rain	-0.5
-1.1	on	-0.2
-1.3	the
-1.25	roof	0.1
-2.5	again	-0.0

\2-grams:
-0.3	<s> rain	-0.25
-0.45	rain on	-0.3
-0.2	on the	-0.6
-0.5	the roof	-0.15
-3.1	roof rain
-0.35	roof </s>
-7	<unk> <unk>	-1
-1.5	again <unk>	-2

\3-grams:
-0.1	<s> rain on	-0.05
-0.15	rain on the
-0.12	on the roof	-0.7
-4	again <unk> roof	-0.2
-0.6	rain on rain

\4-grams:
-0.02	<s> rain on the
-0.03	again <unk> roof rain

\end\
"""

SENTENCES = [
    sentence.split()
    for sentence in (
        "rain on the roof",
        "rain on the roof again",
        "",
        "the roof rain on the roof",
        "snow snow snow roof rain",
        "again snow roof rain again",
        "on rain on rain rain",
        "on the on the on the roof the",
        "again again rain roof again snow snow roof rain on the roof",
    )
]

DIALECTS = {
    "srilm": BY_HAND,
    "<s> at 0": BY_HAND.replace("-99\t<s>", "0\t<s>"),
    "spaces for tabs": BY_HAND.replace("\t", " "),
    "no unk": "\n".join(line for line in BY_HAND.split("\n") if "<unk>" not in line)
    .replace("1=8", "1=7").replace("2=8", "2=6").replace("3=5", "3=4").replace("4=2", "4=1"),
    "<s> with a positive backoff": BY_HAND.replace("<s>\t-0.35", "<s>\t0.35"),
    "prefixes missing": BY_HAND.replace("-0.2\ton the\t-0.6\n", "").replace("2=8", "2=7"),
}  # fmt: skip


REFUSED = ("spaces for tabs", "prefixes missing")  # by KenLM, not by us: there it judges what we write


@pytest.mark.parametrize("dialect", DIALECTS)
def test_models_by_hand_score_alike(tmp_path, dialect):
    path = tmp_path / "hand.arpa"
    path.write_text(DIALECTS[dialect])
    table = read_arpa(path)
    if dialect in REFUSED:
        write_arpa(table, path)
    np.testing.assert_allclose(our_scores(table, SENTENCES), kenlm_scores(path, SENTENCES), **TOLERANCE)


def test_writing_what_was_read_changes_no_score(tmp_path):
    (tmp_path / "one.arpa").write_text(BY_HAND)
    write_arpa(read_arpa(tmp_path / "one.arpa"), tmp_path / "two.arpa")
    before, after = (kenlm_scores(tmp_path / f"{name}.arpa", SENTENCES) for name in ("one", "two"))
    np.testing.assert_allclose(after, before, **TOLERANCE)
